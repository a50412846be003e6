import pytest

from skynet.gateway.peer import PeerInfo, joined_headers, networks, origin_allowed


def peer(address: str = "127.0.0.1", **headers: str) -> PeerInfo:
    headers = {"host": "127.0.0.1:18789", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return PeerInfo(address=address, port=50000, headers=headers)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (peer(), True),
        (peer(host="localhost:1"), True),
        (peer(host="home.tail1.ts.net"), True),
        (peer(host="[::1]:18789"), True),
        (peer("192.0.2.9"), False),
        (peer(host="evil.example"), False),
        (peer(host=""), False),
        (peer(host="[::1"), False),
        (peer(host="127.0.0.1:18789, evil.example"), False),
        (peer(x_forwarded_for="192.0.2.1"), False),
        (peer(forwarded="for=192.0.2.1"), False),
    ],
)
def test_local_needs_address_host_and_no_proxy(subject: PeerInfo, expected: bool) -> None:
    assert subject.local is expected


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "expected"),
    [
        ("http://localhost:5173", "127.0.0.1:18789", (), True),
        ("http://127.0.0.1:18789", "localhost:18789", (), True),
        ("http://evil.example", "127.0.0.1:18789", (), False),
        ("http://localhost", "gateway.example", (), False),
        ("https://Home.example", "gateway.example", ("https://home.example/",), True),
        ("https://home.example:8443", "gateway.example", ("https://home.example",), False),
        ("null", "127.0.0.1", (), False),
        ("", "127.0.0.1", (), False),
        ("http://[::1", "127.0.0.1", (), False),
        ("file://localhost", "127.0.0.1", (), False),
        ("http://localhost, http://evil.example", "127.0.0.1", (), False),
    ],
)
def test_origin_rule(origin: str, host: str, allowed: tuple[str, ...], expected: bool) -> None:
    assert origin_allowed(peer(origin=origin, host=host), allowed) is expected


def test_a_missing_origin_fails() -> None:
    assert not origin_allowed(peer(), ())


def test_headers_that_come_twice_are_joined() -> None:
    headers = joined_headers([("Origin", "http://localhost"), ("origin", "http://evil.example"), ("Host", "a")])
    assert headers == {"origin": "http://localhost, http://evil.example", "host": "a"}


@pytest.mark.parametrize(
    ("address", "forwarded", "expected"),
    [
        ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "203.0.113.1, 192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "203.0.113.1, 192.0.2.7, 10.9.9.9", "192.0.2.7"),
        ("::ffff:127.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "192.0.2.7:4711", "192.0.2.7"),
        ("127.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("127.0.0.1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("127.0.0.1", " , 192.0.2.7 ,", "192.0.2.7"),
        ("127.0.0.1", "10.0.0.1, 10.0.0.2", "10.0.0.1"),
        ("127.0.0.1", "192.0.2.7, unknown", "127.0.0.1"),
        ("127.0.0.1", "[::1", "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("192.0.2.1", "127.0.0.1", "192.0.2.1"),
        ("", "127.0.0.1", ""),
    ],
)
def test_only_trusted_proxies_are_believed(address: str, forwarded: str, expected: str) -> None:
    proxies = networks(["127.0.0.1", "10.0.0.0/8"])
    resolved = peer(address, x_forwarded_for=forwarded).behind(proxies)
    assert resolved.address == expected
    assert resolved.behind(proxies) == resolved
    assert not resolved.local
