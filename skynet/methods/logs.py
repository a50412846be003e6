"""``logs.tail``."""

import asyncio
from pathlib import Path

import msgspec
from msgspec import UnsetType

from skynet.gateway.dispatch import method
from skynet_memory.ids import Role, UserId
from skynet_protocol.errors import DetailCode, ErrorCode, RequestError
from skynet_protocol.logs import LogsTailParams, LogsTailResult
from skynet_users.caller import Caller


class LogMethods:
    """The gateway's log file. Admins read all of it, others the lines about themselves."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @method("logs.tail")
    async def tail(self, caller: Caller, params: LogsTailParams) -> LogsTailResult:
        """The lines after ``cursor``, or the last ones; at most ``maxBytes`` of the file and ``limit`` lines.

        Raises:
            RequestError: the file cannot be read (``UNAVAILABLE``).
        """
        about = None if caller.role is Role.ADMIN else caller.user_id
        try:
            return await asyncio.to_thread(_read, self._file, params, about)
        except OSError as exc:
            raise RequestError(
                f"log read failed: {exc.strerror}", code=ErrorCode.UNAVAILABLE, details={"code": DetailCode.IO_ERROR}
            ) from exc


class _Owned(msgspec.Struct, rename="camel"):
    user_id: str = ""


_owned = msgspec.json.Decoder(_Owned)


def _read(path: Path, params: LogsTailParams, about: UserId | None) -> LogsTailResult:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return LogsTailResult(file=str(path), cursor=0, size=0, lines=[], truncated=False, reset=False)
    with file:
        size = file.seek(0, 2)
        start, truncated, reset = _window(params.cursor, size, params.max_bytes)
        # One byte more at the front tells whether the window begins with a line of its own.
        file.seek(max(start - 1, 0))
        data = file.read(size - max(start - 1, 0))
    if start > 0:
        data = data[1:] if data[:1] == b"\n" else data[data.find(b"\n") + 1 :] if b"\n" in data else b""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if about is not None:
        lines = [line for line in lines if _is_about(line, about)]
    return LogsTailResult(
        file=str(path),
        cursor=size,
        size=size,
        lines=[line.decode(errors="replace") for line in lines[-params.limit :]],
        truncated=truncated,
        reset=reset,
    )


def _window(cursor: int | UnsetType, size: int, max_bytes: int) -> tuple[int, bool, bool]:
    """Where to begin, whether older bytes are skipped, and whether the cursor is not what it was."""
    oldest = max(0, size - max_bytes)
    if not isinstance(cursor, int):
        return oldest, oldest > 0, False
    if cursor > size:
        return oldest, oldest > 0, True
    if cursor < oldest:
        return oldest, True, True
    return cursor, False, False


def _is_about(line: bytes, user: UserId) -> bool:
    try:
        return _owned.decode(line).user_id == user
    except msgspec.DecodeError:
        return False
