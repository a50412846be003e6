"""Role by permission, as a table."""

import pytest

from skynet_memory.ids import Role
from skynet_users.permissions import ROLE_PERMISSIONS, Permission, is_permitted

TABLE = {
    Permission.FILES_READ: {Role.ADMIN, Role.USER},
    Permission.FILES_WRITE: {Role.ADMIN, Role.USER},
    Permission.COMMANDS_RUN: {Role.ADMIN, Role.USER},
    Permission.PLUGINS_RUN: {Role.ADMIN, Role.USER},
    Permission.WORKSPACE_WRITE: {Role.ADMIN},
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("permission", Permission)
def test_who_may_what(role: Role, permission: Permission) -> None:
    assert is_permitted(role, permission) == (role in TABLE[permission])
    assert is_permitted(role, str(permission)) == (role in TABLE[permission])


@pytest.mark.parametrize("role", Role)
def test_nobody_has_a_permission_that_does_not_exist(role: Role) -> None:
    assert not is_permitted(role, "everything")
    assert not is_permitted(role, "")


def test_every_role_has_its_row() -> None:
    assert set(ROLE_PERMISSIONS) == set(Role)
