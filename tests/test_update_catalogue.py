"""``scripts/update_catalogue.py``: two lists of models become one catalogue."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "update_catalogue.py"
PI_FILES = {
    *("anthropic", "openai", "google", "amazon-bedrock", "google-vertex", "azure", "github-copilot", "xai", "mistral"),
    *("deepseek", "moonshotai", "zai", "minimax", "openrouter", "vercel-ai-gateway", "groq", "cerebras", "together"),
    *("fireworks", "huggingface", "nvidia", "baseten"),
}


def litellm(provider: str, **facts: Any) -> dict[str, Any]:
    return {"litellm_provider": provider, "mode": "chat", "max_input_tokens": 200_000, **facts}


def pi(model: str, **facts: Any) -> dict[str, Any]:
    cost = {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}
    plain = {"type": "chat", "name": model.upper(), "contextWindow": 200_000, "maxTokens": 64_000, "reasoning": True}
    return {"id": model, **plain, "input": ["text"], "cost": cost, **facts}


def catalogue(folder: Path, litellm_models: dict[str, Any], **pi_models: dict[str, Any]) -> dict[str, Any]:
    """What the script makes of these lists."""
    (folder / "litellm.json").write_text(json.dumps(litellm_models))
    for name in PI_FILES:
        models = pi_models.get(name.replace("-", "_"), {})
        (folder / f"{name}.json").write_text(json.dumps({"anthropic-messages": models}))
    target = folder / "models.json"
    flags = ["--litellm", folder / "litellm.json", "--pi", folder, "--date", "2026-11-21", "--target", target]
    subprocess.run([sys.executable, SCRIPT, *map(str, flags)], check=True, timeout=60)
    lines = target.read_text().splitlines()
    assert all(line.count('":{') <= 1 for line in lines), "one model a line"
    made: dict[str, Any] = json.loads(target.read_text())
    assert made["date"] == "2026-11-21" and len(made["sources"]) == 3
    providers: dict[str, Any] = made["providers"]
    return providers


PRICE = {"input_cost_per_token": 3e-06, "output_cost_per_token": 15e-06}


def test_where_both_know_a_model_they_have_to_agree_on_its_price(tmp_path: Path) -> None:
    theirs = {
        "claude-a": litellm("anthropic", **PRICE, supports_reasoning=True, supports_vision=True),
        "claude-b": litellm("anthropic", input_cost_per_token=4e-06, output_cost_per_token=15e-06),
    }
    both = {name: pi(name, input=["text", "image"]) for name in ("claude-a", "claude-b")}
    models = catalogue(tmp_path, theirs, anthropic=both)["anthropic"]
    assert models["claude-a"] == {
        "name": "CLAUDE-A",
        "window": 200_000,
        "output": 64_000,
        "reasoning": True,
        "image": True,
        "price": [3_000_000, 15_000_000, 300_000, 3_750_000],
    }
    assert "price" not in models["claude-b"], "an unknown cost is better than a wrong one"


def test_what_is_no_chat_or_gone_is_left_out(tmp_path: Path) -> None:
    theirs = {
        "gpt-x": litellm("openai", **PRICE),
        "gpt-x-audio": litellm("openai", **PRICE),
        "text-embedding-x": litellm("openai", mode="embedding"),
        "gpt-old": litellm("openai", deprecation_date="2026-11-21"),
        "xai/grok-x": litellm("xai", **PRICE),
    }
    made = catalogue(tmp_path, theirs)
    assert list(made["openai"]) == ["gpt-x"]
    assert list(made["xai"]) == ["grok-x"], "without the prefix of the list"


def test_long_prompts_cost_more_and_nothing_is_free_but_what_says_so(tmp_path: Path) -> None:
    long = {"input_cost_per_token_above_200k_tokens": 6e-06, "output_cost_per_token_above_200k_tokens": 22e-06}
    theirs = {"gemini/gemini-x": litellm("gemini", **PRICE, **long)}
    free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    routed = {name: pi(name, cost=free) for name in ("maker/m", "maker/m:free")}
    made = catalogue(tmp_path, theirs, openrouter=routed)
    assert made["gemini"]["gemini-x"]["long"] == [[200_000, 6_000_000, 22_000_000, None, None]]
    assert "price" not in made["openrouter"]["maker/m"]
    assert made["openrouter"]["maker/m:free"]["price"] == [0, 0, None, None]


def test_what_neither_list_has_is_corrected_by_hand(tmp_path: Path) -> None:
    made = catalogue(tmp_path, {})
    assert made["venice"]["kimi-k3"]["levels"] == ["off", "low", "high"]
    assert made["perplexity"]["sonar"] == {"tools": False}
