"""Where a model computes: the name of a device → the device."""

from pathlib import Path

import psutil
import torch

from quintain.errors import ConfigError

CGROUP = Path("/sys/fs/cgroup")
"""Where the limits of our group of processes stand, on Linux."""
WITHOUT_FLOAT64 = frozenset({"mps"})
"""Types of devices that have no numbers of 64 bits."""


def free_memory(device: torch.device) -> tuple[int, int]:
    """Return the bytes of the memory of `device` that are free, and all: of a card, or of the machine.

    Of the processor they are those that this process may have, where a group of processes has a limit.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # what torch holds and does not use is free to us
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + unused, total
    memory = psutil.virtual_memory()
    free, total = int(memory.available), int(memory.total)
    limit, used = (_number_in(CGROUP / name) for name in ("memory.max", "memory.current"))
    if limit is None or used is None or limit >= total:
        return free, total
    return min(free, limit - used), limit


def _number_in(file: Path) -> int | None:
    """Return the number that `file` holds, None where it holds none."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def has_float64(device: torch.device) -> bool:
    """Whether `device` computes with numbers of 64 bits."""
    return device.type not in WITHOUT_FLOAT64


def find_device(name: str) -> torch.device:
    """Return the device that `name` names; ``auto`` is the first GPU, or the processor where there is none.

    Raises:
        ConfigError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device: got {name!r}; give auto, cpu, cuda, cuda:1 or mps") from error
    missing = (device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()) or (
        device.type == "mps" and not torch.backends.mps.is_available()
    )
    if missing:
        raise ConfigError(f"device: got {name!r}, which torch does not see on this machine; give cpu or auto")
    return device
