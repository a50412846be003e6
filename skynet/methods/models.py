"""``models.list``."""

from msgspec import UNSET

from skynet.gateway.dispatch import method
from skynet_agent.router import Router
from skynet_protocol.models import ModelChoice, ModelsListParams, ModelsListResult
from skynet_users.caller import Caller


class ModelMethods:
    """The models a session may be set to."""

    def __init__(self, router: Router) -> None:
        self._router = router

    @method("models.list")
    def list_models(self, caller: Caller, params: ModelsListParams) -> ModelsListResult:
        """What the configured providers offer, in the order they are asked."""
        return ModelsListResult(
            models=[
                ModelChoice(
                    id=model.model,
                    name=model.info.name or model.model,
                    provider=model.provider,
                    context_window=model.context_window or UNSET,
                    reasoning=model.info.reasoning,
                    input=model.info.input,
                )
                for model in self._router.models()
            ]
        )
