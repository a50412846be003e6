"""The model of ``filter.model``: whether a text is fit for a child, after the words of the content filter passed it."""

from __future__ import annotations

from skynet.gateway.model_calls import Account, ModelCalls
from skynet.hooks import HookUser
from skynet_agent.filters import MODEL_CHECK_PROMPT, is_fit
from skynet_agent.messages import TextBlock, UserMessage, text_of
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_memory.ids import DEFAULT_AGENT, SessionId, new_id, now_ms
from skynet_memory.keys import build_key
from skynet_users.people import User

SESSION = "content-filter"
"""In the usage of a person: the checks of all conversations. There is no such session."""
MAX_ANSWER_TOKENS = 2_000
"""One word, and room for a model that cannot answer without thinking."""


class ModelCheck:
    """A question to a model for each text, on the budget of the child. Keeps nothing."""

    def __init__(self, calls: ModelCalls, model: str) -> None:
        self._calls = calls
        self._model = model

    async def __call__(self, user: User, text: str) -> bool:
        """Whether ``text`` is fit for ``user``.

        Raises:
            CallRefused, ProviderError, UnknownModel: the model did not answer.
            ValueError: its answer was neither yes nor no.
        """
        account = Account(
            user=HookUser(id=user.id, role=user.role, display_name=user.display_name),
            key=build_key(user.id, DEFAULT_AGENT, SESSION),
            session_id=SessionId(new_id()),
        )
        request = ModelRequest(
            model=self._model,
            system=(MODEL_CHECK_PROMPT,),
            messages=(UserMessage([TextBlock(text)], now_ms()),),
            options=ModelOptions(max_tokens=MAX_ANSWER_TOKENS),
            purpose="job",
        )
        return is_fit(text_of(await self._calls.ask(account, request)))
