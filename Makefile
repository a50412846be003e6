# make run    start the gateway        make test   every check
# make interop   the real OpenClaw client against it        make bench   measure it
# make docs   write the generated tables of docs/        make lock   pin the dependencies anew (network)
# make clean  remove what was built

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
ARGS ?=

.PHONY: run test lint types imports pytest interop bench docs lock clean
.DEFAULT_GOAL := test

run: $(INSTALLED)
	$(BIN)/skynet gateway run $(ARGS)

test: lint types imports pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

pytest: $(INSTALLED)
	PYTHONASYNCIODEBUG=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

interop: $(INSTALLED)
	interop/run $(ARGS)

bench: $(INSTALLED)
	$(BIN)/python -m bench $(ARGS)

docs: $(INSTALLED)
	$(BIN)/python -m tests.test_docs

# The environment is made from nothing whenever what it is made from changes. Everything in it has its hash in
# requirements.lock, the build backend included, so nothing that happens to be on the machine gets in.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11'; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --require-hashes --no-deps -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --no-index --editable .
	$(PIP) check
	touch $@

# uv resolves for all supported Pythons and systems at once; it is fetched for this alone.
lock:
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --disable-pip-version-check install --quiet uv
	printf 'setuptools>=77\nwheel\n' | $(VENV)-lock/bin/uv pip compile pyproject.toml - --group dev --universal \
		--python-version 3.11 --generate-hashes --no-annotate --no-header --upgrade --quiet --output-file requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV)-lock build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path '*/node_modules/*' -prune -exec rm -rf {} +
