import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_users.approvals import ApprovalStore
from skynet_users.errors import LinkRefused, UnknownUser
from skynet_users.identities import IdentityStore
from skynet_users.links import ALPHABET, EXPIRY_MS, MAX_TRIES, TRIES_WINDOW_MS, LinkCodes, is_code, normalised
from skynet_users.people import User, UserChanges, UserStore
from skynet_users.resolver import Known, UserResolver, Waiting

T0 = 1_795_000_000_000
WRONG = "AAAA-AAAA"


@pytest.fixture
def codes(store: Database) -> LinkCodes:
    return LinkCodes(store, clock=lambda: T0)


async def made(codes: LinkCodes, who: User, at_ms: int = T0) -> str:
    return (await codes.create(who.id, "telegram", "ben", at_ms)).code.reveal()


async def refusal(codes: LinkCodes, code: str, external_id: str = "7", at_ms: int = T0) -> str:
    with pytest.raises(LinkRefused) as caught:
        await codes.claim(code, "discord", external_id, at_ms)
    assert str(caught.value)
    return caught.value.reason


async def test_two_accounts_become_one_person(store: Database, codes: LinkCodes, ben: User) -> None:
    """SK-127, SK-128"""
    await IdentityStore(store).link(ben.id, "telegram", "ben")
    created = await codes.create(ben.id, "telegram", "ben")
    code = created.code.reveal()
    assert re.fullmatch(f"[{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", code)
    assert created.expires_at_ms == T0 + EXPIRY_MS == T0 + 600_000
    assert code not in repr(created)
    assert await codes.claim(code, "discord", "7", display_name="ben#7") == ben.id
    resolver = UserResolver(store)
    assert await resolver.resolve("discord", "7") == await resolver.resolve("telegram", "ben") == Known(ben)
    [_, linked] = sorted(await IdentityStore(store).list(ben.id), key=lambda each: each.channel, reverse=True)
    assert (linked.channel, linked.display_name, linked.verified, linked.linked_by) == (
        "discord",
        "ben#7",
        True,
        ben.id,
    )
    assert await refusal(codes, code) == "unknown_code"


async def test_the_code_itself_is_not_stored(store: Database, codes: LinkCodes, ben: User) -> None:
    code = await made(codes, ben)
    copy = store.path.with_name("copy.db")
    await store.backup(copy)
    assert code.encode() not in copy.read_bytes()
    assert normalised(code).encode() not in copy.read_bytes()


async def test_it_works_once_and_not_for_long(codes: LinkCodes, ben: User) -> None:
    code = await made(codes, ben)
    assert await refusal(codes, code, at_ms=T0 + EXPIRY_MS) == "unknown_code"
    outcomes = await asyncio.gather(
        *[codes.claim(code, "discord", str(n), T0 + EXPIRY_MS - 1) for n in range(20)], return_exceptions=True
    )
    assert outcomes.count(ben.id) == 1
    assert sum(isinstance(outcome, LinkRefused) for outcome in outcomes) == 19


async def test_one_a_person(codes: LinkCodes, ada: User, ben: User) -> None:
    first, other, second = await made(codes, ben), await made(codes, ada), await made(codes, ben)
    assert await refusal(codes, first) == "unknown_code"
    assert await codes.claim(second, "discord", "7") == ben.id
    assert await codes.claim(other, "discord", "8") == ada.id


async def test_from_the_same_account_it_proves_nothing(store: Database, codes: LinkCodes, ben: User) -> None:
    created = await codes.create(ben.id, "discord", "7")
    assert await refusal(codes, created.code.reveal()) == "same_identity"
    assert await codes.claim(created.code.reveal(), "discord", "8") == ben.id


async def test_whose_identity_is_moved(store: Database, codes: LinkCodes, ada: User, ben: User) -> None:
    """SK-128"""
    identities, users = IdentityStore(store), UserStore(store)
    created = await UserResolver(store, unknown="create").resolve("discord", "7")
    assert isinstance(created, Known)
    code = await made(codes, ben)
    kim = await users.add("Kim", Role.CHILD)
    await identities.link(kim.id, "discord", "kim")
    await identities.link(ada.id, "discord", "ada")
    for taken in ("kim", "ada"):
        assert await refusal(codes, code, taken) == "taken"
    assert await codes.claim(code, "discord", "7") == ben.id
    assert await identities.find("discord", "7") == ben
    assert await users.by_id(created.user.id) == created.user
    assert await codes.claim(await made(codes, ben), "discord", "7") == ben.id


