"""The parts all tests share: one model server, one gateway, one client whose answers are computed ahead."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from interop.gateway import Gateway, running_gateway
from interop.install import in_ci, missing
from interop.models import Models, running_models
from interop.openclaw import OpenClaw, Outcome

# A shell that runs the tests in the background has them ignore SIGINT, and so would every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

COMMANDS_AT_A_TIME = 2
"""A command is two seconds of start-up work; more at once only makes its own time limits run out."""

Clients = Mapping[str, OpenClaw]
Key = tuple[str, tuple[str, ...]]


def _reads(item: pytest.Item) -> Key | None:
    marker = item.get_closest_marker("reads")
    return marker and (marker.kwargs.get("client", "owner"), tuple(marker.args))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ask for the outcomes of the commands that run by themselves last."""
    items.sort(key=lambda item: _reads(item) is not None)


@pytest.fixture(scope="session")
def openclaw_installed() -> None:
    """Skip when there can be no client: no npm, outside CI. Fail when there should be one."""
    if not (gaps := missing()):
        return
    if shutil.which("npm") is None and not in_ci():
        pytest.skip(f"no {' and no '.join(gaps)}: npm not found")
    pytest.fail(f"no {' and no '.join(gaps)}: run interop/run, which installs the client")


@pytest.fixture(scope="session")
def tmux_installed() -> None:
    """Skip without tmux outside CI; fail in CI."""
    if shutil.which("tmux") is None:
        (pytest.fail if in_ci() else pytest.skip)("tmux not found")


@pytest.fixture(scope="session")
def models() -> Iterator[Models]:
    """The scripted model server."""
    with running_models() as server:
        yield server


@pytest.fixture(scope="session")
def gateway(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Our gateway, started in an empty state directory."""
    with running_gateway(tmp_path_factory.mktemp("gateway"), models.url) as running:
        yield running


@pytest.fixture(scope="session")
def clients(openclaw_installed: None, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """``owner`` has the token, ``stranger`` a wrong one, ``nobody`` none; each is a device of its own."""
    tokens = {"owner": gateway.token, "stranger": "wrong", "nobody": None}
    return {name: OpenClaw(tmp_path_factory.mktemp(name), gateway.url, token) for name, token in tokens.items()}


@pytest.fixture(scope="session")
def first_run(clients: Clients) -> Outcome:
    """The first thing ever said to the gateway, in its main session."""
    return clients["owner"].run("agent", "--agent", "main", "--message", "tokens=5", "--json")


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, clients: Clients, first_run: Outcome
) -> Iterator[Mapping[Key, Future[Outcome]]]:
    """The commands of all chosen tests marked ``reads``, on their way as soon as the main session has been used."""
    keys = dict.fromkeys(key for item in request.session.items if (key := _reads(item)))
    with ThreadPoolExecutor(COMMANDS_AT_A_TIME, "openclaw") as pool:
        yield {(name, command): pool.submit(clients[name].run, *command) for name, command in keys}
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def owner(clients: Clients, outcomes: Mapping[Key, Future[Outcome]]) -> OpenClaw:
    """The client that has the gateway's token. What it is asked here happens beside the commands of ``outcomes``."""
    return clients["owner"]


@pytest.fixture
def outcome(request: pytest.FixtureRequest, outcomes: Mapping[Key, Future[Outcome]]) -> Outcome:
    """How the command of this test's ``reads`` marker ended."""
    key = _reads(request.node)
    assert key is not None, "the test needs a mark: pytest.mark.reads"
    return outcomes[key].result()
