"""People, identities, approvals and groups on the wire: what is closed, what may be left out, and what comes back."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_protocol import approvals, groups, identities, users
from skynet_protocol.errors import RequestError
from skynet_protocol.params import decode_params

PERSON = {
    "id": "u",
    "displayName": "Mia",
    "role": "child",
    "createdAt": 1,
    "contentFilter": "strict",
    "requiresApproval": False,
    "flags": {"files.read": True},
    "needsWelcome": False,
    "disabled": False,
}
APPROVAL = {
    "id": "a",
    "kind": "tool_call",
    "status": "pending",
    "summary": "run x",
    "subject": {"tool": "run", "arguments": {"a": [1, None]}},
    "createdAt": 1,
    "expiresAt": 2,
    "requester": "u",
    "requesterName": "Mia",
    "mine": False,
    "decidable": True,
}
ALLOWANCE = {"used": 0, "reserved": 0}
PERIOD = {"tokens": {**ALLOWANCE, "limit": 0}, "microusd": ALLOWANCE, "resetsAt": 3}
GROUP = {"id": "g", "name": "Family", "active": False, "history": "all", "member": True}


@pytest.mark.parametrize(
    ("struct", "example"),
    [
        (users.UsersListResult, {"users": [PERSON]}),
        (users.Person, {**PERSON, "age": 0, "interests": ["x"], "dailyTokens": 0, "monthlyMicrousd": 5}),
        (
            users.UsersGetResult,
            {"user": PERSON, "identities": [],
             "guardians": [{"id": "g", "displayName": "G", "readsTranscripts": False}],
             "children": [], "permissions": {"files.read": "own"}},
        ),
        (users.UsersTokensListResult, {"tokens": [{"id": "t", "name": "n", "createdAt": 1, "scopes": []}]}),
        (users.UsersTokensCreateResult, {"userId": "u", "id": "t", "name": "n", "token": "sk-sky-x"}),
        (users.UsersBudgetResult, {"userId": "u", "displayName": "M", "day": PERIOD, "month": PERIOD}),
        (identities.IdentitiesListResult, {"identities": [
            {"channel": "discord", "externalId": "1", "linkedAt": 1, "verified": False, "linkedBy": "u"}]}),
        (identities.IdentitiesCodeResult, {"code": "ABCD-EFGH", "expiresAt": 1, "say": "/link ABCD-EFGH"}),
        (approvals.ApprovalsListResult, {"approvals": [APPROVAL]}),
        (approvals.ApprovalsDecideResult, {"approval": {**APPROVAL, "reason": "no"}, "user": PERSON}),
        (approvals.ApprovalRequestedEvent, {"approval": APPROVAL, "ts": 1}),
        (approvals.ApprovalResolvedEvent, {"id": "a", "kind": "request", "status": "expired", "ts": 1}),
        (groups.GroupsListResult, {"groups": [GROUP]}),
        (groups.GroupsMembersResult, {"members": [{"userId": "u", "displayName": "M", "joinedAt": 1}]}),
    ],
)  # fmt: skip
def test_a_result_comes_out_as_it_went_in(struct: type[msgspec.Struct], example: dict[str, Any]) -> None:
    """No key is unknown, none is added, and 0, false and empty are not left out."""
    assert json.loads(msgspec.json.encode(msgspec.convert(example, struct))) == example


def decode(struct: type[msgspec.Struct], params: Any) -> Any:
    return decode_params(json.dumps(params).encode(), msgspec.json.Decoder(struct), "x")


@pytest.mark.parametrize(
    ("struct", "params", "words"),
    [
        (users.UsersGetParams, {"user": "u"}, "unexpected property 'user'"),
        (users.UsersGetParams, {"userId": ""}, "at /userId"),
        (users.UsersGetParams, {"userId": None}, "at /userId"),
        (users.UsersAddParams, {}, "displayName"),
        (users.UsersAddParams, {"displayName": "x", "role": "root"}, "at /role"),
        (users.UsersAddParams, {"displayName": "x", "interests": ["y" * 81]}, "at /interests/0"),
        (users.UsersAddParams, {"displayName": "x", "flags": {"files.read": None}}, "at /flags"),
        (users.UsersAddParams, {"displayName": "x", "identities": [{"channel": "a", "externalId": "b", "owner": "c"}]},
         "unexpected property 'owner'"),
        (users.UsersSetParams, {"displayName": None}, "at /displayName"),
        (users.UsersSetParams, {"id": "u"}, "unexpected property 'id'"),
        (users.UsersSetParams, {"dailyTokens": 2**53}, "at /dailyTokens"),
        (users.UsersTokensCreateParams, {"name": "x", "scopes": []}, "at /scopes"),
        (users.UsersTokensCreateParams, {"name": "x", "expiresInDays": 0}, "at /expiresInDays"),
        (users.UsersPasswordParams, {"password": "short"}, "at /password"),
        (identities.IdentitiesLinkParams, {"userId": "u", "channel": "a:b", "externalId": "1"}, "at /channel"),
        (approvals.ApprovalsDecideParams, {"id": "a"}, "approve"),
        (approvals.ApprovalsDecideParams, {"id": "a", "approve": True, "role": "admin"}, "at /role"),
        (approvals.ApprovalsRequestParams, {"summary": "x" * 501}, "at /summary"),
        (approvals.ApprovalsRequestParams, {"summary": "x", "requester": "u"}, "unexpected property 'requester'"),
        (groups.GroupsCreateParams, {"name": "x", "history": "some"}, "at /history"),
    ],
)  # fmt: skip
def test_params_are_closed_and_an_error_names_the_field(
    struct: type[msgspec.Struct], params: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError) as refused:
        decode(struct, params)
    assert words in str(refused.value)


def test_null_takes_back_and_absence_keeps() -> None:
    params = decode(users.UsersSetParams, {"age": None, "dailyTokens": None, "flags": {"files.read": None}})
    assert params.age is None and params.daily_tokens is None and params.flags == {"files.read": None}
    assert params.monthly_tokens is msgspec.UNSET and params.role is msgspec.UNSET


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({field.encode_name for field in msgspec.structs.fields(users.UsersSetParams)})


@given(
    st.sampled_from([users.UsersSetParams, users.UsersAddParams, approvals.ApprovalsDecideParams]),
    JSON | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
)
def test_any_json_is_params_or_an_error(struct: type[msgspec.Struct], params: Any) -> None:
    try:
        assert isinstance(decode(struct, params), struct)
    except RequestError as exc:
        assert str(exc).startswith("invalid x params: ")
