"""What commands see of the machine's system: its programs, and an ``/etc`` made for them.

A gateway that runs as root is root outside of the sandbox as well, so no permission of a file protects it from
commands: only what is mounted can be read. Of ``/etc`` that is a copy of what programs need and everybody may read.
It is a copy, in one directory, since two dozen single mounts make each command 6 ms slower.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from skynet_terminal.sandbox.base import HOME_INSIDE, SANDBOX_UID

HOSTNAME = "skynet"
USER = "skynet"

ETC = (
    "alternatives",
    "bash.bashrc",
    "bash_completion.d",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "groff",
    "host.conf",
    "inputrc",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "magic.mime",
    "manpath.config",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "python3*",
    "redhat-release",
    "rpc",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vim",
    "xdg",
    "xml",
)
"""What is copied of ``/etc``, as patterns of pathlib."""

_LARGEST = 8 * 1024**2
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_NOBODY = 65534
_ROOTS = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")

_GENERATED = {
    "group": f"{USER}:x:{SANDBOX_UID}:\nnogroup:x:65534:\n",
    "hostname": f"{HOSTNAME}\n",
    "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\nrpc: files\n",
    "passwd": (
        f"{USER}:x:{SANDBOX_UID}:{SANDBOX_UID}::{HOME_INSIDE}:/bin/bash\nnobody:x:65534:65534::/nonexistent:/bin/false\n"
    ),
    "resolv.conf": "",
}


class SystemFiles:
    """The ``/etc`` of commands, kept in a directory of the gateway.

    Args:
        directory: of it alone. It is made.
    """

    def __init__(self, directory: Path, *, source: Path = Path("/etc")) -> None:
        self.etc = directory / "etc"
        self.devices: tuple[Path, ...] = ()
        """Nodes that replace the machine's own in ``/dev``. Those belong to root: commands of a gateway that is root
        could change their permissions, for the whole machine. These belong to nobody."""
        self.shares_devices = os.geteuid() == 0 and Path("/dev/null").stat().st_uid == 0
        self._devices = directory / "dev"
        self._source = source
        self._made_of: tuple[int, ...] = ()

    def refresh(self) -> None:
        """Make it, or make it anew if the system has changed since. It blocks: a copy takes about 50 ms.

        Raises:
            OSError: it cannot be made.
        """
        made_of = self._version()
        if made_of == self._made_of and self.etc.is_dir():
            return
        self.etc.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="etc-", dir=self.etc.parent, ignore_cleanup_errors=True) as temporary:
            fresh = Path(temporary) / "fresh"
            fresh.mkdir()
            for pattern in ETC:
                for path in self._source.glob(pattern):
                    self._copy(path, fresh / path.relative_to(self._source))
            for name, text in _GENERATED.items():
                (fresh / name).unlink(missing_ok=True)
                (fresh / name).write_text(text)
            with suppress(FileNotFoundError):
                self.etc.rename(Path(temporary) / "old")  # sandboxes that have it mounted keep it until they end
            fresh.rename(self.etc)
        self.devices = self._make_devices()
        self._made_of = made_of

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.etc, ignore_errors=True)
        shutil.rmtree(self._devices, ignore_errors=True)

    def _make_devices(self) -> tuple[Path, ...]:
        """As far as it can be done: not without CAP_MKNOD, and not on a disk that is mounted without devices."""
        if not self.shares_devices:
            return ()
        made = []
        shutil.rmtree(self._devices, ignore_errors=True)
        try:
            self._devices.mkdir(mode=0o755)
            for name in _DEVICES:
                path = self._devices / name
                os.mknod(path, 0o600 | stat.S_IFCHR, Path("/dev", name).stat().st_rdev)
                os.chown(path, _NOBODY, _NOBODY)
                path.chmod(0o666)
                if name != "tty":  # which only those can open who have one
                    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
                made.append(path)
        except OSError:
            return ()
        return tuple(made)

    def _version(self) -> tuple[int, ...]:
        """What changes with the system: libraries, certificates and programs were installed, the time zone was set."""
        times = []
        for name in ("ld.so.cache", "alternatives", "ssl/certs", "pki/ca-trust/extracted", "localtime"):
            try:
                times.append((self._source / name).lstat().st_mtime_ns)
            except OSError:
                times.append(0)
        return tuple(times)

    def _copy(self, source: Path, target: Path) -> None:
        """Links stay links, and lead nowhere where what they lead to is not there. What only some may read is left."""
        with suppress(OSError):  # it went away meanwhile, or the gateway may not read it
            about = source.lstat()
            target.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISLNK(about.st_mode):
                target.symlink_to(source.readlink())
            elif stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_IROTH:
                target.mkdir(exist_ok=True)
                for entry in source.iterdir():
                    self._copy(entry, target / entry.name)
            elif stat.S_ISREG(about.st_mode) and about.st_mode & stat.S_IROTH and about.st_size <= _LARGEST:
                shutil.copyfile(source, target)


def system_arguments(root: Path = Path("/")) -> Iterator[str]:
    """The options of bubblewrap for the programs: ``/usr``, and the directories beside it as the machine has them."""
    yield from ("--ro-bind", str(root / "usr"), "/usr")
    for name in _ROOTS:
        path = root / name
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), f"/{name}")  # noqa: PTH115 - as it is, relative or not
        elif path.is_dir():
            yield from ("--ro-bind", str(path), f"/{name}")
