"""Write ``skynet_agent/models.json`` anew from two public lists of models.

    python scripts/update_catalogue.py --litellm LITELLM.json --pi DIRECTORY [--date 2026-11-21] [--target FILE]

``--litellm`` is ``litellm/model_prices_and_context_window_backup.json`` of the litellm package (MIT), ``--pi`` the
directory ``dist/providers/data`` of the npm package @earendil-works/pi-ai (MIT). Both name the vendors' own pages as
their sources. Where both know a model they have to agree on its price, else the price is left out: an unknown cost is
better than a wrong one. A price of nothing is only believed of OpenRouter's ``:free`` models.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]

TARGET = Path(__file__).resolve().parent.parent / "skynet_agent" / "models.json"
SOURCES = (
    "https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json",
    "https://github.com/badlogic/pi-mono/tree/main/packages/ai",
    "https://github.com/anomalyco/models.dev",
)

# provider → (litellm's providers, the prefix of their ids, pi's file)
LISTS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "anthropic": (("anthropic",), "", "anthropic"),
    "openai": (("openai",), "", "openai"),
    "gemini": (("gemini",), "gemini/", "google"),
    "bedrock": (("bedrock_converse",), "", "amazon-bedrock"),
    "vertex": (("vertex_ai-language-models", "vertex_ai-anthropic_models"), "vertex_ai/", "google-vertex"),
    "azure": (("azure",), "azure/", "azure"),
    "copilot": (("github_copilot",), "github_copilot/", "github-copilot"),
    "xai": (("xai",), "xai/", "xai"),
    "mistral": (("mistral",), "mistral/", "mistral"),
    "deepseek": (("deepseek",), "deepseek/", "deepseek"),
    "moonshot": (("moonshot",), "moonshot/", "moonshotai"),
    "zai": (("zai",), "zai/", "zai"),
    "minimax": (("minimax",), "minimax/", "minimax"),
    "dashscope": (("dashscope",), "dashscope/", ""),
    "cohere": (("cohere_chat",), "", ""),
    "ai21": (("ai21",), "", ""),
    "perplexity": (("perplexity",), "perplexity/", ""),
    "openrouter": ((), "", "openrouter"),
    "vercel": ((), "", "vercel-ai-gateway"),
    "groq": (("groq",), "groq/", "groq"),
    "cerebras": (("cerebras",), "cerebras/", "cerebras"),
    "together": (("together_ai",), "together_ai/", "together"),
    "fireworks": ((), "", "fireworks"),
    "huggingface": ((), "", "huggingface"),
    "nvidia": ((), "", "nvidia"),
    "baseten": (("baseten",), "baseten/", "baseten"),
    "deepinfra": (("deepinfra",), "deepinfra/", ""),
    "novita": (("novita",), "novita/", ""),
    "nebius": (("nebius",), "nebius/", ""),
    "sambanova": (("sambanova",), "sambanova/", ""),
    "hyperbolic": (("hyperbolic",), "hyperbolic/", ""),
    "lambda": (("lambda_ai",), "lambda_ai/", ""),
    "scaleway": (("scaleway",), "scaleway/", ""),
    "siliconflow": ((), "", ""),
    "chutes": ((), "", ""),
    "venice": ((), "", ""),
    "ovhcloud": ((), "", ""),
    "qwen": ((), "", ""),
}
LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh")
NOT_FOR_CHATS = re.compile(
    r"audio|search|tts|lyria|robotics|computer-use|deep-research|guard|live|ocr|voxtral|medlm|omni|transcri|^ft:|image"
    r"|container|^together-ai-|experimental|-beta|-gv2|claude-(?:2|3|instant)|gpt-3|llama-2|llama-3-|codellama|mixtral|pplx|:batch$"
    r"|sonar-(?:small|medium)|gemini-(?:1|exp|2\.0)|qwen-?1|qwen2-|gemma-2"
)
DATED = re.compile(r"(?:-20[0-9]{6}|-20[0-9]{2}-[0-9]{2}-[0-9]{2}|-latest|@default|@20[0-9]{6}|-v[0-9](?::[0-9])?)+$")
MAKER = re.compile(r"(?:(?:us|eu|apac|au|jp|global)\.)?(?:anthropic|openai)\.")

# What the two lists lack or have wrong. Of a provider that is not in LISTS' sources: all there is.
CORRECTIONS: Mapping[str, Mapping[str, Json]] = {
    # docs.perplexity.ai/api-reference/sonar-post: the Sonar models search the web and take no tools.
    "perplexity": {f"sonar{kind}": {"tools": False} for kind in ("", "-pro", "-reasoning-pro")},
    # openrouter.ai/docs/features/model-routing: it picks a model itself, and bills what that one costs.
    "openrouter": {"openrouter/auto": {"price": None, "long": None}},
    # www.siliconflow.com/models
    "siliconflow": {
        "zai-org/GLM-5.3": {
            "name": "GLM 5.3",
            "window": 1_049_000,
            "output": 262_000,
            "reasoning": True,
            "field": "reasoning_effort",
            "levels": ["high"],
            "price": [1_400_000, 4_400_000, 260_000, None],
        },
        "zai-org/GLM-5.3-Flash": {
            "name": "GLM 5.3 Flash",
            "window": 1_049_000,
            "output": 262_000,
            "reasoning": True,
            "field": "reasoning_effort",
            "levels": ["high"],
            "price": [150_000, 500_000, 30_000, None],
        },
    },
    # llm.chutes.ai/v1/models; what thinks there is told so in its chat template, which has no field of its own
    "chutes": {
        "zai-org/GLM-5.2-TEE": {
            "name": "GLM 5.2",
            "window": 1_048_576,
            "output": 65_535,
            "reasoning": True,
            "field": "",
            "price": [1_250_000, 3_950_000, 125_000, None],
        },
        "deepseek-ai/DeepSeek-V4-Flash-0731-TEE": {
            "name": "DeepSeek V4 Flash",
            "window": 1_048_576,
            "output": 131_072,
            "reasoning": True,
            "field": "",
            "price": [140_000, 280_000, 70_000, None],
        },
    },
    # docs.venice.ai/models/overview
    "venice": {
        "kimi-k3": {
            "name": "Kimi K3",
            "window": 1_000_000,
            "output": 131_072,
            "reasoning": True,
            "levels": ["off", "low", "high"],
            "image": True,
            "price": [3_750_000, 18_750_000, 375_000, None],
        },
        "deepseek-v4-1-flash": {
            "name": "DeepSeek V4.1 Flash",
            "window": 1_000_000,
            "output": 131_072,
            "reasoning": True,
            "levels": ["off", "low", "high"],
            "price": [375_000, 1_500_000, 7_500, None],
        },
    },
    # www.ovhcloud.com/en/public-cloud/ai-endpoints/catalog; prices there are in euros
    "ovhcloud": {
        "Qwen3.8-27B": {"name": "Qwen3.8 27B", "window": 262_144, "reasoning": True, "field": ""},
        "Qwen3.5-397B-A17B": {"name": "Qwen3.5 397B A17B", "window": 262_144, "reasoning": True, "field": ""},
        "gpt-oss-120b": {
            "name": "gpt-oss-120b",
            "window": 131_072,
            "reasoning": True,
            "levels": ["low", "medium", "high"],
        },
        "Meta-Llama-3_3-70B-Instruct": {"name": "Llama 3.3 70B", "window": 131_072},
    },
    # github.com/QwenLM/qwen-code/blob/main/packages/core/src/core/tokenLimits.ts
    "qwen": {
        "coder-model": {"name": "Qwen Coder", "window": 1_000_000},
        "vision-model": {"name": "Qwen Vision", "window": 131_072, "image": True},
    },
    # ai.google.dev/gemini-api/docs/openai: none switches the thinking of 2.5 off, but for Pro
    "gemini": {
        f"gemini-2.5-flash{kind}": {"levels": ["off", "minimal", "low", "medium", "high"]} for kind in ("", "-lite")
    },
    # platform.claude.com/docs/en/about-claude/models: as every model that always thinks
    "anthropic": {"claude-fable-5-2": {"sampling": False}},
    # docs.z.ai/guides/overview/pricing: subscriptions only
    "zai": {"glm-5.2-highspeed": {"price": None}, "glm-5.3-highspeed": {"price": None}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litellm", type=Path, required=True)
    parser.add_argument("--pi", type=Path, required=True)
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.datetime.now(datetime.UTC).date())
    parser.add_argument("--target", type=Path, default=TARGET)
    arguments = parser.parse_args()
    litellm = json.loads(arguments.litellm.read_text())
    providers: dict[str, dict[str, Json]] = {}
    for name, (theirs, prefix, file) in LISTS.items():
        first = dict(from_litellm(name, litellm, theirs, prefix, arguments.date))
        second = dict(from_pi(name, json.loads((arguments.pi / f"{file}.json").read_text()))) if file else {}
        models = {model: merged(name, first.get(model), second.get(model)) for model in first | second}
        for model, facts in CORRECTIONS.get(name, {}).items():
            models[model] = models.get(model, {}) | facts
        providers[name] = {model: known(completed(model, models, providers)) for model in sorted(models)}
    arguments.target.write_text(written(str(arguments.date), providers))


def from_litellm(
    provider: str, models: Mapping[str, Json], theirs: tuple[str, ...], prefix: str, today: datetime.date
) -> Iterator[tuple[str, Json]]:
    """What litellm knows of the models that can be talked to and have not been retired."""
    for name, facts in models.items():
        model = name.removeprefix(prefix)
        chats = facts.get("mode") in ("chat", "responses") and not NOT_FOR_CHATS.search(model.lower())
        if facts.get("litellm_provider") not in theirs or not chats:
            continue
        if facts.get("deprecation_date", "9999") <= str(today) or facts.get("max_input_tokens") is None:
            continue
        if "/" in model and provider in ("bedrock", "azure", "vertex"):
            continue  # one of several regions or commitments
        if not name.startswith(prefix) and models.get(prefix + name, {}).get("litellm_provider") in theirs:
            continue  # an older spelling of the same
        if provider == "scaleway":
            model = model.rpartition("/")[2]
        if provider == "perplexity" and not model.startswith("sonar"):
            continue  # retired, or of another API of theirs
        yield model, litellm_facts(provider, facts)


def litellm_facts(provider: str, facts: Json) -> Json:
    window, output = facts["max_input_tokens"], facts.get("max_output_tokens")
    if provider in ("openai", "azure") and output and window + output in (400_000, 1_050_000):
        window += output  # theirs is what is left for the prompt
    reasons = bool(facts.get("supports_reasoning"))
    words = facts.get("reasoning_effort_levels")
    levels = [level for level in LEVELS if words and ("none" if level == "off" else level) in words]
    return {
        "window": int(window),
        "output": int(output) if output and output < window else None,
        "reasoning": reasons,
        "form": "effort" if facts.get("supports_adaptive_thinking") else None,
        "levels": levels if reasons else [],
        "sampling": facts.get("supports_sampling_params"),
        "tools": facts.get("supports_function_calling"),
        "image": bool(facts.get("supports_vision")),
        "price": price(*tier_price(facts.get("tiered_pricing", [facts])[0])),
        "long": litellm_long(facts),
    }


def tier_price(facts: Json) -> list[int | None]:
    """Input, output, cache read, cache write; nothing where thinking, which is not counted apart, costs more."""
    if facts.get("output_cost_per_reasoning_token", 0) not in (0, facts.get("output_cost_per_token")):
        return [None] * 4
    keys = ("input_cost_per_token", "output_cost_per_token")
    caches = ("cache_read_input_token_cost", "cache_creation_input_token_cost")
    return [*(million(facts.get(key)) for key in keys), *(million(facts.get(key)) or None for key in caches)]


def litellm_long(facts: Json) -> list[Any]:
    """What prompts cost that are longer than so many tokens."""
    if steps := facts.get("tiered_pricing"):
        return [[int(step["range"][0]), *tier_price(step)] for step in steps[1:]]
    tiers = []
    for thousands in (32, 100, 128, 200, 256, 272, 512):
        above = f"_above_{thousands}k_tokens"
        if f"input_cost_per_token{above}" in facts and "output_cost_per_token" in facts:
            beyond = {key.removesuffix(above): facts[key] for key in facts if key.endswith(above)}
            tiers.append([thousands * 1000, *tier_price(facts | beyond)])
    return tiers


def from_pi(provider: str, apis: Mapping[str, Mapping[str, Json]]) -> Iterator[tuple[str, Json]]:
    """What pi knows. It leaves out what cannot call tools."""
    for api, models in apis.items():
        for facts in models.values():
            if facts.get("type") == "chat" and not NOT_FOR_CHATS.search(facts["id"].lower()):
                yield facts["id"], pi_facts(provider, api, facts)


def pi_facts(provider: str, api: str, facts: Json) -> Json:
    compat, words = facts.get("compat", {}), facts.get("thinkingLevelMap")
    cost, adaptive = facts["cost"], bool(compat.get("forceAdaptiveThinking"))
    window, output = facts["contextWindow"], facts["maxTokens"]
    is_free = facts["id"].endswith(":free")
    dollars = [cost["input"], cost["output"], cost["cacheRead"] or None, cost["cacheWrite"] or None]
    fields = ("input", "output", "cacheRead", "cacheWrite")
    return {
        "name": facts["name"].removesuffix(" (latest)"),
        "window": window,
        "output": output if output < window else None,
        "reasoning": facts["reasoning"],
        "form": "effort"
        if compat.get("forceAdaptiveThinking") or (provider in ("gemini", "vertex") and words)
        else None,
        "levels": pi_levels(words, adaptive=adaptive) if facts["reasoning"] else [],
        "field": pi_field(api, compat) if facts["reasoning"] else None,
        "sampling": False if compat.get("supportsTemperature") is False else None,
        "image": "image" in facts["input"],
        "price": [0, 0, None, None] if is_free else price(*(None if d is None else round(d * 1e6) for d in dollars)),
        "long": [
            [tier["inputTokensAbove"], *(round(tier[field] * 1e6) if tier[field] else None for field in fields)]
            for tier in cost.get("tiers", ())
        ],
    }


def pi_levels(words: Mapping[str, str | None] | None, *, adaptive: bool) -> list[str]:
    """A level that is not in the map is taken as it is, but for ``xhigh``; one that is None is not taken."""
    if words is None:
        return []
    levels = [level for level in LEVELS if words.get(level, None if level == "xhigh" else level) is not None]
    # Anthropic's words begin with low; what is less is no thinking
    return [level for level in levels if not (adaptive and level == "minimal")]


def pi_field(api: str, compat: Mapping[str, Any]) -> str | None:
    """Where a chat completion is told how much to think, in the words of ``ThinkingField``."""
    if api != "openai-completions":
        return None
    by_effort = compat.get("supportsReasoningEffort", True)
    match compat.get("thinkingFormat"):
        case "deepseek" | "zai":
            return "thinking_effort" if by_effort else "thinking"
        case "together":
            return "reasoning_effort" if by_effort else "reasoning_enabled"
        case "openrouter":
            return "reasoning"
        case "openai":
            return "reasoning_effort"
        case None:
            return None if by_effort else ""
        case _:
            return ""


def million(dollars_a_token: float | None) -> int | None:
    """Micro-dollars per million tokens."""
    return None if dollars_a_token is None else round(dollars_a_token * 1e12)


def price(reading: int | None, writing: int | None, *cached: int | None) -> list[int | None] | None:
    if reading is None or writing is None or reading < 0 or writing < 0 or not (reading or writing):
        return None
    return [reading, writing, *cached]


def merged(provider: str, first: Json | None, second: Json | None) -> Json:
    """Litellm's facts, and pi's over them where it says something."""
    if first is None or second is None:
        return dict(first or second or {})
    told = {key: value for key, value in second.items() if value not in (None, [])}
    widest = provider in ("openai", "azure")  # of them pi lists the part that is not charged as a long prompt
    both = first | told | {"window": (max if widest else min)(first["window"], second["window"])}
    both["price"] = agreed(first["price"], second["price"])
    both["long"] = first["long"] or second["long"]
    if both["price"] is None or (first["long"] and second["long"] and not alike(first["long"], second["long"])):
        both |= {"price": None, "long": []}
    return both


def agreed(first: list[int | None] | None, second: list[int | None] | None) -> list[int | None] | None:
    """A price, if the two do not contradict each other; of a cache, what either knows."""
    if first is None or second is None:
        return first or second
    if first[:2] != second[:2]:
        return None
    return [theirs if ours is None else ours for ours, theirs in zip(second, first, strict=True)]


def alike(first: list[list[int]], second: list[list[int]]) -> bool:
    return [tier[:3] for tier in first] == [tier[:3] for tier in second]


def completed(model: str, models: Mapping[str, Json], done: Mapping[str, Mapping[str, Json]]) -> Json:
    """What a model thinks like and is called, from the same one without its date, and from its maker's own list."""
    facts = models[model]
    bare = DATED.sub("", MAKER.sub("", model))
    if claude := done.get("anthropic", {}).get(bare.replace(".", "-")):  # it thinks alike wherever it runs
        facts = facts | {key: claude.get(key) for key in ("levels", "form", "sampling")}
    makers = (claude or {}, done.get("openai", {}).get(bare, {}), done.get("gemini", {}).get(bare, {}))
    for kin in (models.get(DATED.sub("", model), {}), *makers):
        if facts.get("reasoning") and kin.get("reasoning") and not facts.get("levels"):
            facts = facts | {key: kin[key] for key in ("levels", "form", "sampling") if key in kin}
        if not facts.get("name") and kin.get("name"):
            facts = facts | {"name": kin["name"]}
        if not facts.get("long") and kin.get("long") and facts.get("price") == kin.get("price"):
            facts = facts | {"long": kin["long"]}
    return facts


def known(facts: Json) -> Json:
    """Without what a model is taken to be when nothing is said."""
    usual = {
        "tools": True,
        "sampling": True,
        "reasoning": False,
        "image": False,
        "form": "budget",
        "levels": [],
        "name": "",
        "long": [],
    }
    if not facts.get("reasoning"):
        facts = {key: value for key, value in facts.items() if key not in ("levels", "form", "field")}
    kept = {key: value for key, value in facts.items() if value is not None and value != usual.get(key)}
    if kept.get("output", 0) >= kept.get("window", 1 << 60):
        del kept["output"]  # no limit of its own
    if "price" not in kept:
        kept.pop("long", None)
    return kept


def written(date: str, providers: Mapping[str, Mapping[str, Json]]) -> str:
    """JSON with one model a line, so that a change of one is a change of one line."""
    blocks = []
    for name, models in providers.items():
        lines = [f"{json.dumps(model)}: {json.dumps(facts, separators=(',', ':'))}" for model, facts in models.items()]
        blocks.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    head = f'"date": {json.dumps(date)},\n"sources": {json.dumps(SOURCES)},\n"providers": {{\n'
    return "{\n" + head + ",\n".join(blocks) + "\n}\n}\n"


if __name__ == "__main__":
    main()
