"""A run's actors on a cluster, under one handle: ``Cluster("local", Placement())``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from quintain.distributed.connection import Connection, read_files
from quintain.distributed.engine_host import EngineHost
from quintain.distributed.fleet import Fleet, FleetHome
from quintain.distributed.placement import CPU, GPU, Engines, Placement, Workers, bundle, bundles
from quintain.distributed.replicas import ServedReplicas
from quintain.distributed.version import own_version
from quintain.distributed.worker import Harness, Scene, Worker
from quintain.engines.protocol import Engine
from quintain.engines.settings import EngineSettings
from quintain.models.save import save
from quintain.rollout.request import Limits

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_ASKED = 10_000
"""Requests that an engine's actor has open at once."""


class Cluster:
    """Engines and workers of a run on the cluster at `address`, as `placement` says.

    `num_policies` act, and the learner has `num_ranks`: what they need is looked for before anything starts.
    """

    def __init__(
        self, address: str, placement: Placement, *, num_policies: int = 1, num_ranks: int = 0
    ) -> None:
        """Connect.

        Raises:
            MissingExtra, EngineFault, UsageError: see `Connection`.
        """
        self.placement = placement
        needs = bundles(placement, num_policies=num_policies, num_ranks=num_ranks)
        self.connection = Connection(address, needs, wait=placement.wait)
        self.engines: dict[str, ServedReplicas] = {}
        self._tokenizers: dict[str, bytes] = {}
        self._opening: Any = None
        self.fleet = Fleet(
            self.connection, self._begin, self._mend, placement.workers, start_timeout=placement.start_timeout
        )

    def engine(
        self,
        settings: EngineSettings,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        policy: str,
        host: type[EngineHost] = EngineHost,
    ) -> Engine:
        """Start the copies of the engine that serves `model` as `policy`; all before the first episode.

        `host` is the class of their actors.

        Raises:
            EngineFault: they do not start. ModelError: the model cannot be loaded there.
        """
        kind = self._actor(host, self.placement.engines, max_restarts=-1, max_concurrency=MAX_ASKED)
        handles = [kind.remote() for _ in range(self.placement.engines.replicas)]
        with tempfile.TemporaryDirectory(prefix="quintain-cluster-") as place:
            folder = save(model, tokenizer, Path(place) / "model")
            tokenizer.save_pretrained(Path(place) / "tokenizer")
            for name, content in read_files(Path(place) / "tokenizer").items():
                self._tokenizers[f"{policy}/{name}"] = content
            served = self.engines[policy] = ServedReplicas(
                self.connection, handles, folder, settings,
                policy=policy, start_timeout=self.placement.start_timeout,
            )  # fmt: skip
        return cast(Engine, served)

    def home(
        self,
        environment: str,
        harnesses: Mapping[str, Harness],
        *,
        seats: Mapping[str, str],
        limits: Limits,
        max_staleness: int,
    ) -> FleetHome:
        """Return what makes sources of episodes in `environment`, acted in through `harnesses` by policy."""
        scene = Scene(
            environment=environment,
            harnesses=tuple(harnesses.items()),
            seats=tuple(seats.items()),
            limits=limits,
            max_staleness=max_staleness,
        )
        return FleetHome(self.fleet, scene)

    def close(self) -> None:
        """End all actors and leave the cluster."""
        self.fleet.close()
        for engine in self.engines.values():
            engine.close()
        self.connection.close()

    def _begin(self, name: str) -> tuple[Any, Any]:
        """Start a worker."""
        if self._opening is None:
            links = {policy: engine.link for policy, engine in self.engines.items()}
            self._opening = self.connection.put(links), self.connection.put(self._tokenizers)
        handle = self._actor(
            Worker, self.placement.workers, max_concurrency=self.placement.workers.episodes
        ).remote()
        return handle, handle.open.remote(own_version(), name, *self._opening)

    def _mend(self) -> None:
        """Bring back engines that were lost."""
        for engine in self.engines.values():
            engine.mend()

    def _actor(self, kind: type, wants: Engines | Workers, **options: Any) -> Any:
        """Return what makes actors of a `kind` that get what they want."""
        needs = dict(bundle("", wants).needs)
        return self.connection.ray.remote(
            num_cpus=needs.pop(CPU, 0.0), num_gpus=needs.pop(GPU, 0.0), resources=needs,
            scheduling_strategy="SPREAD", **options,
        )(kind)  # fmt: skip
