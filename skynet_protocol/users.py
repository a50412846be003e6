"""Skynet's own ``users.*``: people, their tokens, passwords, budgets and guardians."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result

RoleName = Literal["admin", "user", "child"]
ContentFilter = Literal["off", "moderate", "strict"]
Reach = Literal["none", "own", "all"]

IdText = Annotated[str, Meta(min_length=1, max_length=64)]
NameText = Annotated[str, Meta(min_length=1, max_length=64)]
ShortText = Annotated[str, Meta(max_length=200)]
Age = Annotated[int, Meta(ge=0, le=150)]
Interests = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=80)], ...], Meta(max_length=40)]
Days = Annotated[int, Meta(ge=1, le=3650)]
Password = Annotated[str, Meta(min_length=8, max_length=1024)]
ChannelName = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[a-z][a-z0-9_.-]*$")]
ExternalId = Annotated[str, Meta(min_length=1, max_length=255)]


class Person(Result, kw_only=True):
    """A person as those see them who may; an empty text is left out.

    Limits are absent where the role's apply: tokens, and micro-dollars. ``flags`` are permissions that were given to or
    taken from this person, whatever the role has.
    """

    id: str
    display_name: str
    role: RoleName
    created_at: NonNegativeInt
    language: str | UnsetType = UNSET
    tone: str | UnsetType = UNSET
    interests: tuple[str, ...] | UnsetType = UNSET
    age: int | UnsetType = UNSET
    time_zone: str | UnsetType = UNSET
    content_filter: ContentFilter
    requires_approval: bool
    flags: dict[str, bool]
    quiet_hours: str | UnsetType = UNSET
    allowed_hours: str | UnsetType = UNSET
    needs_welcome: bool
    disabled: bool
    daily_tokens: NonNegativeInt | UnsetType = UNSET
    monthly_tokens: NonNegativeInt | UnsetType = UNSET
    daily_microusd: NonNegativeInt | UnsetType = UNSET
    monthly_microusd: NonNegativeInt | UnsetType = UNSET


class UsersListParams(Params, frozen=True):
    pass


class UsersListResult(Result, kw_only=True):
    """Everybody, in the order they were added; the caller alone for those who do not manage people."""

    users: list[Person]


class UsersGetParams(Params, frozen=True):
    """``user_id``: absent for the caller."""

    user_id: IdText | UnsetType = UNSET


class PersonName(Result, kw_only=True):
    """``reads_transcripts``: of a guardian, who may read what the child wrote."""

    id: str
    display_name: str
    reads_transcripts: bool | UnsetType = UNSET


class PersonIdentity(Result, kw_only=True):
    """``linked_by``: who said so, absent where the person proved it. ``verified``: the channel vouches for it."""

    channel: str
    external_id: str
    display_name: str | UnsetType = UNSET
    linked_at: NonNegativeInt
    verified: bool
    linked_by: str | UnsetType = UNSET


class UsersGetResult(Result, kw_only=True):
    """``permissions``: how far each reaches, by role and flags."""

    user: Person
    identities: list[PersonIdentity]
    guardians: list[PersonName]
    children: list[PersonName]
    permissions: dict[str, Reach]


class NewIdentity(Params, frozen=True):
    """An identity that a new person has from the start."""

    channel: ChannelName
    external_id: ExternalId


class UsersAddParams(Params, frozen=True):
    """A new person; what is left out is as the role has it."""

    display_name: NameText
    role: RoleName = "user"
    language: ShortText = ""
    tone: ShortText = ""
    interests: Interests = ()
    age: Age | UnsetType = UNSET
    time_zone: ShortText = ""
    content_filter: ContentFilter | UnsetType = UNSET
    requires_approval: bool | UnsetType = UNSET
    flags: dict[str, bool] | UnsetType = UNSET
    quiet_hours: ShortText = ""
    allowed_hours: ShortText = ""
    daily_tokens: NonNegativeInt | UnsetType = UNSET
    monthly_tokens: NonNegativeInt | UnsetType = UNSET
    daily_microusd: NonNegativeInt | UnsetType = UNSET
    monthly_microusd: NonNegativeInt | UnsetType = UNSET
    identities: Annotated[tuple[NewIdentity, ...], Meta(max_length=20)] = ()


class UsersAddResult(Result, kw_only=True):
    user: Person


class UsersSetParams(Params, frozen=True):
    """What is absent stays. ``None`` (null) takes an age or a limit back; in ``flags``, one flag.

    Everybody changes their own name, language, tone, interests, time zone and quiet hours, and a grown-up the own age;
    the rest, and all of other people, is for those who manage people.
    """

    user_id: IdText | UnsetType = UNSET
    display_name: NameText | UnsetType = UNSET
    role: RoleName | UnsetType = UNSET
    language: ShortText | UnsetType = UNSET
    tone: ShortText | UnsetType = UNSET
    interests: Interests | UnsetType = UNSET
    age: Age | UnsetType | None = UNSET
    time_zone: ShortText | UnsetType = UNSET
    content_filter: ContentFilter | UnsetType = UNSET
    requires_approval: bool | UnsetType = UNSET
    flags: dict[str, bool | None] | UnsetType = UNSET
    quiet_hours: ShortText | UnsetType = UNSET
    allowed_hours: ShortText | UnsetType = UNSET
    needs_welcome: bool | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    daily_tokens: NonNegativeInt | UnsetType | None = UNSET
    monthly_tokens: NonNegativeInt | UnsetType | None = UNSET
    daily_microusd: NonNegativeInt | UnsetType | None = UNSET
    monthly_microusd: NonNegativeInt | UnsetType | None = UNSET


class UsersSetResult(Result, kw_only=True):
    user: Person


class UsersRemoveParams(Params, frozen=True):
    user_id: IdText


class UsersRemoveResult(Result, kw_only=True):
    user_id: str
    removed: bool


class UsersTokensListParams(Params, frozen=True):
    """``user_id``: absent for the caller."""

    user_id: IdText | UnsetType = UNSET


class TokenSummary(Result, kw_only=True):
    """A personal token without the token. ``scopes`` absent: all that the person's role allows."""

    id: str
    name: str
    created_at: NonNegativeInt
    last_used_at: NonNegativeInt | UnsetType = UNSET
    expires_at: NonNegativeInt | UnsetType = UNSET
    scopes: list[str] | UnsetType = UNSET


