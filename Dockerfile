# The gateway alone, run by a user without rights. Needs a token: see README.md, "In a container".
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/skynet
COPY requirements.lock ./
RUN /opt/skynet/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock
COPY . .
RUN /opt/skynet/bin/pip install --no-cache-dir --no-deps --no-build-isolation --no-index . \
    && /opt/skynet/bin/pip uninstall --yes --quiet setuptools wheel $(/opt/skynet/bin/python -c "import re, tomllib; \
print(*(re.match(r'[\w.-]+', name)[0] for name in tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']['dev']))")

FROM python:3.13-slim
# What commands run in. It needs user namespaces, which engines forbid by default: docs/sandbox.md says how to allow them.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /var/lib/skynet --shell /usr/sbin/nologin skynet \
    && install -d -m 0700 -o skynet -g skynet /var/lib/skynet
COPY --from=build /opt/skynet /opt/skynet
USER skynet
ENV PATH=/opt/skynet/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SKYNET_HOME=/var/lib/skynet \
    SKYNET_GATEWAY_HOST=0.0.0.0
VOLUME /var/lib/skynet
EXPOSE 18789
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('SKYNET_GATEWAY_PORT', '18789') + '/health', timeout=4)"]
STOPSIGNAL SIGTERM
# On an address that others reach the gateway refuses to start without SKYNET_GATEWAY_AUTH_TOKEN.
CMD ["skynet", "gateway", "run"]
