"""Failures of providers: what of them may be written into a log."""

import pytest

from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ConnectFailed,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamCut,
)


@pytest.mark.parametrize(
    "kind", [RateLimited, AuthFailed, ProviderTimeout, Overloaded, BadRequest, ContextOverflow, StreamCut]
)
def test_what_a_provider_answered_is_not_for_the_log(kind: type[ProviderError]) -> None:
    failure = kind("lab: you wrote my diary (HTTP 418)", provider="lab", status=418)
    assert failure.for_log == f"{kind.__name__}: HTTP 418"


@pytest.mark.parametrize("kind", [RateLimited, AuthFailed, ProviderTimeout, ConnectFailed])
def test_the_gateway_s_own_words_are(kind: type[ProviderError]) -> None:
    assert kind("lab: nobody is there", provider="lab").for_log == f"{kind.__name__}: lab: nobody is there"


@pytest.mark.parametrize("kind", [StreamCut, BadRequest, Overloaded])
def test_pieces_of_an_answer_are_not(kind: type[ProviderError]) -> None:
    assert kind("lab: a chunk that makes no sense: 'my diary'", provider="lab").for_log == kind.__name__
