"""What a command has added to a disk, as far as its folder and its open files show."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

_BLOCK_BYTES = 512
_ENTRIES_A_STEP = 200
_MOST_ENTRIES = 1_000_000
_DEEPEST = 256


@dataclass(slots=True)
class Added:
    """What was found so far."""

    bytes: int = 0
    files: int = 0
    too_deep: bool = False
    """There are directories deeper than can be looked into: nobody has those who does not hide something."""


def added(folder: str, since_ns: int, pids: Iterable[int], enough_bytes: int) -> Iterator[Added]:
    """What there is on the disk of ``folder`` that was changed since, in there or deleted but open in ``pids``.

    It yields every few milliseconds, so that others get to run meanwhile, and ends when ``enough_bytes`` are found.
    """
    found = Added()
    device = os.stat(folder).st_dev  # noqa: PTH116
    yield from _deleted(device, pids, found)
    seen: set[int] = set()
    directories = [(folder, 0)]
    entries = 0
    while directories and found.bytes < enough_bytes and entries < _MOST_ENTRIES:
        directory, depth = directories.pop()
        if depth > _DEEPEST:
            found.too_deep = True
            break
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as exc:
            found.too_deep = found.too_deep or exc.errno == 36  # ENAMETOOLONG
            continue
        try:
            with os.scandir(descriptor) as scan:
                for entry in scan:
                    entries += 1
                    if entries % _ENTRIES_A_STEP == 0:
                        yield found
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if about.st_dev != device:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        directories.append((f"{directory}/{entry.name}", depth + 1))
                    if about.st_ctime_ns >= since_ns and about.st_ino not in seen:
                        found.files += 1
                        if about.st_nlink > 1:
                            seen.add(about.st_ino)
                        found.bytes += about.st_blocks * _BLOCK_BYTES
        finally:
            os.close(descriptor)
    yield found


def _deleted(device: int, pids: Iterable[int], found: Added) -> Iterator[Added]:
    seen: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                with suppress(OSError):
                    about = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
                    if about.st_nlink == 0 and about.st_dev == device and about.st_ino not in seen:
                        seen.add(about.st_ino)
                        found.bytes += about.st_blocks * _BLOCK_BYTES
        yield found
