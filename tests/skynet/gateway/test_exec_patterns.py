"""What an entry of the house's list matches: programs by their path, commands word by word."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.exec_patterns import SEARCHED, InvalidPattern, parse_pattern, resolve_program


def matches(pattern: str, path: str) -> bool:
    return parse_pattern(pattern).matches([path], lambda name: name) is not None


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/usr/bin/rg", "/usr/bin/rg"),
        ("/usr/bin/*", "/usr/bin/rg"),
        ("/usr/**/rg", "/usr/rg"),
        ("/usr/**/rg", "/usr/local/bin/rg"),
        ("**/rg", "/opt/rg"),
        ("/opt/**", "/opt/a/b"),
        ("/usr/bin/python3.1?", "/usr/bin/python3.11"),
        ("  /usr/bin/rg ", "/usr/bin/rg"),
        ("rg", "/usr/bin/rg"),
        ("r?", "/usr/local/bin/rg"),
        ("~/bin/x", f"{Path.home()}/bin/x"),
        ("/a+b/(c)", "/a+b/(c)"),
    ],
)
def test_what_matches(pattern: str, path: str) -> None:
    assert matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/usr/bin/rg", "/usr/bin/rgx"),
        ("/usr/bin/rg", "/tmp/usr/bin/rg"),
        ("/usr/bin/*", "/usr/bin/a/b"),
        ("/usr/bin/?", "/usr/bin//"),
        ("/usr/**/rg", "/usrrg"),
        ("rg", "/tmp/rg"),
        ("rg", "/usr/bin/more/rg"),
        ("*", "/tmp/rg"),
        ("/usr/bin/rg", "/usr/bin/rg\n"),
        ("/usr/bin/r.", "/usr/bin/rg"),
        ("~x/bin", f"{Path.home()}x/bin"),
        ("/usr/bin/RG", "/usr/bin/rg"),
        ("/usr/bin/rg", ""),
    ],
)
def test_what_does_not(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


@pytest.mark.parametrize(
    "pattern", ["", "  ", "[]", "[1]", "[git push]", '["*"]', '["**", "x"]', '{"a":1}['[7:], "[" * 9999]
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        parse_pattern(pattern)


@given(st.text(max_size=40), st.lists(st.text(max_size=10), min_size=1, max_size=4))
def test_any_text_is_a_pattern_or_none_and_any_command_is_matched_or_not(text: str, argv: list[str]) -> None:
    try:
        pattern = parse_pattern(text)
    except InvalidPattern:
        return
    assert pattern.matches(argv, lambda name: name) in (None, "", argv[0])


@given(st.lists(st.text(st.characters(exclude_characters="*?\0"), min_size=1, max_size=8), min_size=1, max_size=3))
def test_a_pattern_without_stars_is_itself_alone(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    if path == path.strip():
        assert matches(path, path)
        assert not matches(path, path + "x") and not matches(path, "/x" + path)


def test_a_long_pattern_takes_no_long_time() -> None:
    assert not matches("/" + "**/" * 200 + "*" * 200 + "x", "/" + "a/" * 100 + "y")


def test_a_program_is_found_where_programs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert resolve_program("tool") == "", "the gateway's own path counts for nothing"
    assert resolve_program(str(tmp_path / "tool")) == str(tmp_path / "tool")
    for name in ("./tool", "../tool", "", "tool\0", "sub/tool", str(tmp_path / "none")):
        assert resolve_program(name) == ""
    assert re.fullmatch(f"({'|'.join(SEARCHED.split(':'))})/sh", resolve_program("sh"))
