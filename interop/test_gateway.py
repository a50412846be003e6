"""A gateway's own life: the first start, the end, and a start after that, with real clients connected."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest

from interop.gateway import PROVIDER_KEY, running_gateway
from interop.models import Models
from interop.openclaw import OpenClaw
from interop.tui import running_tui
from skynet.version import VERSION


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_start_makes_a_token_and_shows_it_once(models: Models, tmp_path: Path) -> None:
    with running_gateway(tmp_path, models.url) as gateway:
        token = gateway.token
        assert gateway.child.wait_for(token, 5).count(token) == 1
        assert gateway.url in gateway.child.output
        assert gateway.health() == {"status": "ok", "version": VERSION, "protocol": 3, "ws_clients": 0}
        assert mode(gateway.home / "gateway.token") == 0o600
        assert mode(gateway.home / "skynet.db") == 0o600
        log = gateway.log.read_text(encoding="utf-8")
        assert token not in log and PROVIDER_KEY not in log
    with running_gateway(tmp_path, models.url) as gateway:
        gateway.child.wait_for(gateway.url, 5)
        assert gateway.token == token
        assert token not in gateway.child.output


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(models: Models, tmp_path: Path, signum: int) -> None:
    with running_gateway(tmp_path, models.url) as gateway:
        assert gateway.child.stop(signum) == 0, gateway.child.output
        assert "Traceback" not in gateway.child.output


def test_clients_are_told_of_the_end_and_come_back_to_what_was_said(
    openclaw_installed: None, tmux_installed: None, models: Models, tmp_path: Path
) -> None:
    with running_gateway(tmp_path, models.url) as gateway:
        client = OpenClaw(tmp_path / "client", gateway.url, gateway.token)
        with running_tui(client, tmp_path) as terminal:
            terminal.see("connected | idle")
            terminal.type("say=before the restart")
            terminal.see(" before the restart", "connected | idle")
            health = gateway.health()
            assert health is not None and health["ws_clients"] == 1
            assert gateway.child.stop() == 0, gateway.child.output
            terminal.see("gateway disconnected: service restart")
            with running_gateway(tmp_path, models.url, gateway.port):
                terminal.see("say=before the restart", " before the restart", "connected | idle")
                terminal.type("say=and after it")
                terminal.see(" and after it", "connected | idle")
                (request,) = models.requests("say=and after it")
                assert "before the restart" in str(request["messages"])
