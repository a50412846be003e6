"""The time zone of the machine, with its rules for summer: an offset of today would be wrong in half a year."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

LOCALTIME = Path("/etc/localtime")


def machine_zone(env: Mapping[str, str] = os.environ, localtime: Path = LOCALTIME) -> tzinfo:
    """``TZ``, else where ``/etc/localtime`` leads, else UTC. By its name if it has one."""
    names = [env.get("TZ", "").removeprefix(":")]
    if localtime.is_symlink():
        names.append(str(localtime.readlink()).partition("zoneinfo/")[2])
    for name in names:
        try:
            return ZoneInfo(name)
        except (LookupError, ValueError, OSError):  # empty, or a rule ("CET-1CEST") instead of a name
            continue
    try:
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    except (OSError, ValueError):
        return UTC
