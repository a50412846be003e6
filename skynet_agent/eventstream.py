"""Amazon's event stream (``application/vnd.amazon.eventstream``), as bytes in and messages out.

A message is a prelude (its length, the length of its headers, a CRC32 of both), headers, a payload, and a CRC32 of all
that; see "Event stream encoding" in the Smithy specification, ``aws/amazon-eventstream.html``.

botocore has a decoder too. This one takes 1 to 2 µs for a message of 200 bytes where that one takes 6 to 9, and 8 ms
for one of 4 MiB that comes in packets where that one takes 190, since it copies all it has for every packet. Whatever
is wrong is one kind of error here (there also ``KeyError``, ``struct.error`` and ``UnicodeDecodeError``), lengths that
contradict each other are refused, and with a bearer token nothing of botocore is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct, error
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from zlib import crc32

MOST_HEADER_BYTES = 128 * 1024
MOST_PAYLOAD_BYTES = 24 * 1024 * 1024
"""Both as the specification has them."""
CACHED_HEADER_BYTES = 1024

HeaderValue: TypeAlias = str | bytes | int | bool

_prelude = Struct("!III")
_crc = Struct("!I")
_frame = _prelude.size + _crc.size  # what a message has besides headers and payload
_integers = {2: Struct("!b"), 3: Struct("!h"), 4: Struct("!i"), 5: Struct("!q"), 8: Struct("!q")}
_length = Struct("!H")


class EventStreamMessage(NamedTuple):
    headers: Mapping[str, HeaderValue]
    """Text, bytes (also of a UUID), numbers (a time in ms since 1970) or truth values, by name."""
    payload: bytes


class EventStreamDecoder:
    """Feed it the stream in pieces of any size; a piece may end anywhere.

    What comes after bytes that are no message is lost, as nothing tells where the next one begins: the error is raised
    when everything before it has been handed out, so that it does not depend on how the bytes were cut.
    """

    def __init__(self, most_payload_bytes: int = MOST_PAYLOAD_BYTES) -> None:
        self._most_payload = most_payload_bytes
        self._pieces: list[bytes] = []  # of messages that are not whole yet
        self._size = 0
        self._needed = _prelude.size  # so many bytes have to be there before it is worth looking
        self._failure: ValueError | None = None

    def feed(self, data: bytes) -> list[EventStreamMessage]:
        """The messages that ``data`` completes.

        Raises:
            ValueError: what is fed is no event stream, was damaged on its way, or has a message beyond the limits.
        """
        if self._failure is not None:
            raise self._failure
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return []
        whole = data if len(self._pieces) == 1 else b"".join(self._pieces)
        messages: list[EventStreamMessage] = []
        try:
            start = self._read(whole, messages)
        except ValueError as exc:
            self._failure = exc
            self._pieces.clear()
            if not messages:
                raise
            return messages
        self._pieces = [whole[start:]] if start < len(whole) else []
        self._size = len(whole) - start
        return messages

    def close(self) -> list[EventStreamMessage]:
        """The stream has ended; what is left is a part of a message and told to nobody.

        Raises:
            ValueError: as ``feed``.
        """
        if self._failure is not None:
            raise self._failure
        return []

    def _read(self, data: bytes, messages: list[EventStreamMessage]) -> int:
        """Add the messages in ``data``; returns where the first one begins that is not whole."""
        start, size = 0, len(data)
        view = memoryview(data)
        while size - start >= _prelude.size:
            length, header_length, checksum = _prelude.unpack_from(data, start)
            crc = crc32(view[start : start + 8])
            if crc != checksum:
                raise ValueError(f"no event stream: the checksum of a prelude is {checksum:08x}, not {crc:08x}")
            payload_length = length - header_length - _frame
            if header_length > MOST_HEADER_BYTES or not 0 <= payload_length <= self._most_payload:
                raise ValueError(
                    f"a message of {length} bytes with {header_length} bytes of headers; allowed are "
                    f"{self._most_payload} bytes of payload and {MOST_HEADER_BYTES} of headers"
                )
            end = start + length
            if end > size:
                self._needed = length
                return start
            crc = crc32(view[start + 8 : end - 4], crc)
            if crc != (checksum := _crc.unpack_from(data, end - 4)[0]):
                raise ValueError(f"a damaged message: its checksum is {checksum:08x}, not {crc:08x}")
            headers_end = start + _prelude.size + header_length
            head = data[start + _prelude.size : headers_end]
            headers = _cached_headers(head) if header_length <= CACHED_HEADER_BYTES else _headers(head)
            messages.append(EventStreamMessage(headers, data[headers_end : end - 4]))
            start = end
        self._needed = _prelude.size
        return start


def _headers(data: bytes) -> Mapping[str, HeaderValue]:
    """Headers: length (one byte) and text of a name, a byte for the type, the value.

    Raises:
        ValueError: they are none.
    """
    headers: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            value: HeaderValue
            if kind in (0, 1):
                value = kind == 0
            elif kind in _integers:
                value = _integers[kind].unpack_from(data, at)[0]
                at += _integers[kind].size
            elif kind in (6, 7):
                begin = at + _length.size
                at = begin + _length.unpack_from(data, at)[0]
                value = data[begin:at] if kind == 6 else data[begin:at].decode()
            elif kind == 9:
                value = data[at : at + 16]
                at += 16
            else:
                raise ValueError(f"a header of the unknown type {kind}")
            if at > len(data):
                raise ValueError("a header that is longer than the headers")
            if name in headers:
                raise ValueError("a header that occurs twice")
            headers[name] = value
    except (IndexError, error, UnicodeDecodeError) as exc:
        raise ValueError("headers that make no sense") from exc
    return MappingProxyType(headers)


_cached_headers = lru_cache(maxsize=64)(_headers)
"""A stream has only some kinds of messages, and those of a kind have the very same headers."""
