"""Removes what SQLite leaves of deleted rows in b-tree pages.

``PRAGMA secure_delete`` zeroes what is deleted where it stands. But when a page is split or merged, rows move to other
pages, and what they leave behind is not zeroed: it stays in the unallocated space of the page (file format 1.6), from
where deleting the row later does not remove it. Nothing ever reads that space, so zeroing it changes nothing else.

The file has to be complete and still meanwhile: log empty, write lock held. See ``Database.erase_traces``.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_INTERIOR_INDEX: Final = 2
_INTERIOR_TABLE: Final = 5
_LEAF_INDEX: Final = 10
_LEAF_TABLE: Final = 13
_TYPES: Final = frozenset({_INTERIOR_INDEX, _INTERIOR_TABLE, _LEAF_INDEX, _LEAF_TABLE})


class NotAPage(Exception):  # noqa: N818 - says what was found
    """What should be a page of a b-tree is none: the file is damaged, or was changed meanwhile. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A table or index: its root page, and for a table the row ids whose pages are meant; both ends included."""

    root: int
    low: int = -(2**63)
    high: int = 2**63 - 1


def scrub(fd: int, trees: list[Tree]) -> int:
    """Zero the unallocated space of all pages of ``trees``; returns how many pages had any that was not zero.

    Takes about 5 µs a page.

    Raises:
        NotAPage: see there.
    """
    size, reserved = struct.unpack_from(">H2xB", os.pread(fd, 21, 0), 16)
    page_bytes = 65536 if size == 1 else size
    scrubbed = 0
    for tree in trees:
        for number, page, header in _pages(fd, page_bytes, page_bytes - reserved, tree):
            start, end = _unallocated(number, page, header, page_bytes - reserved)
            if page.count(0, start, end) != end - start:
                os.pwrite(fd, bytes(end - start), (number - 1) * page_bytes + start)
                scrubbed += 1
    return scrubbed


def _pages(fd: int, page_bytes: int, usable: int, tree: Tree) -> Iterator[tuple[int, bytes, int]]:
    """Number, content and start of the header of each page with rows of ``tree``, or with neighbours of them."""
    waiting, seen = [tree.root], set[int]()
    while waiting:
        number = waiting.pop()
        page = os.pread(fd, page_bytes, (number - 1) * page_bytes)
        header = 100 if number == 1 else 0
        if number in seen or len(page) != page_bytes or page[header] not in _TYPES:
            raise NotAPage(f"page {number}")
        seen.add(number)
        kind = page[header]
        if kind in (_INTERIOR_INDEX, _INTERIOR_TABLE):
            waiting += _children(number, page, header, usable, tree if kind == _INTERIOR_TABLE else None)
        yield number, page, header


def _children(number: int, page: bytes, header: int, usable: int, tree: Tree | None) -> list[int]:
    """Of a table only those whose row ids overlap with the ones that are meant, and their neighbours."""
    _unallocated(number, page, header, usable)
    count, last = struct.unpack_from(">H", page, header + 3)[0], struct.unpack_from(">I", page, header + 8)[0]
    places = struct.unpack_from(f">{count}H", page, header + 12)
    children = [struct.unpack_from(">I", page, place)[0] for place in places] + [last]
    if tree is None:
        return children
    ends = [_row_id(page, place + 4) for place in places]  # of a child: its greatest row id
    first = next((place for place, end in enumerate(ends) if end >= tree.low), count)
    final = next((place for place, end in enumerate(ends) if end >= tree.high), count)
    return children[max(first - 1, 0) : final + 2]


def _unallocated(number: int, page: bytes, header: int, usable: int) -> tuple[int, int]:
    """From where to where the page has nothing, once everything that the header tells is plausible."""
    free, count, content = struct.unpack_from(">HHH", page, header + 1)
    content = content or 65536
    start = header + (12 if page[header] in (_INTERIOR_INDEX, _INTERIOR_TABLE) else 8) + 2 * count
    if not start <= content <= usable or (free and free < content):
        raise NotAPage(f"page {number}")
    if count and min(struct.unpack_from(f">{count}H", page, start - 2 * count)) < content:
        raise NotAPage(f"page {number}")
    return start, content


def _row_id(page: bytes, place: int) -> int:
    """A varint: seven bits a byte, eight in the ninth."""
    value = 0
    for at in range(8):
        byte = page[place + at]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value
    value = value << 8 | page[place + 8]
    return value - (1 << 64) if value >= 1 << 63 else value
