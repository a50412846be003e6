"""Which paths are what: decided by their components, after ``..`` is resolved."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from skynet_terminal.policy.commands import path_of
from skynet_terminal.policy.words import BENEATH, HOME, UNKNOWN, Word

Zone: TypeAlias = Literal["root", "top", "system", "home", "inside", "temporary", "unknown"]
Parts: TypeAlias = tuple[str, ...]
"""Of an absolute path."""

_SYSTEM = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "media",
        "mnt",
        "nix",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "snap",
        "srv",
        "sys",
        "usr",
        "var",
        "Applications",
        "Library",
        "Network",
        "System",
        "Users",
        "Volumes",
        "private",
        "cores",
    ]
)
_TEMPORARY = (("tmp",), ("var", "tmp"), ("dev", "shm"), ("run", "user"), ("private", "tmp"))
_HOME = tuple(HOME.strip("/").split("/"))
_OF_A_KIND = re.compile(r"\*+\.(?:json|ya?ml|sqlite|db|dat|py|fish|local|key)")
_WILD = re.compile(r"\[[^\]/]*\]|[*?.!\[\]]|[@+]?\([^)]*\)")


def parts_of(path: str) -> Parts:
    """Of an absolute path; none of / and of what is no absolute path."""
    return tuple(part for part in posixpath.normpath(path).split("/") if part) if path.startswith("/") else ()


def zone(word: Word, cwd: str | None, mounted: Sequence[Parts] = ()) -> tuple[Zone, bool]:
    """
    Where ``word`` leads, and whether everything in that folder is meant (``*``). What is in one of ``mounted`` is as
    near to the person as their own folder.
    """
    path = path_of(word.text, cwd)
    if path.startswith(UNKNOWN):
        return "unknown", False
    parts = [part for part in path.split("/") if part]
    everything = False
    if word.glob:
        while parts and not _WILD.sub("", parts[-1]) and parts[-1].strip("."):
            parts.pop()
            everything = True
        # /e*c and /???/x: what they may match
        if parts and any(char in parts[0] for char in "*?["):
            near = [place[0] for place in (_HOME, *mounted)]
            names = [name for name in (*_SYSTEM, *near) if fnmatch.fnmatchcase(name, parts[0][:40])]
            parts[0] = next((name for name in names if name in _SYSTEM), names[0] if names else parts[0])
    return _zone(tuple(parts), mounted), everything


def _zone(parts: Parts, mounted: Sequence[Parts]) -> Zone:
    if not parts:
        return "root"
    for place in mounted:
        if parts[: len(place)] == place:
            return "home" if parts == place else "inside"
        if parts == place[: len(parts)]:
            return "home" if parts[: len(_HOME)] == _HOME else "top"
    if parts[: len(_HOME)] == _HOME:
        return "home" if parts == _HOME else "inside"
    for temporary in _TEMPORARY:
        if parts[: len(temporary)] == temporary:
            return "temporary"
    if len(parts) == 1:
        return "top" if parts[0] in _SYSTEM else "system"
    if len(parts) == 2 and parts[0] in ("home", "Users") and parts[1] != BENEATH:
        return "top"
    if len(parts) == 2 and parts[0] == "usr" and parts[1] in ("bin", "lib", "sbin", "share", "local", "lib64"):
        return "top"
    return "system"


_BLOCK_DEVICE = re.compile(
    r"/dev/(?:sd[a-z?*\[]|hd[a-z]|vd[a-z]|xvd|nvme|mmcblk|md\d|dm-|mapper/|disk|rdisk|loop\d|sr\d|ram\d|zd\d|nbd|mem|kmem|port|"
    r"mtd|pmem|bcache|drbd|block/|root\b|raw/)"
)
_HARMLESS_DEVICES = frozenset(
    ["null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "ptmx", "console"]
)


def block_device(path: str) -> bool:
    return _BLOCK_DEVICE.match(path) is not None or re.match(r"/dev/[*?\[]|/dev/[a-z]{0,3}[*?\[]", path) is not None


def harmless_device(path: str) -> bool:
    parts = path.split("/")
    return parts[:2] == ["", "dev"] and (
        (len(parts) == 3 and parts[2] in _HARMLESS_DEVICES) or (len(parts) > 3 and parts[2] in ("fd", "pts", "shm"))
    )


# --- what is secret

_GATEWAY = ("skynet.db", "skynet.db-wal", "skynet.db-shm", "skynet.toml", "secrets.vault", "gateway.token", ".skynet")
_CREDENTIAL_FOLDERS = (
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".password-store", ".1password", ".vault", ".mozilla", "gcloud",
    "google-chrome", "chromium", "BraveSoftware", "Keychains", "keyrings", ".docker", ".oci", ".electrum", ".bitcoin",
)  # fmt: skip
_CREDENTIAL_FILES = (
    ".netrc", "_netrc", ".pgpass", ".my.cnf", ".git-credentials", ".npmrc", ".pypirc", ".vault-token", ".htpasswd",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "shadow", "shadow-", "gshadow", "sudoers", "credentials.json",
    "master.key", "login.keychain", "login.keychain-db", "logins.json", "key4.db", "cookies.sqlite", "Login Data",
    "wallet.dat", ".boto", ".s3cfg", "hosts.yml", "krb5.keytab", "opasswd", "secring.gpg", "kubeconfig", "authinfo",
    ".authinfo",
)  # fmt: skip
_OWN_FILES = (".env", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "*.keystore", ".env.*", "*.ppk")
_HARMLESS_OWN = re.compile(
    r"\.env\.(example|sample|template|dist|defaults?|test)|(public|cert|chain|fullchain|ca)[\w-]*\.pem"
)
_HISTORY = (
    ".bash_history", ".zsh_history", ".history", ".sh_history",
    ".python_history", ".node_repl_history", ".psql_history",
    ".mysql_history", ".sqlite_history", ".rediscli_history", ".lesshst", ".viminfo", "fish_history", ".ash_history",
)  # fmt: skip
_SHELL_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv", ".zlogin",
    ".zlogout", ".cshrc", ".tcshrc", ".kshrc", ".inputrc", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc",
    "config.fish", ".bash_aliases", ".pam_environment", "authorized_keys", "authorized_keys2", "rc.local",
    "ld.so.preload", ".pythonstartup", ".gdbinit", "sitecustomize.py", "usercustomize.py",
)  # fmt: skip
_START_FOLDERS = (
    "LaunchAgents", "LaunchDaemons", "autostart", "cron.d", "cron.daily", "cron.hourly", "cron.weekly", "cron.monthly",
    "init.d", "profile.d", "rc.d", "StartupItems", "update-motd.d", "modules-load.d", "sudoers.d",
)  # fmt: skip
_START_PATHS = ("/etc/crontab", "/var/spool/cron", "/etc/systemd", "/usr/lib/systemd", "/lib/systemd", "/etc/profile",
                "/etc/bash.bashrc", "/etc/environment", "/etc/rc.local", "/etc/inittab", "/etc/pam.d")  # fmt: skip
_ESCAPES = re.compile(
    r"docker\.sock|containerd\.sock|crio\.sock|podman\.sock|/proc/(?:1|\*|\?)/(?:root|cwd|fd|ns|mem)(?:/|$)"
    r"|/proc/(?:self|\d+|thread-self)/(?:mem|root)(?:/|$)|/proc/sys(?:/|$)|/proc/sysrq-trigger|/proc/kcore|/proc/kmem"
    r"|release_agent|core_pattern|/sys/fs/cgroup|/sys/kernel|/dev/k?mem$|/proc/kallsyms|modprobe_path|binfmt_misc|uevent_helper"
)
_ENVIRON = re.compile(
    r"/proc/[^/]+(?:/task/[^/]+)?/environ$|/proc/[^/]+/e[a-z]*[*?\[]|/proc/[^/]+/(?:environ?|e[*?\[]\S*)$"
)


def _parts(text: str, cwd: str | None) -> tuple[str, list[str]]:
    # a whole part that is not known is some name; else what is not known may be nothing
    text = re.sub(r"(?<=/)\0(?=/|$)", "x", text).replace(UNKNOWN, "")
    path = path_of(text, cwd) if cwd is not None or text.startswith("/") else text
    return path, [part for part in path.split("/") if part]


def _named(parts: list[str], names: tuple[str, ...], *, last: bool = False, glob: bool = False) -> bool:
    considered = parts[-1:] if last else parts
    for part in considered:
        if part in names:
            return True
        wild = glob and any(char in part for char in "*?[") and len(_WILD.sub("", part)) > 1
        # all files of a kind are not meant for the one of them that is secret
        wild = wild and not (_OF_A_KIND.fullmatch(part) and not any(each.startswith(".") for each in parts[:-1]))
        if wild and any(fnmatch.fnmatchcase(name, part[:80]) for name in names):
            return True
    return False


def gateway_file(word: Word, cwd: str | None) -> bool:
    _, parts = _parts(word.text, cwd)
    return _named(parts, _GATEWAY, glob=word.glob)


def credential(word: Word, cwd: str | None) -> bool:
    path, parts = _parts(word.text, cwd)
    if parts[-1:] and parts[-1].endswith(".pub"):
        return False
    hidden = word.glob and len(parts) > 1 and any(part in (".*", ".?*", ".[!.]*", ".[^.]*") for part in parts[:-1])
    if (
        word.glob
        and path.startswith("/etc/")
        and any(fnmatch.fnmatchcase(name, path[:80]) for name in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers"))
    ):
        return len(parts[-1].strip("*")) > 0
    return (
        hidden
        or _named(parts, _CREDENTIAL_FOLDERS, glob=word.glob)
        or _named(parts, _CREDENTIAL_FILES, last=True, glob=word.glob)
    )


def own_secret(word: Word, cwd: str | None) -> bool:
    """What a project holds of the kind."""
    _, parts = _parts(word.text, cwd)
    if not parts or _HARMLESS_OWN.search(parts[-1]):
        return False
    name = parts[-1]
    if word.glob:
        return any(char not in "*?[]." for char in name) and (
            fnmatch.fnmatchcase(".env", name[:80]) or any(name.endswith(own[1:]) for own in _OWN_FILES if own[0] == "*")
        )
    return any(fnmatch.fnmatchcase(name[-80:] if len(name) > 80 else name, own) for own in _OWN_FILES)


def history_file(word: Word, cwd: str | None) -> bool:
    _, parts = _parts(word.text, cwd)
    return _named(parts, _HISTORY, last=True, glob=word.glob)


def starts_by_itself(word: Word, cwd: str | None) -> bool:
    """A file that a shell, a session or a service reads when it starts."""
    path, parts = _parts(word.text, cwd)
    return (
        _named(parts, _SHELL_FILES, last=True, glob=word.glob)
        or _named(parts, _START_FOLDERS)
        or any(path == start or path.startswith(f"{start}/") for start in _START_PATHS)
        or ".config/systemd/" in path
        or "/.git/hooks/" in path
    )


def way_out(word: Word, cwd: str | None) -> bool:
    """A file of the kernel or of an engine that leads out of a container."""
    text = word.text.replace(UNKNOWN, "")
    path, _ = _parts(word.text, cwd)
    return ("/" in text or ".sock" in text) and (_ESCAPES.search(path) is not None or _ESCAPES.search(text) is not None)


def environment_file(word: Word, cwd: str | None) -> bool:
    return "/" in word.text and _ENVIRON.search(_parts(word.text, cwd)[0]) is not None
