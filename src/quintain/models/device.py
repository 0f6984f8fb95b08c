"""Where a model computes: the name of a device → the device."""

import torch

from quintain.errors import ConfigError


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
