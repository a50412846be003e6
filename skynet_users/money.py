"""Money as people read it."""


def dollars(microusd: int) -> str:
    """To the cent, and as exact as it takes below one."""
    if microusd == 0 or microusd >= 10_000:
        return f"${microusd / 1_000_000:,.2f}"
    return f"${microusd / 1_000_000:.6f}".rstrip("0")
