"""A filter of system calls for boxes: doors into the kernel that no program of an agent needs stay shut.

Most holes of the kernel were opened through calls that ordinary programs never make (bpf, io_uring, keyrings, user
namespaces, mounts). The filter is a program of the kernel's classic packet filter; what it refuses answers as on a
kernel that does not know the call (ENOSYS), so that libraries fall back. It comes on top of the namespaces and never
instead of them, and only for processors whose numbers of calls stand here.

Memory that belongs to no process could not be counted, so the ways to have it are among the refused: files that live in
memory alone, System V's segments, queues and semaphores, and pages that a pipe keeps. How large the buffers of a socket
are is the kernel's choice: a wish for other ones is answered as if it were done.
"""

import errno
import platform
import struct
from collections.abc import Mapping, Sequence

REFUSED: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "semget": (64, 190),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
"""Refused calls with their numbers on x86_64 and aarch64; clone3 hides its flags in memory, so clone is used."""
MACHINES: Mapping[str, tuple[int, int, int, int, int, int]] = {
    "x86_64": (0, 0xC000003E, 56, 41, 16, 54),
    "aarch64": (1, 0xC00000B7, 220, 198, 29, 208),
}
"""Place of the number in `REFUSED`, the kernel's name of the machine, and the numbers of clone, socket, ioctl and
setsockopt."""
NEW_NAMESPACES = 0x7E020000
"""Flags of clone that ask for a namespace."""
LAST_FAMILY = 16
"""Highest address family: UNIX, IPv4, IPv6 and netlink are below; AF_PACKET, AF_ALG and AF_VSOCK are above."""
TERMINAL_REQUESTS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into a terminal."""
BUFFER_OPTIONS = (7, 8, 32, 33)
"""SO_SNDBUF and SO_RCVBUF, and the same for those who may have more than the kernel gives."""
FIRST_X32 = 0x40000000
"""From here on a number means another calling convention, which would go around the list."""

_LOAD, _EQUAL, _AT_LEAST, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_ALLOW, _REFUSE, _PRETEND = 0x7FFF0000, 0x00050000 | errno.ENOSYS, 0x00050000
_SOCKET_LEVEL = 1
Step = tuple[int, int, int, int]


def numbers(machine: str | None = None) -> dict[str, int]:
    """Return the refused calls by name with their numbers on `machine` (this one); {} where none are known."""
    known = MACHINES.get(machine or platform.machine())
    return {name: both[known[0]] for name, both in REFUSED.items()} if known else {}


def program(machine: str | None = None) -> bytes:
    """Return the filter for `machine` (this one) as the kernel reads it; empty where its numbers are not known."""
    known = MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    _, name, clone, socket, ioctl, setsockopt = known
    steps: list[Step] = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, name), (_RETURN, 0, 0, _REFUSE)]
    steps += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, FIRST_X32), (_RETURN, 0, 0, _REFUSE)]
    for number in numbers(machine).values():
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    steps += _argument(clone, _FIRST, [(_ANY_BIT, NEW_NAMESPACES)])
    steps += _argument(socket, _FIRST, [(_ABOVE, LAST_FAMILY)])
    steps += _argument(ioctl, _SECOND, [(_EQUAL, request) for request in TERMINAL_REQUESTS])
    wishes = [(_EQUAL, option) for option in BUFFER_OPTIONS]
    steps += _argument(setsockopt, _THIRD, wishes, answer=_PRETEND, where=(_SECOND, _SOCKET_LEVEL))
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _argument(
    number: int,
    place: int,
    tests: Sequence[tuple[int, int]],
    *,
    answer: int = _REFUSE,
    where: tuple[int, int] | None = None,
) -> list[Step]:
    """Return steps that give `answer` to call `number` where its argument at `place` passes one of `tests`.

    `where` is another argument's place and the value that it must have.
    """
    checks: list[Step] = []
    if where is not None:
        checks = [(_LOAD, 0, 0, where[0]), (_EQUAL, 1, 0, where[1]), (_RETURN, 0, 0, _ALLOW)]
    checks.append((_LOAD, 0, 0, place))
    for code, value in tests:
        checks += [(code, 0, 1, value), (_RETURN, 0, 0, answer)]
    checks.append((_RETURN, 0, 0, _ALLOW))
    return [(_EQUAL, 0, len(checks), number), *checks]
