"""Logs of jobs: bounded files in which every offset stays what it was."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.job_log import LEAST_READ, JobLog, log_size, read_log


def written(path: Path, pieces: list[bytes], most: int) -> JobLog:
    log = JobLog(path, most)
    for piece in pieces:
        log.write(piece)
    log.close()
    return log


def read_all(path: Path, most: int, *, ended: bool = True) -> list[tuple[int, bytes]]:
    """Pieces with their offsets."""
    found, cursor = [], 0
    while True:
        piece = read_log(path, cursor, most, ended=ended)
        if not piece.data and piece.cursor == cursor:
            return found
        assert piece.cursor > cursor
        found.append((cursor + piece.dropped, piece.data))
        cursor = piece.cursor


def test_a_short_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = written(path, [b"one\n", b"two\n"], 1000)
    assert (log.size, log.fault, log_size(path)) == (8, "", 8)
    assert read_log(path, 0, 100, ended=True).data == b"one\ntwo\n"
    assert read_log(path, 4, 100, ended=True).data == b"two\n"
    assert read_log(path, -3, 100, ended=True).data == b"wo\n"
    assert read_log(path, 99, 100, ended=True) == read_log(path, 8, 100, ended=True)
    assert path.stat().st_mode & 0o777 == 0o600


def test_one_without_a_byte_has_no_file(tmp_path: Path) -> None:
    written(tmp_path / "log", [], 1000)
    assert not (tmp_path / "log").exists()
    assert read_log(tmp_path / "log", 5, 100, ended=True).data == b""


def test_a_long_one_keeps_its_halves(tmp_path: Path) -> None:
    """SK-176: the log on the disk is bounded, however much is written."""
    path = tmp_path / "log"
    written(path, [b"%07d\n" % number for number in range(100_000)], 16_000)
    assert path.stat().st_size < 16_100
    data = b"".join(b"%07d\n" % number for number in range(100_000))
    assert read_all(path, 1_000_000) == [(0, data[:8000]), (800_000 - 8000, data[-8000:])]
    first = read_log(path, 8000, 100, ended=True)
    assert (first.dropped, first.data) == (800_000 - 16_000, data[-8000:][:100])


def test_characters_are_not_split(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = JobLog(path, 1000)
    log.write("a😀".encode()[:3])
    piece = read_log(path, 0, 100, ended=False)
    assert (piece.data, piece.cursor) == (b"a", 1)
    assert read_log(path, 1, 100, ended=False).data == b""
    assert read_log(path, 1, 100, ended=True).data == "😀".encode()[:2]
    log.write("😀".encode()[2:])
    log.close()
    assert read_log(path, 1, 100, ended=False).data == "😀".encode()


PIECES = st.lists(st.binary(min_size=1, max_size=60), max_size=30)


@given(PIECES, st.integers(2, 120), st.integers(1, 200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], most: int, step: int) -> None:
    """What is read stands at its offset in what was written; both ends are there; nothing is twice."""
    path = tmp_path_factory.mktemp("log") / "log"
    data = b"".join(pieces)
    written(path, pieces, most)
    half = most // 2
    read = read_all(path, step)
    end = 0
    for offset, piece in read:
        assert end <= offset
        assert data[offset : offset + len(piece)] == piece
        end = offset + len(piece)
    # up to three bytes after the gap may be the end of a character
    assert len(data) - sum(len(piece) for _, piece in read) <= max(0, len(data) - 2 * half) + 3
    assert not pieces or log_size(path) == len(data)


@given(st.text(min_size=1), st.integers(LEAST_READ, 40))
def test_text_is_read_as_characters(tmp_path_factory: pytest.TempPathFactory, text: str, step: int) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    data = text.encode()
    written(path, [data[at : at + 3] for at in range(0, len(data), 3)], 100_000)
    assert "".join(piece.decode() for _, piece in read_all(path, step, ended=False)) == text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_and_stops_nothing() -> None:
    log = JobLog(Path("/dev/full"), 1000)
    log.write(b"one")
    log.write(b"two")
    log.close()
    assert (log.fault, log.size, log.unwritten) == (os.strerror(28), 0, 6)
