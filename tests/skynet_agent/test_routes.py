"""What the names of models mean."""

from collections.abc import Mapping

import pytest

from skynet_agent.catalogue import listed
from skynet_agent.errors import UnknownModel
from skynet_agent.providers import OFFLINE, ModelInfo, Price, ProviderRow
from skynet_agent.registry import REGISTRY
from skynet_agent.routes import Routes


def row(name: str, *models: str | ModelInfo, **fields: object) -> ProviderRow:
    infos = tuple(ModelInfo(id=model) if isinstance(model, str) else model for model in models)
    return ProviderRow(name=name, models=infos, **fields)  # type: ignore[arg-type]


def targets(routes: Routes, name: str, **tokens: int) -> list[str]:
    """Who would be asked, in order."""
    return [target.name for target in routes.route(name, **tokens).targets]


ROWS = (
    row("low", "m-low", "shared", priority=-1),
    row("a", "m-a", "shared"),
    row("high", "m-high", "shared", "org/shared", priority=10),
    row("b", "org/shared"),
    row("open", "m-open", unlisted_models=True),
    row("bare"),
)
NAMES: Mapping[str, object] = {
    "aliases": {
        "fast": "a/m-a",
        "faster": "fast",
        "loop": "pool",
        "smart": "pool",
        "shared-alias": "shared",
        "ghost": "x/y",
    },
    "pools": {
        "pool": ["low", "b/org/shared", "a/shared", "gone/m"],
        "with-offline": ["a/m-a", "offline"],
        "nested": ["fast", "pool"],
        "empty": [],
        "ghosts": ["x/y"],
        "circle": ["circle2"],
        "circle2": ["circle"],
    },
}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("", ["high/m-high", "a/m-a", "b/org/shared", "open/m-open", "low/m-low"]),
        ("a", ["a/m-a"]),
        ("a/m-a", ["a/m-a"]),
        ("a/shared", ["a/shared", "high/shared", "low/shared"]),
        ("shared", ["high/shared", "a/shared", "low/shared"]),
        ("org/shared", ["high/org/shared", "b/org/shared"]),
        ("b/org/shared", ["b/org/shared", "high/org/shared"]),
        ("open/any/thing", ["open/any/thing"]),
        ("open/shared", ["open/shared", "high/shared", "a/shared", "low/shared"]),
        ("bare/anything", ["bare/anything"]),
        ("fast", ["a/m-a"]),
        ("faster", ["a/m-a"]),
        ("shared-alias", ["high/shared", "a/shared", "low/shared"]),
        ("pool", ["low/m-low", "b/org/shared", "a/shared"]),
        ("smart", ["low/m-low", "b/org/shared", "a/shared"]),
        ("nested", ["a/m-a", "low/m-low", "b/org/shared", "a/shared"]),
        ("with-offline", ["a/m-a", "offline/assistant"]),
        ("offline", ["offline/assistant"]),
        ("offline/assistant", ["offline/assistant"]),
    ],
)
def test_names(name: str, asked: list[str]) -> None:
    """SQ-030, BA-067."""
    routes = Routes(ROWS, **NAMES)  # type: ignore[arg-type]
    assert targets(routes, name) == asked
    assert routes.route(name).targets[0].resolved().name == asked[0]


@pytest.mark.parametrize(
    "name", ["nobody", "a/nothing", "a/", "/m-a", "bare", "x/y", "ghost", "ghosts", "empty", "circle"]
)
def test_unknown_names_say_what_exists(name: str) -> None:
    routes = Routes(ROWS, **NAMES)  # type: ignore[arg-type]
    with pytest.raises(UnknownModel) as caught:
        routes.route(name)
    assert {"a/m-a", "pool", "fast", "high/org/shared"} <= set(caught.value.known)
    assert "available: pool," in str(caught.value)


