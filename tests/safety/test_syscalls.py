"""The filter of system calls, run by a small interpreter of its own: what it refuses and what it lets through."""

import struct

import pytest

from quintain.safety.syscalls import MACHINES, REFUSED, numbers, program

ALLOW, REFUSE, PRETEND = 0x7FFF0000, 0x00050026, 0x00050000


def verdict(filter_program: bytes, number: int, machine: int, *arguments: int) -> int:
    """Return what the kernel would return for a call."""
    data = struct.pack("<IIQ6Q", number, machine, 0, *(*arguments, *[0] * (6 - len(arguments))))
    steps = list(struct.iter_unpack("<HBBI", filter_program))
    place = value = 0
    while True:
        code, yes, no, operand = steps[place]
        place += 1
        if code == 0x20:
            value = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x06:
            return operand
        else:
            holds = {
                0x15: value == operand,
                0x35: value >= operand,
                0x25: value > operand,
                0x45: bool(value & operand),
            }[code]
            place += yes if holds else no


@pytest.mark.parametrize("machine", MACHINES)
def test_the_listed_calls_are_refused_and_others_are_not(machine: str) -> None:
    _, name, clone, socket, ioctl, setsockopt = MACHINES[machine]
    found = program(machine)
    assert {verdict(found, number, name) for number in numbers(machine).values()} == {REFUSE}
    assert set(numbers(machine)) == set(REFUSED)
    listed = {*numbers(machine).values(), clone, socket, ioctl, setsockopt}
    assert {verdict(found, number, name, 2**32 - 1) for number in range(600) if number not in listed} == {
        ALLOW
    }
    flags = {0x11: ALLOW, 0x11 | 0x10000000: REFUSE, 0x00020000: REFUSE, 0x01200011: ALLOW}
    assert {value: verdict(found, clone, name, value) for value in flags} == flags
    families = {1: ALLOW, 2: ALLOW, 10: ALLOW, 16: ALLOW, 17: REFUSE, 38: REFUSE, 40: REFUSE}
    assert {value: verdict(found, socket, name, value) for value in families} == families
    requests = {0x5413: ALLOW, 0x5412: REFUSE, 0x541C: REFUSE}
    assert {value: verdict(found, ioctl, name, 0, value) for value in requests} == requests
    wishes = {(1, 7): PRETEND, (1, 8): PRETEND, (1, 33): PRETEND, (1, 2): ALLOW, (6, 7): ALLOW, (0, 8): ALLOW}
    assert {each: verdict(found, setsockopt, name, 0, *each) for each in wishes} == wishes
    held_by_nobody = {
        "memfd_create",
        "memfd_secret",
        "shmget",
        "shmat",
        "msgget",
        "semget",
        "mq_open",
        "vmsplice",
    }
    assert held_by_nobody <= set(REFUSED)


def test_another_calling_convention_does_not_go_around_the_list() -> None:
    found = program("x86_64")
    name = MACHINES["x86_64"][1]
    assert verdict(found, 0, 0x40000003) == REFUSE
    assert verdict(found, 0x40000000, name) == REFUSE
    assert verdict(found, 0, name) == ALLOW


def test_a_machine_whose_numbers_are_not_known_has_no_filter() -> None:
    assert (program("riscv64"), numbers("riscv64")) == (b"", {})
