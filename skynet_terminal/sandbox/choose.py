"""Which sandbox commands run in, and what it really keeps from them: both are found out by trying."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox.base import PATH, SANDBOX_UID, Limits, Profile, Sandbox
from skynet_terminal.sandbox.bubblewrap import Bubblewrap, Egress
from skynet_terminal.sandbox.unconfined import Unconfined
from skynet_terminal.sandbox.warden import Warden

PROBE_S = 30.0
SETTINGS = Path("/proc/sys")

_ENGINES: tuple[Literal["podman"], Literal["docker"]] = ("podman", "docker")

# One line for each of what is in force. Only what a POSIX shell has of its own, as images may have little else.
_PROBE = """
while read -r key value rest; do
  case $key in Uid:|NoNewPrivs:|Seccomp:|CapEff:|CapBnd:) echo "$key $value";; esac
done </proc/self/status
for each in user net pid mnt ipc uts; do echo "ns-$each $(readlink /proc/self/ns/$each)"; done
echo "files $(ulimit -n)"; echo "cpu $(ulimit -t)"; echo "file-size $(ulimit -f)"
if unshare -U true 2>/dev/null; then echo "user-namespaces yes"; else echo "user-namespaces no"; fi
if test -w /usr || test -w / || test -w /etc; then echo "system writable"; else echo "system read-only"; fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One thing that a sandbox does, or does not."""

    name: str
    in_force: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationReport:
    """What keeps commands from the machine, as it was found inside (``skynet doctor``)."""

    name: str
    """Of the sandbox."""
    version: str
    """Of its program, "" where there is none."""
    features: tuple[Feature, ...]
    warnings: tuple[str, ...]
    """Sentences for whoever looks after the machine."""


async def choose(
    name: str,
    *,
    directory: Path,
    image: str = "",
    warden: Warden | None = None,
    egress: Egress | None = None,
    hidden: Sequence[Path] = (),
    path: str = PATH,
    settings: Path = SETTINGS,
) -> Sandbox:
    """The sandbox of this name, after a command has run in it.

    Args:
        name: ``bubblewrap``, ``podman``, ``docker``, ``none``, or ``auto``: the first of the three that works. Never
            ``none``, which somebody has to have asked for.
        directory: for what the sandbox keeps; it is made.
        image: for ``podman`` and ``docker``; without one ``auto`` does not try them.
        hidden: the gateway's own directories, which commands never see.
        path: where the sandboxes' programs are looked for.
        settings: the kernel's, which say why one does not work.

    Raises:
        SandboxUnavailable: it does not work, or none does. The words say what to do.
        ValueError: there is no sandbox of this name.
    """
    match name:
        case "none":
            return Unconfined()
        case "bubblewrap":
            return await _bubblewrap(directory, warden, egress, hidden, path, settings)
        case "podman" | "docker":
            return await _engine(name, image, egress, hidden, path)
        case "auto":
            problems = []
            try:
                return await _bubblewrap(directory, warden, egress, hidden, path, settings)
            except SandboxUnavailable as exc:
                problems.append(str(exc))
            for engine in _ENGINES:
                try:
                    if image:
                        return await _engine(engine, image, egress, hidden, path)
                except SandboxUnavailable as exc:
                    problems.append(str(exc))
            if not image:
                problems.append("podman and docker were not tried, as no image is configured (terminal.image)")
            raise SandboxUnavailable("no sandbox works here, so no command can run. " + " ".join(problems))
        case _:
            raise ValueError(f"there is no sandbox {name!r}")


async def isolation_report(sandbox: Sandbox) -> IsolationReport:
    """Find out from the inside what is in force.

    Raises:
        SandboxUnavailable: nothing can be run in it.
    """
    if isinstance(sandbox, Unconfined):
        warning = "commands run as the gateway's own user, and can do and read whatever the gateway can"
        return IsolationReport(name=sandbox.name, version="", features=(), warnings=(warning,))
    status, output, problem = await _run(sandbox, ["/bin/sh", "-c", _PROBE])
    if status != 0:
        raise SandboxUnavailable(f"{sandbox.name} cannot run a command: {problem}")
    facts = dict(line.partition(" ")[::2] for line in output.splitlines())
    features = _features(facts)
    return IsolationReport(
        name=sandbox.name,
        version=await asyncio.to_thread(_version, sandbox.name),
        features=features,
        warnings=tuple(_warnings(sandbox, features)),
    )


def _features(facts: dict[str, str]) -> tuple[Feature, ...]:
    def apart(kind: str) -> bool:
        inside = facts.get(f"ns-{kind}", "")
        with suppress(OSError):
            return inside.startswith(f"{kind}:") and inside != os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115
        return False

    uid = facts.get("Uid:", "").split()[:1]
    capabilities = facts.get("CapBnd:", "?").strip("0") + facts.get("CapEff:", "?").strip("0")
    return (
        Feature(name="user", in_force=uid == [str(SANDBOX_UID)], detail=f"uid {' '.join(uid) or 'unknown'}"),
        Feature(name="user namespace", in_force=apart("user")),
        Feature(name="network namespace", in_force=apart("net")),
        Feature(name="process namespace", in_force=apart("pid")),
        Feature(name="mount namespace", in_force=apart("mnt")),
        Feature(name="no capabilities", in_force=capabilities == ""),
        Feature(name="no new privileges", in_force=facts.get("NoNewPrivs:") == "1"),
        Feature(name="seccomp", in_force=facts.get("Seccomp:") == "2"),
        Feature(name="no user namespaces inside", in_force=facts.get("user-namespaces") == "no"),
        Feature(name="read-only system", in_force=facts.get("system") == "read-only"),
        Feature(
            name="rlimits",
            in_force=facts.get("files") == str(Limits().open_files) and facts.get("cpu") == str(Limits().cpu_s),
            detail=f"{facts.get('files', '?')} open files, {facts.get('cpu', '?')} s of processor time",
        ),
    )


def _warnings(sandbox: Sandbox, features: Sequence[Feature]) -> list[str]:
    # A container need not have a user namespace, and its engine sets limits in its own way.
    ignored = () if isinstance(sandbox, Bubblewrap) else ("user namespace", "rlimits")
    warnings = [f"{each.name}: not in force" for each in features if not each.in_force and each.name not in ignored]
    if isinstance(sandbox, Bubblewrap) and not sandbox.guards_devices:
        warnings.append(
            "commands could change the permissions of /dev/null and the like: the gateway runs as root and cannot make "
            "devices of its own for them (it needs CAP_MKNOD, and a data folder on a disk mounted without nodev)"
        )
    if os.geteuid() == 0:
        warnings.append("this runs as root, as a gateway should not: give it a user of its own")
    return warnings


async def _bubblewrap(
    directory: Path,
    warden: Warden | None,
    egress: Egress | None,
    hidden: Sequence[Path],
    path: str,
    settings: Path,
) -> Bubblewrap:
    program = shutil.which("bwrap", path=path)
    if program is None:
        raise SandboxUnavailable(
            "bubblewrap is not installed: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), "
            "pacman -S bubblewrap (Arch), apk add bubblewrap (Alpine)."
        )
    problem = ""
    for no_user_namespaces in (True, False):  # bubblewrap before 0.8 cannot forbid them; the filter does as well
        sandbox = Bubblewrap(
            directory,
            warden=warden,
            egress=egress,
            hidden=hidden,
            program=program,
            no_user_namespaces=no_user_namespaces,
        )
        status, _, said = await _run(sandbox, ["true"])
        if status == 0:
            return sandbox
        problem = problem or said
        if "disable-userns" not in said and "max_user_namespaces" not in said:
            break
    raise SandboxUnavailable(f"bubblewrap does not work here ({problem}). {_advice(problem, settings)}")


async def _engine(
    name: Literal["podman", "docker"], image: str, egress: Egress | None, hidden: Sequence[Path], path: str
) -> Sandbox:
    if not image:
        raise SandboxUnavailable(f"{name} needs an image: set terminal.image.")
    if await asyncio.to_thread(shutil.which, name, path=path) is None:
        raise SandboxUnavailable(f"{name} is not installed.")
    from skynet_terminal.sandbox.engine import ContainerEngine

    sandbox = ContainerEngine(name, image, egress=egress, hidden=hidden)
    status, _, said = await _run(sandbox, ["true"])
    if status != 0:
        raise SandboxUnavailable(f"{name} does not work here ({said}).")
    return sandbox


def _advice(problem: str, settings: Path) -> str:
    """What to do about what bubblewrap said."""
    low = problem.casefold()
    if "proc" in low and "mount" in low:
        return (
            "The container that the gateway is in hides parts of /proc, so no new one can be mounted: start it with "
            "--security-opt systempaths=unconfined."
        )
    if _setting(settings / "kernel/unprivileged_userns_clone") == "0":
        return "User namespaces are off: sysctl -w kernel.unprivileged_userns_clone=1, and in /etc/sysctl.d to stay."
    if _setting(settings / "kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor refuses user namespaces to programs without a profile (Ubuntu 23.10 and later): install "
            "the profile for bwrap of docs/sandbox.md, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0."
        )
    if _setting(settings / "user/max_user_namespaces") == "0":
        return "User namespaces are off: sysctl -w user.max_user_namespaces=10000, and in /etc/sysctl.d to stay."
    if "loopback" in low or "netlink" in low:
        return "The system allows the sandbox no network of its own: see docs/sandbox.md."
    if "permi" in low or "namespace" in low:
        return (
            "Namespaces are not allowed. In a container: start it with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined, or configure podman or docker "
            "on the machine itself. Otherwise see docs/sandbox.md."
        )
    return "See docs/sandbox.md."


def _setting(path: Path) -> str:
    with suppress(OSError):
        return path.read_text().strip()
    return ""


def _version(name: str) -> str:
    program = {"bubblewrap": "bwrap"}.get(name, name)
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([program, "--version"], capture_output=True, timeout=PROBE_S, check=True)  # noqa: S603
        return done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2].removeprefix("bubblewrap ")
    return ""


async def _run(sandbox: Sandbox, argv: Sequence[str]) -> tuple[int, str, str]:
    """Its exit code and what it wrote. It has nothing to read, and ``PROBE_S``."""
    with tempfile.TemporaryDirectory(prefix="skynet-probe-") as folder:
        launch = await sandbox.prepare(Profile(folder=Path(folder)), argv)
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - on this thread, with whose end it would be killed
                launch.argv,
                env=dict(launch.env),
                cwd=launch.cwd,
                pass_fds=tuple(launch.pass_fds),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            launch.started(process.pid)
            try:
                stdout, stderr = await asyncio.to_thread(process.communicate, timeout=PROBE_S)
            except BaseException:
                launch.kill()
                process.communicate()
                raise
            return process.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace").strip()
        except subprocess.TimeoutExpired:
            return -1, "", f"it did not end within {PROBE_S:.0f} s"
        except OSError as exc:
            return -1, "", str(exc)
        finally:
            await launch.release()