@pytest.mark.parametrize(
    ("default", "asked"),
    [
        (
            "a/shared",
            [
                "a/shared",
                "high/shared",
                "low/shared",
                "high/m-high",
                "a/m-a",
                "b/org/shared",
                "open/m-open",
                "low/m-low",
            ],
        ),
        ("low", ["low/m-low", "high/m-high", "a/m-a", "b/org/shared", "open/m-open"]),
        ("pool", ["low/m-low", "b/org/shared", "a/shared"]),
        ("offline", ["offline/assistant", "high/m-high", "a/m-a", "b/org/shared", "open/m-open", "low/m-low"]),
    ],
)
def test_the_default_falls_back_to_first_models(default: str, asked: list[str]) -> None:
    assert targets(Routes(ROWS, default_model=default, **NAMES), "") == asked  # type: ignore[arg-type]


def test_offline_serves_only_without_providers() -> None:
    assert targets(Routes([]), "") == ["offline/assistant"]
    assert targets(Routes([], default_model="openai/gpt"), "") == ["offline/assistant"]
    assert targets(Routes([row("a", "m"), OFFLINE]), "") == ["a/m"]
    with pytest.raises(UnknownModel, match="available: offline/assistant"):
        Routes([]).route("openai/gpt")
    with pytest.raises(UnknownModel, match="no provider lists a model"):
        Routes([row("bare")]).route("")


def test_a_model_s_own_name_may_have_slashes() -> None:
    """BA-067: what stands before the first one is the provider."""
    routes = Routes(
        [known.row for known in REGISTRY if known.name in ("openrouter", "anthropic")],
        aliases={"short": "openrouter/a/b"},
        pools={"house": ["openrouter/anthropic/claude-opus-5-5", "short"]},
    )
    for name, asked in (
        ("openrouter/a/b", ["openrouter/a/b"]),
        ("openrouter/a/b/c:free", ["openrouter/a/b/c:free"]),
        ("openrouter/anthropic/claude-opus-5-5", ["openrouter/anthropic/claude-opus-5-5"]),
        ("short", ["openrouter/a/b"]),
        ("house", ["openrouter/anthropic/claude-opus-5-5", "openrouter/a/b"]),
    ):
        assert targets(routes, name) == asked
    target = routes.route("openrouter/a/b").targets[0]
    assert (target.row.name, target.info.id) == ("openrouter", "a/b")


def test_models_and_default() -> None:
    routes = Routes(ROWS, default_model="a/shared")
    listed = [model.name for model in routes.models()]
    assert listed[:4] == ["high/m-high", "high/shared", "high/org/shared", "a/m-a"]
    assert (routes.default().provider, routes.default().model, routes.default().context_window) == ("a", "shared", None)
    assert [model.name for model in Routes([]).models()] == ["offline/assistant"]
    assert Routes([]).default().name == "offline/assistant"
    ghost = Routes(ROWS, default_model="gone/m").default()
    assert (ghost.provider, ghost.model, ghost.api) == ("gone", "m", "")


def test_problems_name_what_leads_nowhere() -> None:
    problems = Routes(ROWS, default_model="gone/m", **NAMES).problems()  # type: ignore[arg-type]
    assert [problem.split(": unknown")[0] for problem in problems] == [
        "the default model",
        "alias 'ghost'",
        "pool 'pool'",
        "pool 'empty'",
        "pool 'ghosts'",
        "pool 'circle'",
        "pool 'circle2'",
    ]
    assert Routes([], default_model="openai/gpt").problems() == []


def test_two_providers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Routes([row("a"), row("a")])


def test_the_default_can_be_changed() -> None:
    routes = Routes(ROWS, default_model="a/shared", **NAMES)  # type: ignore[arg-type]
    assert routes.set_default("pool") == "a/shared"
    assert routes.default().name == "low/m-low"
    with pytest.raises(UnknownModel, match="unknown model 'gone/m'"):
        routes.set_default("gone/m")
    assert routes.set_default("") == "pool"
    assert routes.default().name == "high/m-high"
    assert routes.set_default("b") == ""


def test_a_providers_own_model() -> None:
    routes = Routes(ROWS)
    assert routes.target("a").name == "a/m-a"
    assert routes.target("high", "org/shared").name == "high/org/shared"
    assert routes.target("bare", "any/thing").name == "bare/any/thing"
    assert routes.target("offline").name == "offline/assistant"
    for provider, model, words in (
        ("bare", "", "unknown model 'bare': it lists no model, so one has to be named; "),
        ("nobody", "", "unknown model 'nobody'; "),
        ("a", "m-b", "unknown model 'a/m-b'; "),
    ):
        with pytest.raises(UnknownModel, match=words):
            routes.target(provider, model)


def test_a_model_that_is_not_listed_is_as_the_catalogue_says() -> None:
    known = listed("anthropic")[0]
    routes = Routes([row("mirror", "own", catalogue="anthropic", unlisted_models=True), row("house", local=True)])
    found = routes.target("mirror", known).info
    assert (found.id, found.price) == (known, None)
    assert found.context_window is not None
    assert routes.target("mirror", "nobody-knows").info == ModelInfo(id="nobody-knows")
    assert routes.target("house", "any").cost(1, 1) == 0


# The cheapest (BA-073). Prices are micro-dollars per million tokens, of input and output.


def offer(input_price: int | None = None, output_price: int = 0, model: str = "shared") -> ModelInfo:
    return ModelInfo(id=model, price=None if input_price is None else Price(input=input_price, output=output_price))


SELLERS = (
    row("unpriced", offer(), "own", priority=9),
    row("talks", offer(1_000_000, 20_000_000), priority=8),
    row("reads", offer(5_000_000, 5_000_000), offer(1, 1, "rare"), priority=7),
    row("twin", offer(5_000_000, 5_000_000), offer(9, 9, "rare"), priority=6),
    row("house", offer(), local=True),
)
SHOPS: Mapping[str, object] = {
    "aliases": {"any": "shared", "pinned": "talks/shared"},
    "pools": {"pool": ["talks/shared", "reads/shared", "house/shared"], "of-ids": ["shared", "rare"]},
}


@pytest.mark.parametrize(
    ("name", "tokens", "asked"),
    [
        ("shared", (10_000, 100), ["house", "talks", "reads", "twin", "unpriced"]),
        ("shared", (100, 10_000), ["house", "reads", "twin", "talks", "unpriced"]),
        ("any", (100, 10_000), ["house", "reads", "twin", "talks", "unpriced"]),
        ("rare", (1, 1), ["reads", "twin"]),
        ("pinned", (1, 1), ["talks", "unpriced", "reads", "twin", "house"]),
        ("unpriced/shared", (1, 1), ["unpriced", "talks", "reads", "twin", "house"]),
        ("unpriced", (1, 1), ["unpriced"]),
        ("pool", (1, 1), ["talks", "reads", "house"]),
        ("of-ids", (1, 1), ["unpriced", "reads"]),
    ],
)
def test_the_cheapest_offer_comes_first(name: str, tokens: tuple[int, int], asked: list[str]) -> None:
    """BA-073."""
    routes = Routes(SELLERS, cheapest=True, **SHOPS)  # type: ignore[arg-type]
    weights = dict(zip(("input_tokens", "output_tokens"), tokens, strict=True))
    assert [target.partition("/")[0] for target in targets(routes, name, **weights)] == asked


def test_the_cheapest_offer_of_the_default() -> None:
    routes = Routes(SELLERS, default_model="any", cheapest=True, **SHOPS)  # type: ignore[arg-type]
    assert targets(routes, "", input_tokens=10_000, output_tokens=100) == [
        *("house/shared", "talks/shared", "reads/shared", "twin/shared", "unpriced/shared")
    ]
    assert routes.default().name == "house/shared"
    # without a name nothing was asked for, so nothing is alike
    assert targets(Routes(SELLERS, cheapest=True), "")[0] == "unpriced/shared"


def test_a_long_prompt_may_make_the_other_one_cheaper() -> None:
    long_prompt = Price(input=9_000_000, output=0)
    stepped = ModelInfo(
        id="m", price=Price(input=1_000_000, output=0, long_prompt_tokens=1000, long_prompt=long_prompt)
    )
    routes = Routes([row("flat", offer(2_000_000, 0, "m")), row("stepped", stepped)], cheapest=True)
    assert targets(routes, "m", input_tokens=1000)[0] == "stepped/m"
    assert targets(routes, "m", input_tokens=1001)[0] == "flat/m"


def test_prices_do_not_count_unless_they_are_to() -> None:
    assert targets(Routes(SELLERS), "shared")[0] == "unpriced/shared"
