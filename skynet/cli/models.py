"""``skynet models list``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import GatewayClient, open_client
from skynet.cli.errors import CliError
from skynet.cli.output import print_json, print_table
from skynet.cli.target import NO_OPTIONS, Options, find_target

ASK_TIMEOUT_S = 60.0


async def list_models(
    *,
    ask: Annotated[
        str, Parameter(help="Ask this provider what it offers, whatever is configured.", show_default=False)
    ] = "",
    options: Options = NO_OPTIONS,
) -> None:
    """List the models of the providers in use, with what is known of them; prices are dollars per million tokens."""
    async with open_client(find_target(options)) as client:
        status = await client.request("agent.status")
        result = await client.request("providers.list")
        if ask:
            found = await client.request("providers.models", {"provider": ask}, timeout_s=ASK_TIMEOUT_S)
            result = {"providers": [{"name": ask, **found}], "aliases": {}, "pools": {}}
    if options.json:
        facts = {"default": status["model"], "aliases": result["aliases"], "pools": result["pools"]}
        models = [{"provider": each["name"], **model} for each in result["providers"] for model in each["models"]]
        print_json({**facts, "models": models})
        return
    rows = [
        _row(provider["name"], model, status["model"])
        for provider in result["providers"]
        for model in provider["models"]
    ]
    rows += [(name, f"alias of {target}", "", "", "") for name, target in result["aliases"].items()]
    rows += [(name, f"pool: {', '.join(members)}", "", "", "") for name, members in result["pools"].items()]
    print_table(("model", "", "window", "can", "in / out / cached"), rows)


async def choose_model(client: GatewayClient, session: str, name: str) -> dict[str, Any]:
    """Let a conversation go on with another model; the gateway's answer.

    The gateway takes any ``provider/model``, as OpenClaw does. A provider that is not there would be found out by the
    next message, and by each after it.

    Raises:
        CliError: nothing has this name; the conversation keeps its model.
    """
    result = await client.request("providers.list")
    providers = {str(provider["name"]): provider["models"] for provider in result["providers"]}
    ids = {model["id"] for models in providers.values() for model in models}
    provider, slash, _ = name.strip().partition("/")
    if slash and provider not in providers and name.strip() not in ids:
        in_use = ", ".join(providers)
        message = f"unknown model {name!r}: there is no provider {provider!r} in use, only {in_use}"
        raise CliError(message, code="unknown_model", hint="see: skynet models list")
    answer: dict[str, Any] = await client.request("sessions.patch", {"key": session, "model": name})
    return answer


def _row(provider: str, model: dict[str, Any], default: str) -> tuple[str, str, str, str, str]:
    name = f"{provider}/{model['id']}"
    window = model.get("contextWindow")
    abilities = [word for word, has in (("think", model["reasoning"]), ("tools", model["tools"])) if has]
    abilities += ["see"] if "image" in model["input"] else []
    return (
        name,
        "default" if name == default else "",
        f"{window:,}" if window else "",
        ", ".join(abilities),
        _price(model),
    )


def _price(model: dict[str, Any]) -> str:
    price = model.get("price")
    if price is None:
        return "unknown"
    parts = [price["input"], price["output"], *([price["cacheRead"]] if "cacheRead" in price else [])]
    return "free" if not any(parts) else " / ".join(f"{part:g}" for part in parts)
