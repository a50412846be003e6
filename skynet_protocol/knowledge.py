"""Skynet's own ``knowledge.*``: topics that a person has had written down."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.memory import DEFAULT_FOUND, DEFAULT_LISTED, MAX_LISTED, OwnerId, QueryText, Tags
from skynet_protocol.params import NonNegativeInt, Params, PositiveInt, Result

TopicText = Annotated[str, Meta(min_length=1, max_length=200)]
ContentText = Annotated[str, Meta(min_length=1, max_length=8_000)]


class Topic(Result, kw_only=True):
    """No two topics of a person have the same name."""

    id: str
    topic: str
    content: str
    tags: tuple[str, ...]
    created_at: NonNegativeInt
    updated_at: NonNegativeInt


class FoundTopic(Topic, kw_only=True):
    """``score`` compares within one answer only; the greatest is first."""

    score: float


class KnowledgeListParams(Params, frozen=True):
    """``after`` is the ``next`` of the answer before."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED)] = DEFAULT_LISTED
    after: TopicText | UnsetType = UNSET
    user_id: OwnerId | UnsetType = UNSET


class KnowledgeListResult(Result, kw_only=True):
    topics: list[Topic]
    next: str | UnsetType = UNSET


class KnowledgeSearchParams(Params, frozen=True):
    """A greater ``limit`` than 50 counts as 50."""

    query: QueryText
    limit: PositiveInt = DEFAULT_FOUND
    user_id: OwnerId | UnsetType = UNSET


class KnowledgeSearchResult(Result, kw_only=True):
    topics: list[FoundTopic]


class KnowledgeWriteParams(Params, frozen=True):
    """What was written under the topic before is replaced. A tag that is a tool's name ties the topic to that tool."""

    topic: TopicText
    content: ContentText
    tags: Tags = ()
    user_id: OwnerId | UnsetType = UNSET


class KnowledgeWriteResult(Result, kw_only=True):
    topic: Topic


class KnowledgeForgetParams(Params, frozen=True):
    topic: TopicText
    user_id: OwnerId | UnsetType = UNSET


class KnowledgeForgetResult(Result, kw_only=True):
    ok: bool
