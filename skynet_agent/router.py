"""Which provider answers a request, and which one is asked next when it fails.

What a name means is in ``routes``, when the next one is asked in ``failover``. Here are the calls. What is remembered
from one request to the next is how each provider has been, and that only until the gateway stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial

from skynet_agent import offline
from skynet_agent.apis import WIRE_APIS
from skynet_agent.auth import auth_of
from skynet_agent.auth.tokens import TokenStore
from skynet_agent.breaker import COOL_DOWN_S, FAILURES, Breaker
from skynet_agent.cost import with_cost
from skynet_agent.draft import Draft
from skynet_agent.endpoint import Endpoint
from skynet_agent.errors import ProviderError, StreamCut, ToolsUnsupported, UnknownModel
from skynet_agent.events import Attempt, Ended, Finished, ModelEvent, Part, Started
from skynet_agent.failover import RETRIES, Failover
from skynet_agent.http_client import HttpClient
from skynet_agent.messages import TextBlock, UserMessage
from skynet_agent.providers import OFFLINE, ModelInfo, ProviderRow
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_agent.routes import ResolvedModel, Route, Routes, Target
from skynet_agent.tokens import estimated_usage, request_tokens
from skynet_agent.upstream import CircuitOpen, ProviderHealth, Upstream

log = logging.getLogger(__name__)

ANSWER_TOKENS = 1000
"""Of an answer whose length nobody limits, where prices are compared."""
PING_TOKENS = 16
"""The least that every provider takes for a limit."""


def local_now() -> datetime:
    """The time of now in the machine's zone."""
    return datetime.now().astimezone()


