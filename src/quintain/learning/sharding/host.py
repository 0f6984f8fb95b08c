"""The other side of `sharding.ranks`: a rank that answers frames, and computes together with the other ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.errors import EngineFault, MemoryShortage, QuintainError, UsageError, name_shortage
from quintain.learning.sharding.heartbeats import BEAT, Heartbeat
from quintain.processes.host import receive, send, take_streams

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

    from quintain.learning.sharding.shard import Shard

Row = dict[str, Any]
RANK_ADVICE = "lower --tokens-per-microbatch, give --gradient-checkpointing true, or more --learner-ranks"
MARK = "mark"
"""The file by which a rank knows the folder."""


class Host:
    """A rank: it holds shards, and does what it is asked."""

    def __init__(self) -> None:
        self._shards: dict[str, Shard] = {}
        self._mesh: Any = None
        self._device: Any = None
        self._thread = 0
        """the thread that does what is asked"""

    def read_heartbeat(self) -> Heartbeat:
        """Return how far the work of this rank has come; may be asked from any thread."""
        if self._mesh is None:
            return Heartbeat()
        groups: list[Any] = [
            self._mesh.get_group(),
            *(each.context_group for each in [*self._shards.values()]),
        ]
        begun = sum(each._get_sequence_number_for_group() for each in groups if each is not None)
        if self._device.type != "cpu":
            return Heartbeat(collectives=begun)
        clock = time.pthread_getcpuclockid(self._thread)
        return Heartbeat(collectives=begun, seconds=time.clock_gettime(clock))

    def serve(self, requests: int, replies: int) -> None:
        """Answer frames from the descriptor `requests` on the descriptor `replies`, until the other side is gone.

        While an answer is computed a sign of life is sent now and then.
        """
        talking, working = threading.Lock(), threading.Event()

        def beat() -> None:
            while True:
                time.sleep(BEAT)
                with talking:
                    if working.is_set():
                        with suppress(OSError):  # whoever asked is gone, which the next read tells
                            send(replies, {"beat": asdict(self.read_heartbeat())})

        threading.Thread(target=beat, name="signs of life", daemon=True).start()
        while (frame := receive(requests)) is not None:
            working.set()
            answer = self.answer(frame["do"], frame["with"])
            with talking:
                working.clear()
                send(replies, {"id": frame["id"], **answer})

    def answer(self, do: str, arguments: Sequence[Any]) -> Row:
        """Return what doing something came to: a value or a fault."""
        handle: Callable[..., object] = getattr(self, f"on_{do}")
        self._thread = threading.get_ident()
        try:
            with name_shortage(f"a rank that was asked to {do}", RANK_ADVICE):
                return {"value": handle(*arguments)}
        except QuintainError as error:
            return {"fault": str(error), "class": type(error).__name__}
        except MemoryError as error:
            return {"fault": str(error) or "no more memory", "class": MemoryShortage.__name__}
        except (RuntimeError, ValueError, OSError) as error:  # of torch, mostly because another rank is gone
            return {"fault": f"{type(error).__name__}: {error}", "class": EngineFault.__name__}

    def on_join(
        self, rank: int, count: int, place: str | Store, device: str, threads: int, seconds: float
    ) -> str:
        """Meet the other ranks at `place`, an address or what they know each other by; return where this computes."""
        # What takes long to import is imported in the process that needs it, not in its keeper.
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        torch.set_num_threads(threads)
        kind = device.partition(":")[0]
        self._device = (
            torch.device(kind, rank % torch.cuda.device_count()) if kind == "cuda" else torch.device(kind)
        )
        if kind == "cuda":
            torch.cuda.set_device(self._device)
        where: Row = {"init_method" if isinstance(place, str) else "store": place}
        dist.init_process_group(
            "cuda:nccl,cpu:gloo" if kind == "cuda" else "gloo",
            rank=rank, world_size=count, timeout=timedelta(seconds=seconds), **where,
        )  # fmt: skip
        self._mesh = init_device_mesh(kind, (count,))
        return str(self._device)

    def on_see(self, folder: str, mark: str) -> None:
        """Make sure that `folder` is the one that the driver sees under this name.

        Raises:
            UsageError: it is another.
        """
        found = Path(folder, MARK)
        if not found.is_file() or found.read_text() != mark:
            raise UsageError(
                f"ranks of the learner: got {folder}, which their machines do not see; put the runs into a folder that "
                "all machines share (--runs)"
            )

    def on_build(self, name: str, spec: Row) -> int:
        """Build this rank's shard of the policy `name` and return how many numbers it holds."""
        from quintain.learning.sharding.shard import Shard, ShardSpec
        from quintain.types.rows import from_row

        shard = self._shards[name] = Shard(from_row(ShardSpec, spec), self._mesh, self._device)
        return shard.num_numbers

    def on_infer(self, name: str, streams: Row) -> list[str | None]:
        """Return what the policy says of `streams`."""
        from quintain.learning.sharding.wire import batch_of, numbers_row

        return numbers_row(self._shards[name].infer(batch_of(streams)))

    def on_forward(self, name: str, streams: Row) -> list[str | None]:
        """Return what the policy says of `streams`, whose gradient will come."""
        from quintain.learning.sharding.wire import batch_of, numbers_row

        return numbers_row(self._shards[name].forward(batch_of(streams)))

    def on_backward(self, name: str, gradients: Sequence[str | None]) -> None:
        """Take the gradient by what was last said."""
        from quintain.learning.sharding.wire import numbers_of

        self._shards[name].backward([part for part in numbers_of(gradients) if part is not None])

    def on_clip(self, name: str) -> float:
        """Clip the gradient."""
        return self._shards[name].clip()

    def on_update(self, name: str, rate_scale: float) -> None:
        """Change the weights by the gradient."""
        self._shards[name].update(rate_scale)

    def on_forget_gradient(self, name: str) -> None:
        """Drop the gradient."""
        self._shards[name].forget_gradient()

    def on_restart(self, name: str) -> None:
        """Forget what the optimizer knows."""
        self._shards[name].restart()

    def on_write_weights(self, name: str, file: str) -> None:
        """Write the trained weights, put together."""
        self._shards[name].write_weights(Path(file))

    def on_read_weights(self, name: str, file: str) -> None:
        """Take over weights."""
        self._shards[name].read_weights(Path(file))

    def on_save(self, name: str, folder: str) -> None:
        """Write weights and optimizer."""
        self._shards[name].save(Path(folder))

    def on_load(self, name: str, folder: str) -> None:
        """Take over what `on_save` wrote."""
        self._shards[name].load(Path(folder))


def main() -> None:
    """Have this process kept, take its standard streams for the frames, and serve."""
    Host().serve(*take_streams())
