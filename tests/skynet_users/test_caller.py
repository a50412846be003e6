import dataclasses

import pytest

from skynet_memory.ids import Role, UserId
from skynet_users.caller import Caller


def test_a_caller_is_what_was_proved_and_stays_so() -> None:
    caller = Caller(user_id=UserId("u"), role=Role.CHILD, scopes=frozenset(), correlation_id="c")
    assert (caller.gateway_role, caller.conn_id, caller.device_id, caller.local) == ("operator", None, None, False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        caller.role = Role.ADMIN  # type: ignore[misc]
