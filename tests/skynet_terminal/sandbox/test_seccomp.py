"""The filter, step by step as the kernel takes it. What it does in the sandbox is among the escapes."""

import errno
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.sandbox.seccomp import MISSING, REFUSED, seccomp_filter

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMN = {"x86_64": 0, "aarch64": 1}
MACHINES = sorted(AUDIT)
EPERM, ENOSYS, EAFNOSUPPORT = (ERRNO | error for error in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))


def decide(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """Run the filter as bpf(4) describes it."""
    program = seccomp_filter(machine)
    assert program is not None
    six = [*arguments, *[0] * 6][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, AUDIT[machine] if architecture is None else architecture, 0, *six)
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x05:
                at += operand
            case 0x15:
                at += if_true if accumulator == operand else if_false
            case 0x25:
                at += if_true if accumulator > operand else if_false
            case 0x45:
                at += if_true if accumulator & operand else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(code)


def number_of(machine: str, name: str) -> int:
    others = {"clone": (56, 220), "ioctl": (16, 29), "personality": (135, 92), "prctl": (157, 167), "read": (0, 63)}
    files = {
        "fchmod": (91, 52),
        "fchmodat": (268, 53),
        "fchmodat2": (452, 452),
        "mknodat": (259, 33),
        "openat": (257, 56),
    }
    sockets = {"socket": (41, 198), "socketpair": (53, 199)}
    number = (REFUSED | MISSING | others | files | sockets)[name][COLUMN[machine]]
    assert number is not None
    return number


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_are_refused(machine: str) -> None:
    """BA-180."""
    for table, error in ((REFUSED, EPERM), (MISSING, ENOSYS)):
        for name, numbers in table.items():
            if numbers[COLUMN[machine]] is not None:
                assert decide(machine, number_of(machine, name)) == error, name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "decision"),
    [
        ("read", (), ALLOW),
        ("fchmodat", (0, 0, 0o755), ALLOW),
        ("fchmodat", (0, 0, 0o104755), EPERM),
        ("fchmod", (0, 0o2755), EPERM),
        ("fchmodat2", (0, 0, 0o4000), EPERM),
        ("mknodat", (0, 0, 0o100644), ALLOW),
        ("mknodat", (0, 0, 0o104755), EPERM),
        ("openat", (0, 0, 0o0, 0o7777), ALLOW),
        ("openat", (0, 0, 0o101, 0o644), ALLOW),
        ("openat", (0, 0, 0o101, 0o4755), EPERM),
        ("openat", (0, 0, 0o20200002, 0o4755), EPERM),
        ("clone", (0x01200011,), ALLOW),
        ("clone", (0x003D0F00,), ALLOW),  # a thread
        ("clone", (0x10000011,), EPERM),
        ("clone", (0x40000011,), EPERM),
        ("clone", (0x00020011,), EPERM),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), EPERM),
        ("ioctl", (0, 0xFFFFFFFF00005412), EPERM),
        ("ioctl", (0, 0x541C), EPERM),
        ("personality", (0,), ALLOW),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0x0040000,), EPERM),
        ("prctl", (15,), ALLOW),
        ("prctl", (1, 9), ALLOW),
        ("prctl", (1, 0), EPERM),
        ("prctl", (1, 15), EPERM),
        ("socket", (1, 1, 0), ALLOW),
        ("socket", (2, 0x80001, 0), ALLOW),
        ("socket", (10, 2, 0), ALLOW),
        ("socket", (2, 3, 1), EPERM),
        ("socket", (10, 0x80003, 58), EPERM),
        ("socket", (16, 3, 0), ALLOW),
        ("socket", (16, 3, 9), ERRNO | errno.EPROTONOSUPPORT),
        ("socket", (17, 3, 0), EAFNOSUPPORT),
        ("socket", (40, 1, 0), EAFNOSUPPORT),
        ("socketpair", (1, 1, 0), ALLOW),
        ("socketpair", (30, 1, 0), EAFNOSUPPORT),
    ],
)
def test_calls_that_depend_on_what_they_ask_for(
    machine: str, name: str, arguments: tuple[int, ...], decision: int
) -> None:
    assert decide(machine, number_of(machine, name), *arguments) == decision


@pytest.mark.parametrize("machine", MACHINES)
def test_other_sets_of_numbers_and_calls_to_come(machine: str) -> None:
    for architecture in (0x40000003, 0x40000028, AUDIT["aarch64" if machine == "x86_64" else "x86_64"]):
        assert decide(machine, number_of(machine, "read"), architecture=architecture) == ENOSYS
    for number in (470, 1000, 0x40000000, 0x40000027, -1):
        assert decide(machine, number) == ENOSYS


@given(st.sampled_from(MACHINES), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_every_call_is_decided(machine: str, number: int, arguments: list[int]) -> None:
    decision = decide(machine, number, *arguments)
    assert decision == ALLOW or decision & 0xFFFF0000 == ERRNO


def test_processors_that_are_not_known_have_none() -> None:
    assert seccomp_filter("riscv64") is None


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_the_numbers_are_those_of_the_kernels_headers(machine: str, header: str) -> None:
    path = Path("/usr/include", header)
    if not path.exists():
        pytest.skip("the kernel's headers are not installed")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text()))
    ours = {name: numbers[COLUMN[machine]] for name, numbers in (REFUSED | MISSING).items()}
    assert {name: number for name, number in ours.items() if name in found and int(found[name]) != number} == {}
