"""``channels.status``."""

from skynet.gateway.dispatch import method
from skynet_memory.ids import now_ms
from skynet_protocol.channels import ChannelsStatusParams, ChannelsStatusResult
from skynet_users.caller import Caller


class ChannelMethods:
    """Chat services that the gateway is connected to. This version has none."""

    @method("channels.status")
    def status(self, caller: Caller, params: ChannelsStatusParams) -> ChannelsStatusResult:
        """Every channel and its accounts; all containers are there when there is none."""
        return ChannelsStatusResult(
            ts=now_ms(),
            channel_order=[],
            channel_labels={},
            channel_detail_labels={},
            channel_system_images={},
            channel_meta=[],
            channels={},
            channel_accounts={},
            channel_default_account_id={},
        )