class Router:
    """The models of this gateway.

    Args:
        providers: rows; a name may occur once.
        default_model: any name; empty for the provider of the highest priority.
        aliases: name → name.
        pools: name → names, in order.
        cheapest: of providers that list the same id the cheapest is asked first, whatever the priorities.
        retries: how often a model is asked again before the next one is.
        breaker_failures: failures in a row after which a provider is passed over.
        breaker_cooldown_s: seconds for which it is, unless it asked for more.
        clock: for time stamps, ``Retry-After`` dates and the offline provider.
        monotonic: seconds that only grow, for circuits and queues.
        sleep: waits for so many seconds; has to take as long by ``monotonic``.
        tokens: of the providers that people log in to; without, those have none.
    """

    def __init__(
        self,
        providers: Sequence[ProviderRow],
        *,
        default_model: str = "",
        aliases: Mapping[str, str] | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        cheapest: bool = False,
        retries: int = RETRIES,
        breaker_failures: int = FAILURES,
        breaker_cooldown_s: float = COOL_DOWN_S,
        clock: Callable[[], datetime] = local_now,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tokens: TokenStore | None = None,
    ) -> None:
        self._routes = Routes(providers, default_model=default_model, aliases=aliases, pools=pools, cheapest=cheapest)
        self._retries = retries
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._http = HttpClient()
        self._upstreams = {
            row.name: Upstream(
                Endpoint(row, auth_of(row, self._http, clock, tokens), self._http, clock),
                Breaker(monotonic, failures=breaker_failures, cool_down_s=breaker_cooldown_s),
                clock=clock,
                monotonic=monotonic,
                sleep=sleep,
            )
            for row in (OFFLINE, *self._routes.rows)
        }
        # the offline assistant says another thing where there are models that only do not answer
        self._apis = {**WIRE_APIS, OFFLINE.api: partial(offline.stream, configured=bool(self._routes.rows))}
        for row in self._routes.rows:
            if row.api not in self._apis:
                known = ", ".join(sorted(self._apis))
                raise ValueError(f"provider {row.name!r}: unknown api {row.api!r}; allowed: {known}")

    async def warm_up(self) -> None:
        """Load in a thread what the first request needs, if there is a provider to ask."""
        if any(row.api != OFFLINE.api for row in self._routes.rows):
            await self._http.warm_up()

    async def aclose(self) -> None:
        """Close the connections to all providers."""
        await self._http.aclose()

    def draft(self) -> Draft:
        """An empty message to pass to ``stream`` or to a ``Turn``."""
        return Draft(self._clock)

    # Names

    def models(self) -> list[ResolvedModel]:
        """Every model that providers list, by priority; the offline one if there is no provider."""
        return self._routes.models()

    def resolve(self, name: str) -> ResolvedModel:
        """The model that is asked first for ``name``.

        Raises:
            UnknownModel: nothing has this name.
        """
        return self._routes.route(name).targets[0].resolved()

    def default(self) -> ResolvedModel:
        """The model that is asked first when a request names none; as configured even if nothing has that name."""
        return self._routes.default()

    @property
    def default_name(self) -> str:
        """The default as it was given: a pool, an alias, a model; empty for the first provider's first model."""
        return self._routes.default_name

    def set_default(self, name: str) -> str:
        """Let ``name`` be the default from the next request on, empty for none (SK-049). Returns the one before.

        Raises:
            UnknownModel: nothing has this name; the default stays.
        """
        previous = self._routes.set_default(name)
        log.info("the default model is %r now, it was %r", name, previous)
        return previous

    def problems(self) -> list[str]:
        """Configured names that lead nowhere, in words, for the log at start. Requests for them raise UnknownModel."""
        return self._routes.problems()

    def offers_tools(self, name: str) -> bool:
        """Whether the model that is asked first for ``name`` can use tools; False if nothing has it.

        One that cannot answers itself, without: only who asks for tools has another one answer in its place.
        """
        try:
            return self._routes.route(name).targets[0].info.tools
        except UnknownModel:
            return False

    # Providers

    def health(self) -> list[ProviderHealth]:
        """How each provider is, by priority; the offline one if there is no other."""
        return [self._upstreams[row.name].health() for row in self._routes.rows or [OFFLINE]]

    async def discover(self, provider: str) -> tuple[ModelInfo, ...]:
        """The models that a provider says it offers; those of its row where the vendor tells nobody.

        Raises:
            KeyError: no such provider.
            ProviderError: it does not answer, or makes no sense.
        """
        from skynet_agent.discovery import discover  # nobody asks at the start

        return await discover(self._upstreams[provider].endpoint)

    async def ping(self, provider: str, model: str = "") -> float:
        """Ask a provider for a few tokens, now and once, whatever its circuit and its queue say.

        Seconds to the first of them. ``model`` is an id; empty for the provider's first.

        Raises:
            UnknownModel: no such provider, or no such model of it.
            ProviderError: it does not answer.
        """
        target = self._routes.target(provider, model)
        request = ModelRequest(
            messages=[UserMessage([TextBlock("Say ok.")], 0)], options=ModelOptions(max_tokens=PING_TOKENS)
        )
        first_s, begun_s = None, self._monotonic()
        async with aclosing(self._ask(target, request)) as parts:
            async for _ in parts:
                first_s = self._monotonic() - begun_s if first_s is None else first_s
        assert first_s is not None, "an answer has an end"
        return first_s

    # Calls

    async def stream(self, request: ModelRequest, *, draft: Draft | None = None) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; closing the generator closes the stream of the provider that answers.

        What has come is in ``draft`` at any time, and how much was used once the generator is closed: of an answer that
        had begun and did not come to its end that is estimated (BA-082). The error that is raised tells in ``tried``
        who was asked.

        Raises:
            UnknownModel: nothing has the request's name.
            ToolsUnsupported: the request has tools, and no model of that name can use any.
            ProviderError: the failure of the provider that was asked last, before anything was shown;
                ``ContextOverflow`` if that is what one of them said.
            StreamCut: the answer broke off after its first delta.
        """
        draft = draft or self.draft()
        route = self._route(request)
        failover = Failover(route.targets, pooled=route.pooled, retries=self._retries)
        while (step := failover.next(self._admits)) is not None:
            if step.pause_s:
                await self._sleep(step.pause_s)
            target, is_shown = step.target, False
            row, info = target.row, target.info
            draft.begin(row.name, info.id, row.api)
            try:
                async with (
                    self._upstreams[row.name].call(last_resort=step.last_resort) as call,
                    aclosing(self._ask(target, request)) as parts,
                ):
                    async for part in parts:
                        if not is_shown:
                            is_shown = True
                            call.answered()
                            yield Started(row.name, info.id, row.api, failover.tried)
                        if isinstance(part, Ended):
                            usage = part.usage or estimated_usage(request, draft.message(part.stop_reason))
                            draft.usage = with_cost(usage, info.price)
                            yield Finished(draft.message(part.stop_reason))
                        else:
                            draft.add(part)
                            yield part
                return
            except CircuitOpen:
                failover.put_off(step)
            except ProviderError as exc:
                failover.failed(step, exc)
                if is_shown:
                    raise _cut(exc, failover.tried) from exc
                log.warning("%s failed (%s)", target.name, exc.for_log)
                log.debug("%s failed: %s", target.name, exc)
            finally:
                if is_shown and draft.usage is None:  # broken off or stopped, which costs what was read and written
                    draft.usage = with_cost(estimated_usage(request, draft.message("aborted")), info.price)
        raise failover.failure

    def _ask(self, target: Target, request: ModelRequest) -> AsyncGenerator[Part, None]:
        row, info = target.row, target.info
        return self._apis[row.api](self._upstreams[row.name].endpoint, info, _fitting(request, info))

    def _admits(self, target: Target) -> bool:
        admits = self._upstreams[target.row.name].breaker.admits()
        if not admits:
            log.info("%s is passed over: it failed lately", target.name)
        return admits

    def _route(self, request: ModelRequest) -> Route:
        """Who may answer ``request``: those of its name that can use tools, if it is of no use without (BA-081)."""
        if self._routes.cheapest:
            answer_tokens = request.options.max_tokens or ANSWER_TOKENS
            route = self._routes.route(request.model, input_tokens=request_tokens(request), output_tokens=answer_tokens)
        else:
            route = self._routes.route(request.model)
        if not request.options.tools or request.options.tools_optional:
            return route
        able = tuple(target for target in route.targets if target.info.tools)
        if not able:
            names = ", ".join(target.name for target in route.targets)
            text = f"{names} cannot use tools, and the request has some"
            raise ToolsUnsupported(text, provider=route.targets[0].row.name)
        return replace(route, targets=able)


def _fitting(request: ModelRequest, info: ModelInfo) -> ModelRequest:
    """``request`` without what the model has no use for, and no longer than it can write (BA-084)."""
    options = request.options
    if options.thinking is not None and not info.reasoning:
        options = replace(options, thinking=None)
    if options.tools and not info.tools:
        options = replace(options, tools=(), tool_choice=None, parallel_tool_calls=None)
    if options.max_tokens is not None and info.output_limit is not None and options.max_tokens > info.output_limit:
        options = replace(options, max_tokens=info.output_limit)
    return request if options is request.options else replace(request, options=options)


def _cut(failure: ProviderError, tried: tuple[Attempt, ...]) -> StreamCut:
    return StreamCut(str(failure), provider=failure.provider, status=failure.status).with_tried(tried)