@pytest.mark.parametrize(
    "changes", [UserChanges(role=Role.CHILD), UserChanges(role=Role.ADMIN), UserChanges(disabled=True)]
)
async def test_what_an_admin_made_of_somebody_stays(
    store: Database, codes: LinkCodes, ada: User, ben: User, changes: UserChanges
) -> None:
    created = await UserResolver(store, unknown="create").resolve("discord", "7")
    assert isinstance(created, Known)
    await UserStore(store).set(created.user.id, changes)
    assert await refusal(codes, await made(codes, ben)) == "taken"


async def test_a_registered_child_stays_a_child(store: Database, codes: LinkCodes, ada: User, ben: User) -> None:
    waiting = await UserResolver(store, clock=lambda: T0).resolve("discord", "7")
    assert isinstance(waiting, Waiting)
    approvals = ApprovalStore(store, clock=lambda: T0)
    await approvals.decide(waiting.approval_id, by=ada.id, approve=True, role="child")
    assert await refusal(codes, await made(codes, ben)) == "taken"


async def test_who_waited_waits_no_more(store: Database, codes: LinkCodes, ben: User) -> None:
    resolver, approvals = UserResolver(store, clock=lambda: T0), ApprovalStore(store, clock=lambda: T0)
    assert isinstance(await resolver.resolve("discord", "7"), Waiting)
    await codes.claim(await made(codes, ben), "discord", "7")
    assert await resolver.resolve("discord", "7") == Known(ben)
    assert await approvals.list("pending") == []


async def test_tries_are_few(codes: LinkCodes, ben: User) -> None:
    code = await made(codes, ben)
    for _ in range(MAX_TRIES):
        assert await refusal(codes, WRONG) == "unknown_code"
    assert await refusal(codes, code) == "too_many_tries"
    assert await refusal(codes, code, at_ms=T0 + TRIES_WINDOW_MS - 1) == "too_many_tries"
    assert await codes.claim(code, "discord", "8") == ben.id
    later = T0 + TRIES_WINDOW_MS
    assert await codes.claim(await made(codes, ben, later), "discord", "7", later) == ben.id


async def test_nobody_tries_in_parallel(codes: LinkCodes) -> None:
    outcomes = await asyncio.gather(*[codes.claim(WRONG, "discord", "7") for _ in range(50)], return_exceptions=True)
    reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, LinkRefused)]
    assert (reasons.count("unknown_code"), reasons.count("too_many_tries")) == (MAX_TRIES, 50 - MAX_TRIES)


async def test_right_ones_are_not_counted(codes: LinkCodes, ben: User) -> None:
    for _ in range(2 * MAX_TRIES):
        assert await codes.claim(await made(codes, ben), "discord", "7") == ben.id


async def test_so_many_senders_are_remembered(store: Database) -> None:
    codes = LinkCodes(store, clock=lambda: T0, max_senders=3)
    for _ in range(MAX_TRIES):
        await refusal(codes, WRONG, "0")
    for n in (1, 2):
        await refusal(codes, WRONG, str(n))
    assert await refusal(codes, WRONG, "0") == "too_many_tries"
    for n in (3, 4, 5):
        await refusal(codes, WRONG, str(n))
    assert await refusal(codes, WRONG, "0") == "unknown_code"


async def test_only_for_people(store: Database, codes: LinkCodes, ben: User) -> None:
    code = await made(codes, ben)
    await UserStore(store).set(ben.id, UserChanges(disabled=True))
    assert await refusal(codes, code) == "unknown_code"
    for nobody in (ben.id, UserId("nobody")):
        with pytest.raises(UnknownUser):
            await codes.create(nobody, "telegram")
    await UserStore(store).remove(ben.id)
    assert await store.fetchall("SELECT * FROM link_codes") == []


async def test_how_people_type_it(codes: LinkCodes, ben: User) -> None:
    for typed in (str.lower, lambda code: code.replace("-", " "), lambda code: f"  {code.replace('-', '')}\n"):
        code = typed(await made(codes, ben))
        assert is_code(code)
        assert await codes.claim(code, "discord", "7") == ben.id


@given(st.text())
async def test_any_text_is_refused(text: str) -> None:
    """Invariant: only what has the form of a code can be one."""
    if is_code(text):
        assert re.fullmatch(f"[{ALPHABET}]{{8}}", normalised(text))


@pytest.mark.parametrize(
    "code", ["", "\udc80", "x" * 100_000, "ABCD-EFG", "ABCD-EFGI", "ABCD-EFG0", "ABCD-EFGHJ", "ABCD-EFG\u0660"]
)
async def test_what_is_no_code(codes: LinkCodes, code: str) -> None:
    assert not is_code(code)
    assert await refusal(codes, code) == "unknown_code"


async def test_who_is_no_sender(codes: LinkCodes, ben: User) -> None:
    assert await refusal(codes, await made(codes, ben), "\n") == "unknown_code"
