"""Shell hooks: a program that is given the event as JSON and may answer."""

from __future__ import annotations

from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import msgspec

from skynet.hooks.bus import Block
from skynet.hooks.events import Event, Gate
from skynet.hooks.files import trusted_program
from skynet.paths import Folder, shown
from skynet_terminal.processes import OUTPUT_BYTES, Ended, run_program

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONGEST_WORDS = 2000
"""What the log tells of what a program wrote to stderr."""


class ShellHookFailed(Exception):  # noqa: N818 - it has failed, and says how
    """A program ended with an error or did not answer as it has to."""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    block: str | msgspec.UnsetType = msgspec.UNSET
    modify: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} in an event")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder(_Answer)


class ShellHook:
    """A handler that is a program. It is looked at before each call: who could write it then could stop nothing.

    Args:
        folder: the hooks' folder.
        path: the program's, in it.
    """

    def __init__(self, folder: Folder, path: str) -> None:
        self._folder = folder
        self._path = path

    async def __call__(self, event: Event) -> Event | Block | None:
        """
        Raises:
            ShellHookFailed: its exit code is not 0, or its answer cannot be understood.
            HookRefused: it cannot be believed any more.
            OSError: it cannot be started.
        """
        program = trusted_program(self._folder, self._path)
        env = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": str(self._folder.path),
            "SKYNET_EVENT": event.NAME,
            "SKYNET_USER": event.user.id,
        }
        ended = await run_program(
            [str(program)], name=self._path, cwd=self._folder.path, env=env, stdin=event_json(event)
        )
        if ended.returncode != 0:
            said = shown(ended.stderr.text(), LONGEST_WORDS)
            how = f"exit code {ended.returncode}" if ended.returncode > 0 else f"signal {-ended.returncode}"
            raise ShellHookFailed(f"{how}: {said}" if said else how)
        return answer(event, ended) if isinstance(event, Gate) else None


def event_json(event: Event) -> bytes:
    """An event as programs are given it: its fields under their names, and its own name as ``event``."""
    values = {each.name: getattr(event, each.name) for each in fields(event)}
    return _encoder.encode({"event": event.NAME, **values})


def answer(event: Gate, ended: Ended) -> Gate | Block | None:
    """What a program says of an event: nothing, ``{"block": "reason"}`` or ``{"modify": {"text": "…"}}``.

    Raises:
        ShellHookFailed: it says something else.
    """
    said = ended.stdout.data.strip()
    if ended.stdout.size > OUTPUT_BYTES:
        raise ShellHookFailed(f"its answer is {ended.stdout.size} bytes, the limit is {OUTPUT_BYTES}")
    if not said:
        return None
    try:
        given = _decoder.decode(said)
    except (ValueError, RecursionError) as exc:
        raise ShellHookFailed(f"its answer is not what it may be: {exc}") from exc
    if given.block is not msgspec.UNSET:
        if given.modify is not msgspec.UNSET:
            raise ShellHookFailed("its answer has both block and modify")
        return Block(given.block)
    if given.modify is msgspec.UNSET:
        return None
    if unknown := given.modify.keys() - event.CHANGEABLE:
        allowed = ", ".join(event.CHANGEABLE)
        raise ShellHookFailed(f"modify has {', '.join(sorted(unknown))}; what it may have is {allowed}")
    return replace(event, **given.modify)
