"""Which addresses may be connected to for somebody else (W4)."""

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.sandbox.addresses import is_own, is_public, may_connect

PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:200::1",
    "2a00:1450:4001::8a",
    "2003::1",
    "3ffe::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
)
HIDDEN = (
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2002:c0a8:101::1",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
)
NO_ADDRESSES = (
    "",
    "localhost",
    "0x7f.1",
    "2130706433",
    "127.1",
    "0127.0.0.1",
    "8.8.8.8:80",
    "[::1]",
    " 8.8.8.8",
    "8.8.8.8\n",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", HIDDEN)
def test_hidden(address: str) -> None:
    """W4."""
    assert not is_public(address)
    assert not is_public(ip_address(address))
    assert not may_connect(address)


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_no_address(text: str) -> None:
    assert not is_public(text)


@given(st.ip_addresses(v=4))
def test_what_leads_to_an_address_is_as_public_as_that(address: IPv4Address) -> None:
    mapped = IPv6Address(0xFFFF_0000_0000 | int(address))
    nat64 = IPv6Address(0x64_FF9B << 96 | int(address))
    six_to_four = IPv6Address(0x2002 << 112 | int(address) << 80 | 1)
    assert {is_public(each) for each in (mapped, nat64, six_to_four)} == {is_public(address)}
    assert is_public(address) <= (address.is_global or address in (IPv4Address("192.88.99.1"),))


@given(st.ip_addresses(v=6))
def test_nothing_is_public_that_python_knows_to_be_private(address: IPv6Address) -> None:
    leads_elsewhere = address.sixtofour or address.ipv4_mapped or address in IPv6Network("64:ff9b::/96")
    if is_public(address) and not leads_elsewhere:
        assert address.is_global and not address.is_multicast and not address.is_reserved


def test_this_machine() -> None:
    """Its own public address is public, and leads to what its firewall keeps from others."""
    assert is_own("127.0.0.1")
    for *_, (own, *_) in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, socket.SOCK_STREAM):
        assert is_own(str(own))
    assert not is_own("8.8.8.8")
    assert not is_own("2606:4700:4700::1111")
