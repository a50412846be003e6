"""Role by permission by whose it is, as a table; and what configuration and flags change of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory.ids import Role, UserId
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.permissions import DEFAULT_POLICY, GRANTABLE, Permission, PermissionPolicy, Reach, permits

NONE, OWN, ALL = Reach.NONE, Reach.OWN, Reach.ALL
MATRIX = {
    # permission: (admin, user, child)
    "messages.send": (ALL, OWN, OWN),
    "sessions.read": (ALL, OWN, OWN),
    "sessions.write": (ALL, OWN, NONE),
    "memory.read": (ALL, OWN, OWN),
    "memory.write": (ALL, OWN, OWN),
    "profile.read": (ALL, OWN, OWN),
    "profile.write": (ALL, OWN, OWN),
    "devices.manage": (ALL, OWN, NONE),
    "costs.view": (ALL, OWN, OWN),
    "files.read": (ALL, OWN, NONE),
    "files.write": (ALL, OWN, NONE),
    "commands.run": (ALL, OWN, NONE),
    "plugins.run": (ALL, OWN, NONE),
    "browser.use": (ALL, NONE, NONE),
    "software.install": (ALL, NONE, NONE),
    "jobs.manage": (ALL, OWN, NONE),
    "groups.manage": (ALL, NONE, NONE),
    "approvals.decide": (ALL, OWN, NONE),
    "workspace.write": (ALL, NONE, NONE),
    "config.read": (ALL, OWN, NONE),
    "config.write": (ALL, NONE, NONE),
    "providers.manage": (ALL, NONE, NONE),
    "logs.read": (ALL, OWN, NONE),
    "audit.read": (ALL, NONE, NONE),
    "users.manage": (ALL, NONE, NONE),
}
CELLS = [
    (permission, role, reach)
    for permission, row in MATRIX.items()
    for role, reach in zip((Role.ADMIN, Role.USER, Role.CHILD), row, strict=True)
]
ME, OTHER = UserId("me"), UserId("other")


def person(role: Role, *, policy: PermissionPolicy = DEFAULT_POLICY, **flags: bool) -> Caller:
    words = {word.replace("_", "."): given for word, given in flags.items()}
    grants = policy.grants(role, words)
    return Caller(user_id=ME, role=role, scopes=frozenset(), correlation_id="c", grants=grants)


def test_every_permission_has_its_row() -> None:
    assert set(MATRIX) == set(Permission)


@pytest.mark.parametrize(("permission", "role", "reach"), CELLS)
def test_who_may_what(permission: str, role: Role, reach: Reach) -> None:
    """SK-121, SK-123, BA-270: what an admin, a user and a child may do with what is their own, and with another's."""
    caller, asked = person(role), Permission(permission)
    assert caller.may(asked) == caller.may(asked, ME) == (reach is not NONE)
    assert caller.may(asked, OTHER) == (reach is ALL)
    if reach is NONE:
        with pytest.raises(Forbidden, match=f"^not permitted: {permission}$"):
            caller.require(asked)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("word", ["everything", "", "files", "FILES.READ"])
def test_nobody_has_a_permission_that_does_not_exist(role: Role, word: str) -> None:
    assert not permits(DEFAULT_POLICY.grants(role, {word: True}), word)


def test_a_caller_without_grants_has_those_of_the_role() -> None:
    caller = Caller(user_id=ME, role=Role.CHILD, scopes=frozenset(), correlation_id="c")
    assert caller.may(Permission.MESSAGES_SEND)
    assert not caller.may(Permission.FILES_READ)


def test_a_role_can_be_configured() -> None:
    """SK-122"""
    policy = PermissionPolicy({Role.USER: {"commands.run": NONE, "costs.view": ALL, "browser.use": OWN}})
    user = person(Role.USER, policy=policy)
    assert not user.may(Permission.COMMANDS_RUN)
    assert user.may(Permission.COSTS_VIEW, OTHER)
    assert user.may(Permission.BROWSER_USE)
    assert person(Role.ADMIN, policy=policy).may(Permission.COMMANDS_RUN, OTHER)
    assert not person(Role.CHILD, policy=policy).may(Permission.BROWSER_USE)


@pytest.mark.parametrize(
    ("role", "word", "reach", "words"),
    [
        (Role.USER, "everything", OWN, "permissions.user: there is no permission 'everything'"),
        (Role.USER, "users.manage", ALL, "permissions.user: users.manage cannot be given to the role user"),
        (Role.CHILD, "commands.run", OWN, "permissions.child: commands.run cannot be given to the role child"),
        (Role.CHILD, "memory.read", ALL, "permissions.child: memory.read reaches no further than own for a child"),
        (Role.ADMIN, "logs.read", NONE, "permissions.admin: admins have every permission"),
    ],
)
def test_what_cannot_be_configured(role: Role, word: str, reach: Reach, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        PermissionPolicy({role: {word: reach}})


def test_flags_give_and_take() -> None:
    user = person(Role.USER, commands_run=False, software_install=True, users_manage=True)
    assert not user.may(Permission.COMMANDS_RUN)
    assert user.may(Permission.SOFTWARE_INSTALL)
    assert not user.may(Permission.SOFTWARE_INSTALL, OTHER)
    assert not user.may(Permission.USERS_MANAGE)
    child = person(Role.CHILD, files_read=True, commands_run=True, memory_write=False)
    assert child.may(Permission.FILES_READ)
    assert not child.may(Permission.COMMANDS_RUN)
    assert not child.may(Permission.MEMORY_WRITE)


@given(st.sampled_from([Role.USER, Role.CHILD]), st.dictionaries(st.sampled_from(list(Permission)), st.booleans()))
def test_no_flags_reach_beyond_the_role(role: Role, flags: dict[Permission, bool]) -> None:
    grants = DEFAULT_POLICY.grants(role, flags)
    for permission in Permission:
        if permits(grants, permission):
            assert permission in GRANTABLE[role]
        assert not permits(grants, permission, own=False)


@given(st.dictionaries(st.text(), st.booleans()))
def test_an_admin_cannot_be_locked_out(flags: dict[str, bool]) -> None:
    grants = DEFAULT_POLICY.grants(Role.ADMIN, flags)
    assert all(permits(grants, permission, own=False) for permission in Permission)