class UsersTokensListResult(Result, kw_only=True):
    tokens: list[TokenSummary]


class UsersTokensCreateParams(Params, frozen=True, kw_only=True):
    """``scopes``: absent for all that the person's role allows; never more than the caller's connection has."""

    user_id: IdText | UnsetType = UNSET
    name: NameText
    scopes: Annotated[tuple[NonEmptyStr, ...], Meta(min_length=1, max_length=20)] | UnsetType = UNSET
    expires_in_days: Days | UnsetType = UNSET


class UsersTokensCreateResult(Result, kw_only=True):
    """``token`` is shown this once."""

    user_id: str
    id: str
    name: str
    token: str
    expires_at: NonNegativeInt | UnsetType = UNSET
    scopes: list[str] | UnsetType = UNSET


class UsersTokensRevokeParams(Params, frozen=True, kw_only=True):
    user_id: IdText | UnsetType = UNSET
    id: IdText


class UsersTokensRevokeResult(Result, kw_only=True):
    id: str
    revoked: bool


class UsersPasswordParams(Params, frozen=True, kw_only=True):
    """``current``: needed for the own password, where there is one."""

    user_id: IdText | UnsetType = UNSET
    password: Password
    current: Annotated[str, Meta(max_length=1024)] = ""


class UsersPasswordResult(Result, kw_only=True):
    user_id: str


class UsersBudgetParams(Params, frozen=True):
    """``user_id``: absent for the caller."""

    user_id: IdText | UnsetType = UNSET


class Allowance(Result, kw_only=True):
    """``reserved``: held for calls that run. Without a ``limit`` there is none."""

    used: NonNegativeInt
    reserved: NonNegativeInt
    limit: NonNegativeInt | UnsetType = UNSET


class BudgetPeriod(Result, kw_only=True):
    """A day or a month in the person's time zone; ``microusd`` are millionths of a US dollar."""

    tokens: Allowance
    microusd: Allowance
    resets_at: NonNegativeInt


class UsersBudgetResult(Result, kw_only=True):
    """``house_day`` and ``house_month``: what all people together used, for those who see everybody's costs."""

    user_id: str
    display_name: str
    day: BudgetPeriod
    month: BudgetPeriod
    house_day: BudgetPeriod | UnsetType = UNSET
    house_month: BudgetPeriod | UnsetType = UNSET


class UsersGuardiansSetParams(Params, frozen=True):
    """``user_id`` is the child."""

    user_id: IdText
    guardian_id: IdText
    reads_transcripts: bool = False


class UsersGuardiansRemoveParams(Params, frozen=True):
    user_id: IdText
    guardian_id: IdText


class UsersGuardiansResult(Result, kw_only=True):
    """Who the child's guardians are now; none: every admin is."""

    user_id: str
    guardians: list[PersonName]
