"""Which models answer and how their providers do."""

import pytest

from skynet_agent.errors import ProviderError
from skynet_agent.messages import TextBlock, UserMessage
from skynet_agent.registry import KNOWN_PROVIDERS
from skynet_agent.requests import ModelRequest
from tests.skynet.methods.world import RefusedError, World


async def test_the_status_tells_the_model_and_every_provider(world: World) -> None:
    """SK-048."""
    status = await world.call(world.admin, "agent.status")
    assert (status["agentId"], status["name"], status["model"], status["modelName"]) == (
        "main",
        "Ada",
        "mock/mock-1",
        "",
    )
    assert (status["prompt"], status["activeRuns"]) == ("built-in prompt", 0)
    mock, other = status["providers"]
    assert (mock["name"], mock["priority"], mock["healthy"], mock["circuit"]) == ("mock", 2, True, "closed")
    assert [model["id"] for model in mock["models"]] == ["mock-1", "mock-2"]
    assert mock["models"][1] == {
        "id": "mock-2",
        "name": "Mock Two",
        "contextWindow": 32_000,
        "reasoning": True,
        "tools": True,
        "input": ["text", "image"],
    }
    assert other["name"] == "other"
    assert "lastError" not in mock


async def test_a_failing_provider_shows_as_unhealthy(world: World) -> None:
    """Nothing listens at the provider's address; why is for admins."""
    for _ in range(2):
        with pytest.raises(ProviderError):
            async for _ in world.router.stream(
                ModelRequest(messages=[UserMessage([TextBlock("hi")], 1)], model="mock/mock-1")
            ):
                pass
    mock = (await world.call(world.admin, "agent.status"))["providers"][0]
    assert not mock["healthy"]
    assert mock["failures"] > 1
    assert "no connection" in mock["lastError"]
    seen = (await world.call(world.user, "agent.status"))["providers"][0]
    assert not seen["healthy"]
    assert "lastError" not in seen


async def test_the_default_model_is_set_at_once(world: World) -> None:
    """SK-049."""
    assert await world.call(world.user, "agent.model") == {"name": "", "model": "mock/mock-1"}
    changed = await world.call(world.admin, "agent.model", {"model": "smart"})
    assert changed == {"name": "smart", "model": "other/plain", "previous": ""}
    again = await world.call(world.admin, "agent.model", {"model": "fast"})
    assert again == {"name": "fast", "model": "mock/mock-2", "previous": "smart"}
    assert world.router.resolve("").name == "mock/mock-2"
    assert (await world.call(world.user, "agent.model"))["name"] == "fast"


async def test_only_an_admin_sets_what_everybody_gets(world: World) -> None:
    for caller in (world.user, world.child):
        with pytest.raises(RefusedError, match=r"missing scope: operator\.admin") as caught:
            await world.call(caller, "agent.model", {"model": "fast"})
        assert caught.value.error["details"]["code"] == "FORBIDDEN"
    assert (await world.call(world.user, "agent.model"))["name"] == ""


async def test_an_unknown_model_changes_nothing(world: World) -> None:
    with pytest.raises(RefusedError, match=r"invalid model: unknown model 'gpt-99'; available: smart, fast"):
        await world.call(world.admin, "agent.model", {"model": "gpt-99"})
    assert (await world.call(world.user, "agent.model"))["model"] == "mock/mock-1"


async def test_the_list_has_names_for_models_and_on_demand_all_that_is_known(world: World) -> None:
    result = await world.call(world.user, "providers.list")
    assert [provider["name"] for provider in result["providers"]] == ["mock", "other"]
    assert (result["aliases"], result["pools"]) == ({"fast": "mock/mock-2"}, {"smart": ["other/plain", "mock/mock-1"]})
    assert "known" not in result
    known = (await world.call(world.user, "providers.list", {"all": True}))["known"]
    assert [provider["name"] for provider in known] == [row.name for row in KNOWN_PROVIDERS]
    openai = next(provider for provider in known if provider["name"] == "openai")
    assert openai["keyVariable"] == "OPENAI_API_KEY"


async def test_a_test_tells_what_is_wrong(world: World) -> None:
    (result,) = (await world.call(world.admin, "providers.test", {"provider": "other"}))["results"]
    assert (result["provider"], result["ok"]) == ("other", False)
    assert "other: no connection to http://127.0.0.1:9: Connection refused" in result["error"]
    everything = (await world.call(world.admin, "providers.test"))["results"]
    assert [each["provider"] for each in everything] == ["mock", "other"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"provider": "nobody"}, "unknown provider 'nobody'; configured: mock, other"),
        ({"model": "m"}, "model needs a provider"),
        ({"provider": ""}, "at /provider"),
    ],
)
async def test_wrong_params(world: World, params: dict[str, str], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        await world.call(world.admin, "providers.test", params)


async def test_a_test_is_for_admins(world: World) -> None:
    with pytest.raises(RefusedError, match=r"missing scope: operator\.admin"):
        await world.call(world.user, "providers.test")


async def test_a_model_that_the_provider_does_not_have(world: World) -> None:
    (result,) = (await world.call(world.admin, "providers.test", {"provider": "mock", "model": "x"}))["results"]
    assert not result["ok"]
    assert "unknown model 'mock/x'" in result["error"]


async def test_what_a_provider_offers_is_asked_of_itself(world: World) -> None:
    with pytest.raises(RefusedError, match="no connection") as caught:
        await world.call(world.admin, "providers.models", {"provider": "other"})
    assert (caught.value.error["code"], caught.value.error["retryable"]) == ("UNAVAILABLE", True)
    with pytest.raises(RefusedError, match="unknown provider"):
        await world.call(world.admin, "providers.models", {"provider": "nobody"})
    with pytest.raises(RefusedError, match=r"missing scope: operator\.admin"):
        await world.call(world.user, "providers.models", {"provider": "other"})
