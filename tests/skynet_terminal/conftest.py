"""Terminals are tested on both loops: the one of production and that of Python."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import uvloop

_BOTH = ("test_pty", "test_terminals", "test_screens")


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in _BOTH:
        factories["uvloop"] = uvloop.new_event_loop
    return factories
