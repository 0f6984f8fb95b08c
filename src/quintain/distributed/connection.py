"""The way to a Ray cluster: connected once, asked with deadlines, and its errors as ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quintain.distributed.placement import CPU, Bundle, find_unplaced, refuse_unplaced
from quintain.environments.extras import extra_module
from quintain.errors import EngineFault, QuintainError, UsageError
from quintain.processes.usage import num_cores

Files = dict[str, bytes]
"""Name of a file in a folder → what it holds."""
POLL = 0.5
"""Seconds between two looks at which machines are there."""


def ray_package() -> Any:
    """Return the package `ray`.

    Raises:
        MissingExtra: it is not installed.
    """
    return extra_module("ray", package="ray", extra="ray", feature="a cluster")


def check_address(address: str) -> None:
    """Refuse what names no cluster.

    Raises:
        UsageError: it does not.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address not in ("local", "auto") and not (host and port.isdigit()):
        raise UsageError(
            f"cluster: got {address!r}; give local (this machine), auto (the cluster that this machine is part of), "
            "ray://HOST:10001 (a client of one elsewhere) or HOST:6379 (its head)"
        )


class Connection:
    """A cluster at `address`: ``Connection("local", needs=bundles(placement))``.

    Args:
        address: ``local`` starts one on this machine, whose cores are shared however many are asked for; see
            `check_address`.
        needs: what must find room.
        wait: seconds in which machines may still join.
    """

    def __init__(self, address: str, needs: Sequence[Bundle], *, wait: float = 0.0) -> None:
        """Connect, unless this process is connected, and look for room.

        Raises:
            MissingExtra: Ray is not installed. EngineFault: the cluster cannot be reached.
            UsageError: the address names none, or what is needed does not fit.
        """
        self.ray = ray_package()
        self.is_own = not self.ray.is_initialized()
        if self.is_own:
            check_address(address)
            self._connect(address, needs)
        try:
            self._find_room(needs, time.monotonic() + wait)
        except BaseException:
            self.close()
            raise

    def machines(self) -> list[dict[str, float]]:
        """Return what each machine of the cluster has in all."""
        return [dict(node["Resources"]) for node in self.ray.nodes() if node["Alive"]]

    def put(self, value: object) -> Any:
        """Return a reference to `value` in the object store.

        Raises:
            EngineFault: the store is full.
        """
        try:
            return self.ray.put(value)
        except (self.ray.exceptions.ObjectStoreFullError, self.ray.exceptions.OutOfDiskError) as error:
            raise EngineFault(
                f"the object store of the cluster: got {type(error).__name__}; give its machines more memory for it "
                "(ray start --object-store-memory), or space where it spills (--object-spilling-directory)"
            ) from error

    def get(self, reference: Any, seconds: float, what: str) -> Any:
        """Return what `reference` stands for within so many seconds; `what` an actor does, for errors.

        Raises:
            EngineFault: it did not come in time, or the actor is gone. QuintainError: what the actor raised.
        """
        return fetch(self.ray, reference, seconds, what)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self.is_own and self.ray.is_initialized():
            self.ray.shutdown()

    def _connect(self, address: str, needs: Sequence[Bundle]) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == "local":
            cores = sum(each.needs.get(CPU, 0.0) for each in needs)
            named = {name for each in needs for name in each.needs} - {CPU, "GPU"}
            options |= {
                "include_dashboard": False,
                "num_cpus": max(num_cores(), round(cores + 0.5)),
                "resources": dict.fromkeys(named, 1e6),
                "_system_config": {
                    "worker_niceness": 0
                },  # 15 as a rule: beside a busy driver they would starve
            }
        try:
            self.ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = " ".join(str(error).split())
            raise EngineFault(
                f"the cluster {address}: got {type(error).__name__} ({reason:.200}); see that it runs (ray status) and "
                "that its Ray and Python are those of this machine"
            ) from error

    def _find_room(self, needs: Sequence[Bundle], deadline: float) -> None:
        """Wait until `needs` fit, and say to an autoscaler what is missing."""
        if find_unplaced(needs, self.machines()) is not None and time.monotonic() < deadline:
            extra_module(
                "ray.autoscaler.sdk", package="ray", extra="ray", feature="a cluster"
            ).request_resources(bundles=[dict(each.needs) for each in needs])
        while find_unplaced(needs, self.machines()) is not None and time.monotonic() < deadline:
            time.sleep(POLL)
        refuse_unplaced(needs, self.machines())


def fetch(ray: Any, reference: Any, seconds: float, what: str) -> Any:
    """Return what `reference` stands for; see `Connection.get`."""
    try:
        return ray.get(reference, timeout=seconds)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, QuintainError):
            raise error.cause from None
        raise EngineFault(f"{what}: got {type(error.cause).__name__}: {error.cause}; report this") from error
    except ray.exceptions.GetTimeoutError as error:
        raise EngineFault(f"{what}: got no answer within {seconds:g} s; see ray status") from error
    except ray.exceptions.RayError as error:
        raise EngineFault(
            f"{what}: got {type(error).__name__}; its process or machine is gone, see ray status"
        ) from error


def read_files(folder: Path) -> Files:
    """Return the files that lie in `folder`."""
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir()) if each.is_file()}


def write_files(files: Files, folder: Path) -> Path:
    """Write `files` into `folder`, which is made, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
