"""What a hook or a filter took out of a message stays out of every later prompt; the transcript keeps it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skynet.hooks import BeforeMessage, Block
from tests.skynet.gateway.stage import Stage, open_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path) as stage:
        yield stage


def prompts(stage: Stage) -> str:
    return str([seen.body for seen in stage.models.requests])


def without_word(event: BeforeMessage) -> Any:
    if "quagga" in event.text:
        return replace(event, text=event.text.replace("quagga", "horse"))
    return Block("not here") if "okapi" in event.text else None


async def test_a_rewritten_message_stays_rewritten(stage: Stage) -> None:
    """SK-144"""
    stage.hooks.register(BeforeMessage, without_word)
    assert (await stage.end("my quagga is ill")).status == "ok"
    assert (await stage.end("what did I say")).status == "ok"
    assert "my horse is ill" in prompts(stage)
    assert "quagga" not in prompts(stage)
    assert (await stage.said())[0] == "my quagga is ill"


async def test_a_stopped_message_reaches_no_model_later(stage: Stage) -> None:
    """SK-140: the reason is the answer."""
    stage.hooks.register(BeforeMessage, without_word)
    result = await stage.end("my okapi is ill")
    assert (result.status, result.text) == ("ok", "not here")
    assert not stage.models.requests
    assert (await stage.end("and now")).status == "ok"
    assert "okapi" not in prompts(stage)
    assert "not here" not in prompts(stage)
    assert (await stage.said())[:2] == ["my okapi is ill", "not here"]


async def test_images_stay_with_a_rewritten_message(stage: Stage) -> None:
    from skynet_agent.messages import ImageBlock, TextBlock

    stage.hooks.register(BeforeMessage, without_word)
    content = (TextBlock("see my quagga"), ImageBlock(mime_type="image/png", data="aGk="))
    assert (await stage.end("", content=content)).status == "ok"
    assert (await stage.end("go on")).status == "ok"
    assert "see my horse" in prompts(stage)
    assert "quagga" not in prompts(stage)
