"""Which addresses are this machine's own."""


def is_loopback(host: str) -> bool:
    """Whether ``host``, an address or a name without a port, is this machine and nothing else.

    A name other than ``localhost`` is not: what it leads to can change.
    """
    host = host.strip("[]").lower()
    if host in ("127.0.0.1", "localhost", "::1"):
        return True
    from ipaddress import IPv6Address, ip_address  # only for unusual hosts

    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback
