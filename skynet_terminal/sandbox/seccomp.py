"""The system calls that commands may not make, as a filter for the kernel (seccomp(2)).

Nearly all of them need a capability that commands do not have anyway. Refusing them keeps what nobody needs of the
kernel, where faults have been found again and again, out of reach. It is a list of what is refused, as programs need
very many of the others; what the kernel gained after the newest call named here is refused too.

The filter is classic BPF, written here since it is short: the libraries for it (libseccomp's and pyseccomp, a wrapper
of it by ctypes) are not installed everywhere, and would be loaded for nothing else.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

# The opcodes, of linux/bpf_common.h.
_LOAD_WORD = 0x20
_JUMP = 0x05
_JUMP_EQUAL = 0x15
_JUMP_GREATER = 0x25
_JUMP_ANY_BIT = 0x45
_AND = 0x54
_RETURN = 0x06

# Offsets in struct seccomp_data. Of an argument the low word is read, which comes first on both architectures.
_NUMBER = 0
_ARCHITECTURE = 4
_ARGUMENTS = 16

_NEWEST = 469
"""The last call that is known, ``file_setattr`` of Linux 6.17. Beyond 423 all architectures count the same."""

REFUSED = {
    # name: its number on x86_64, and on aarch64; None where there is none. They fail with EPERM.
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "setns": (308, 268),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
MISSING = {
    # The same, but as if the kernel did not have them: the C library then uses what it used before.
    "clone3": (435, 435),  # what they are to do is in memory, which a filter cannot read
    "openat2": (437, 437),
}
_CHECKED = {
    "chmod": (90, None),
    "clone": (56, 220),
    "creat": (85, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "ioctl": (16, 29),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
    "personality": (135, 92),
    "prctl": (157, 167),
    "socket": (41, 198),
    "socketpair": (53, 199),
}

_NEW_NAMESPACES = 0x7E020000
"""The CLONE_NEW* flags that clone(2) knows."""
_TERMINAL_REQUESTS = (0x5412, 0x541C, 0x5423)
"""TIOCSTI and TIOCLINUX put input into a terminal, TIOCSETD loads its modules."""
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Ordinary, 32 bits, kernel versions 2.6, and the question which it is. Others take protections away."""
_PARENT_DEATH_SIGNAL = 1
_KILL = 9
_SET_ID = 0o6000
_CREATE = 0o20000100
"""O_CREAT, and what O_TMPFILE adds: only with one of them is there a mode among the arguments."""
_MODES = {"chmod": 1, "creat": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2}
_FLAGS_AND_MODES = {"open": (1, 2), "openat": (2, 3)}
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_RAW, _PACKET = 3, 10
_TYPE_MASK = 0xF
_ROUTE = 0


@dataclass(frozen=True, slots=True)
class _Architecture:
    column: int
    audit: int
    """Its AUDIT_ARCH_* of linux/audit.h."""


_ARCHITECTURES = {"x86_64": _Architecture(0, 0xC000003E), "aarch64": _Architecture(1, 0xC00000B7)}

_Instruction = tuple[int, int, int, int]
"""Opcode, how many instructions to leave out if it is true, and if not, operand."""


def seccomp_filter(machine: str = "") -> bytes | None:
    """The filter for processors of the kind ``machine`` (as ``uname -m`` says it; this one's by default): an array of
    ``struct sock_filter``. None if the calls of that kind are not known here."""
    architecture = _ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return None
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _program(architecture))


def _program(architecture: _Architecture) -> Iterator[_Instruction]:
    column = architecture.column
    # Programs of another kind (of 32 bits, on the same machine) have other numbers: they get nowhere.
    yield _load(_ARCHITECTURE)
    yield (_JUMP_EQUAL, 1, 0, architecture.audit)
    yield _refuse(errno.ENOSYS)
    yield _load(_NUMBER)
    # Among those beyond the newest are all of x32, a second set of numbers that x86_64 has from 0x40000000 on.
    yield from _if(_JUMP_GREATER, _NEWEST, [_refuse(errno.ENOSYS)])
    for name, checks in _checks().items():
        if (number := _CHECKED[name][column]) is not None:
            yield from _if(_JUMP_EQUAL, number, [*checks, (_RETURN, 0, 0, _ALLOW)])
    for calls, error in ((REFUSED, errno.EPERM), (MISSING, errno.ENOSYS)):
        for numbers in calls.values():
            if (call := numbers[column]) is not None:
                yield from _if(_JUMP_EQUAL, call, [_refuse(error)])
    yield (_RETURN, 0, 0, _ALLOW)


def _checks() -> dict[str, list[_Instruction]]:
    """What is asked of the arguments. What falls through is allowed."""
    refuse_set_id = _if(_JUMP_ANY_BIT, _SET_ID, [_refuse(errno.EPERM)])
    return {
        # In there such bits do nothing. Outside the file is the gateway's, and whoever runs it would become that.
        **{name: [_argument(mode), *refuse_set_id] for name, mode in _MODES.items()},
        **{
            name: [_argument(flags), *_if(_JUMP_ANY_BIT, _CREATE, [_argument(mode), *refuse_set_id])]
            for name, (flags, mode) in _FLAGS_AND_MODES.items()
        },
        "clone": [_argument(0), *_if(_JUMP_ANY_BIT, _NEW_NAMESPACES, [_refuse(errno.EPERM)])],
        "ioctl": [_argument(1), *_any_of(_TERMINAL_REQUESTS, [_refuse(errno.EPERM)])],
        "personality": [_argument(0), *_unless_any_of(_PERSONALITIES, [_refuse(errno.EPERM)])],
        # The sandbox ends with the gateway by this signal, so nothing in it may choose another.
        "prctl": [
            _argument(0),
            *_if(
                _JUMP_EQUAL,
                _PARENT_DEATH_SIGNAL,
                [_argument(1), *_unless_any_of((_KILL,), [_refuse(errno.EPERM)])],
            ),
        ],
        "socket": [
            _argument(0),
            *_unless_any_of((_UNIX, _INET, _INET6, _NETLINK), [_refuse(errno.EAFNOSUPPORT)]),
            *_if(
                _JUMP_EQUAL,
                _NETLINK,
                [_argument(2), *_unless_any_of((_ROUTE,), [_refuse(errno.EPROTONOSUPPORT)])],
            ),
            _argument(0),
            *_any_of(
                (_INET, _INET6),
                [_argument(1), (_AND, 0, 0, _TYPE_MASK), *_any_of((_RAW, _PACKET), [_refuse(errno.EPERM)])],
            ),
        ],
        "socketpair": [_argument(0), *_unless_any_of((_UNIX,), [_refuse(errno.EAFNOSUPPORT)])],
    }


def _load(offset: int) -> _Instruction:
    return (_LOAD_WORD, 0, 0, offset)


def _argument(index: int) -> _Instruction:
    return _load(_ARGUMENTS + 8 * index)


def _refuse(error: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | error)


def _if(comparison: int, operand: int, then: Sequence[_Instruction]) -> list[_Instruction]:
    """Do ``then`` if what was loaded compares so."""
    return [(comparison, 0, len(then), operand), *then]


def _any_of(operands: Sequence[int], then: Sequence[_Instruction]) -> list[_Instruction]:
    """Do ``then`` if what was loaded is one of them."""
    # Each jumps over those after it and over the last, which leaves ``then`` out.
    last = len(operands)
    tests = [(_JUMP_EQUAL, last - index, 0, operand) for index, operand in enumerate(operands)]
    return [*tests, (_JUMP, 0, 0, len(then)), *then]


def _unless_any_of(operands: Sequence[int], then: Sequence[_Instruction]) -> list[_Instruction]:
    """Do ``then`` if what was loaded is none of them."""
    last = len(operands) - 1
    tests = [(_JUMP_EQUAL, last - index + len(then), 0, operand) for index, operand in enumerate(operands)]
    return [*tests, *then]
