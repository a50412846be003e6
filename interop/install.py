"""Install the real OpenClaw client and the Node it needs, with npm, under this directory.

``python -m interop.install`` exits 0 when the client is there, or when there is no npm at all outside CI: the tests
that need the client then skip and say so. It exits 1 when npm is there and the installation fails, and in CI whenever
there is no client in the end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODE = HERE / "node22" / "node_modules" / "node" / "bin" / "node"
CLIENT = HERE / "node_modules" / "openclaw" / "openclaw.mjs"
INSTALL_TIMEOUT_S = 900

# --no-package-lock: a lock file would name the registry of whoever wrote it.
NPM_INSTALL = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")


class InstallError(Exception):
    """The client could not be installed; the text says what npm said."""


def in_ci() -> bool:
    """Whether this runs in continuous integration, where nothing may be skipped."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def wanted(package: Path) -> str:
    """The version that ``package.json`` in the directory asks for."""
    (version,) = json.loads((package / "package.json").read_text(encoding="utf-8"))["dependencies"].values()
    assert isinstance(version, str)
    return version


def installed_client() -> str:
    """The version of the installed client, or "" when there is none, or npm did not get to its end."""
    if not (HERE / "node_modules" / ".package-lock.json").is_file():  # npm's own notes, which it writes last
        return ""
    try:
        manifest = (CLIENT.parent / "package.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    version = json.loads(manifest)["version"]
    assert isinstance(version, str)
    return version


def installed_node() -> str:
    """The version the installed Node gives of itself, without the v, or ""."""
    try:
        answer = subprocess.run([NODE, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip().removeprefix("v")


def missing() -> list[str]:
    """What is not there in the version that is wanted, in words; empty when the client can be run."""
    gaps = []
    if installed_node().split(".")[0] != wanted(HERE / "node22"):
        gaps.append(f"Node {wanted(HERE / 'node22')}")
    if installed_client() != wanted(HERE):
        gaps.append(f"openclaw {wanted(HERE)}")
    return gaps


def install() -> None:
    """Install what is missing.

    Raises:
        InstallError: npm failed, or what it installed does not run.
    """
    if installed_node().split(".")[0] != wanted(HERE / "node22"):
        # The package's install script fetches the binary for this machine; npm runs it because package.json allows it.
        _npm(HERE / "node22", "--ignore-scripts=false")
    if installed_client() != wanted(HERE):
        _npm(HERE, "--ignore-scripts")  # nothing the client compiles is needed to talk to a gateway
    if gaps := missing():
        raise InstallError(f"npm finished, but there is still no {' and no '.join(gaps)} in {HERE}")


def _npm(directory: Path, *options: str) -> None:
    print(f"installing {directory.relative_to(HERE.parent)}/package.json with npm", flush=True)
    try:
        done = subprocess.run(
            [*NPM_INSTALL, *options],
            cwd=directory,
            env=os.environ | {"npm_config_update_notifier": "false"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as exc:
        raise InstallError(f"npm install did not end within {INSTALL_TIMEOUT_S} s in {directory}") from exc
    if done.returncode != 0:
        raise InstallError(f"npm install failed ({done.returncode}) in {directory}:\n{done.stdout}")


def main() -> int:
    """See the module."""
    if not missing():
        return 0
    if shutil.which("npm") is None:
        print(f"npm not found: no {', no '.join(missing())}", file=sys.stderr)
        return 1 if in_ci() else 0
    try:
        install()
    except InstallError as exc:
        print(exc, file=sys.stderr)
        return 1
    print(f"openclaw {installed_client()} on Node {installed_node()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
