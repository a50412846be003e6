"""Which host a request means, in every spelling, and which may be reached."""

from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.sandbox.egress_hosts import Destination, HostRules, Refusal, parse_connect, parse_host, parse_url

WEB = {80, 443}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("example.org:443", Destination("example.org", 443)),
        ("EXAMPLE.org.:443", Destination("example.org", 443)),
        ("xn--bcher-kva.example:443", Destination("xn--bcher-kva.example", 443)),
        ("a_b.example:1", Destination("a_b.example", 1)),
        ("127.0.0.1:22", Destination("127.0.0.1", 22)),
        ("127.0.0.1.:22", Destination("127.0.0.1", 22)),
        ("[::1]:443", Destination("::1", 443)),
        ("[::ffff:127.0.0.1]:443", Destination("127.0.0.1", 443)),
        ("[::FFFF:7f00:0001]:443", Destination("127.0.0.1", 443)),
        ("[2606:4700:4700:0:0:0:0:1111]:443", Destination("2606:4700:4700::1111", 443)),
    ],
)
def test_connect(target: str, expected: Destination) -> None:
    assert parse_connect(target) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("http://example.org", Destination("example.org", 80, "/")),
        ("HTTP://Example.org/a?b=c", Destination("example.org", 80, "/a?b=c")),
        ("http://example.org:/a", Destination("example.org", 80, "/a")),
        ("http://example.org:8080?q", Destination("example.org", 8080, "/?q")),
        ("http://example.org//evil.example/", Destination("example.org", 80, "//evil.example/")),
        ("http://example.org/@evil.example:1/", Destination("example.org", 80, "/@evil.example:1/")),
        ("http://[::1]/", Destination("::1", 80, "/")),
    ],
)
def test_url(target: str, expected: Destination) -> None:
    assert parse_url(target) == expected


@pytest.mark.parametrize(
    "target",
    [
        "",
        "/",
        "/path",
        "*",
        "example.org/",
        "https://example.org/",
        "ftp://example.org/",
        "http:/example.org/",
        "http:///path",
        "http://",
        "http://:80/",
        "http://user@example.org/",
        "http://user:secret@example.org/",
        "http://good.example@evil.example/",
        "http://evil.example\\@good.example/",
        "http://good.example\\.evil.example/",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:080000/",
        "http://example.org:+80/",
        "http://example.org:80:80/",
        "http://example..org/",
        "http://.example.org/",
        "http://example.org../",
        "http://-example.org/",
        "http://ex%61mple.org/",
        "http://exämple.org/",
        "http://example.org\uff0fa/",
        "http://127.0.0.1\u3002/",
        "http://[::1/",
        "http://::1/",
        "http://[127.0.0.1]/",
        "http://[::1]x/",
        "http://example.org/#fragment",
        "http://" + "a" * 64 + ".org/",
        "http://" + "a." * 127 + "org/",
    ],
)
def test_no_url(target: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_url(target)
    assert refused.value.status == 400
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0X7F000001",
        "0x7f.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "127.0.0.01",
        "00127.0.0.1",
        "127.0.0.0x1",
        "127.0.0.1.1",
        "0",
        "0x",
        "localhost.0x7f000001",
        "[::1%lo]",
        "[fe80::1%25eth0]",
    ],
)
def test_addresses_in_other_forms(host: str) -> None:
    """W4: they are this machine to one program and a name to another."""
    with pytest.raises(Refusal) as refused:
        parse_host(host)
    assert refused.value.status == 403


def test_no_port() -> None:
    for target in ("example.org", "example.org:", "[::1]"):
        with pytest.raises(Refusal):
            parse_connect(target)


@given(st.one_of(st.text(), st.from_regex(r"(http://)?[\[\]a-z0-9.:@%/\\?#*_-]{0,40}", fullmatch=True)))
def test_whatever_is_taken_has_one_spelling(target: str) -> None:
    for parse in (parse_connect, parse_url):
        with suppress(Refusal):
            to = parse(target)
            assert to.host == to.host.lower() and to.host and to.host.isascii()
            assert 0 < to.port < 65_536
            assert parse_host(f"[{to.host}]" if ":" in to.host else to.host) == to.host
            if to.host.rpartition(".")[2][:1].isdigit() and to.host.rpartition(".")[2].isdigit():
                ip_address(to.host)
            if parse is parse_url:
                assert to.path.startswith("/")


def allowed(hosts: list[str], host: str, port: int = 443) -> bool:
    try:
        HostRules(hosts, WEB).check(Destination(host, port))
    except Refusal as refusal:
        assert refusal.status == 403 and host in str(refusal)
        return False
    return True


def test_names() -> None:
    assert allowed(["Example.ORG."], "example.org")
    assert allowed(["example.org"], "example.org", 80)
    assert not allowed(["example.org"], "www.example.org")
    assert not allowed(["example.org"], "evilexample.org")
    assert not allowed(["example.org"], "example.org.evil")
    assert not allowed([], "example.org")


def test_names_below() -> None:
    assert allowed(["*.example.org"], "a.example.org")
    assert allowed(["*.example.org"], "b.a.example.org")
    assert not allowed(["*.example.org"], "example.org")
    assert not allowed(["*.example.org"], "evilexample.org")


def test_all() -> None:
    assert allowed(["*"], "example.org")
    assert allowed(["*"], "8.8.8.8")
    assert not allowed(["*"], "example.org", 22)


def test_ports() -> None:
    assert allowed(["git.example:22"], "git.example", 22)
    assert not allowed(["git.example:22"], "git.example", 443)
    assert allowed(["git.example:22", "git.example"], "git.example", 443)
    assert allowed(["*:8080"], "example.org", 8080)
    assert allowed(["*.example.org:8080"], "a.example.org", 8080)


def test_names_in_other_alphabets() -> None:
    assert allowed(["bücher.example"], "xn--bcher-kva.example")
    assert allowed(["*.faß.example"], "www.xn--fa-hia.example")
    assert not allowed(["faß.example"], "fass.example")


def test_addresses() -> None:
    assert allowed(["8.8.8.8"], "8.8.8.8")
    assert allowed(["[2606:4700:4700::1111]:443"], "2606:4700:4700::1111")
    assert not allowed(["8.8.8.8"], "8.8.4.4")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "*.",
        "**",
        "*.*",
        "a.*",
        "*a.example",
        "http://example.org",
        "example.org/",
        "example.org:",
        "example.org:0",
        "example.org:x",
        "example.org:99999",
        "user@example.org",
        "0x7f.1",
        "127.1",
        "*.8.8.8.8",
        "*.[::1]",
        "a b",
        "::1",
        "[::1",
    ],
)
def test_no_rule(host: str) -> None:
    with pytest.raises(ValueError, match="names no host"):
        HostRules([host], WEB)
