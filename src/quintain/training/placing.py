"""Where the engines of a job sample and its episodes are played: in this process and beside it, or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.agents.protocol import Agent
from quintain.distributed.cluster import Cluster
from quintain.distributed.connection import check_address
from quintain.distributed.placement import Placement, PolicyRanks, load_placement
from quintain.distributed.worker import Harness
from quintain.engines.build import build_engine
from quintain.engines.protocol import Engine
from quintain.engines.settings import EngineSettings, read_engine
from quintain.errors import ConfigError
from quintain.models.device import find_device
from quintain.rollout.request import Limits
from quintain.rollout.source import Home, Kind
from quintain.training.job import MAIN, Job, PolicySettings, PolicySpec
from quintain.training.outside import find_source
from quintain.training.policies import acts, plan_policies
from quintain.training.sharding.actors import RankActors
from quintain.training.sharding.ranks import RankGroup, Ranks
from quintain.training.sharding.torchrun import launched

if TYPE_CHECKING:
    from quintain.training.policies import Policy


def make_engine(name: str, policy: Policy) -> Engine:
    """Return what samples from `policy` here."""
    return build_engine(engine_settings(policy.settings), policy.model, policy.tokenizer, policy=name)


def engine_settings(settings: PolicySettings) -> EngineSettings:
    """Return how a policy with `settings` is served.

    Raises:
        UsageError: the text that names its engine cannot be read.
    """
    return EngineSettings(
        max_length=settings.max_context, precision=settings.precision, **read_engine(settings.engine)
    )


def checked_placement(job: Job, specs: Mapping[str, PolicySpec]) -> Placement:
    """Return the placement of `job`, whose method asks for the policies `specs`.

    Raises:
        ConfigError: it names a policy that the run has not, or the main one. UsageError: there is no such file.
    """
    placement = load_placement(job.placement)
    others = [name for name in plan_policies(job, specs) if name != MAIN]
    if unknown := [name for name in placement.policies if name not in others]:
        raise ConfigError(
            f"policies of a placement: got {unknown[0]!r}; the policies beside the main one are "
            f"{', '.join(others) or 'none'}"
        )
    return placement


class Placing:
    """Engines and sources of episodes of `job`, whose method asks for the policies `specs`."""

    def __init__(self, job: Job, specs: Mapping[str, PolicySpec]) -> None:
        """Connect to the cluster of the job, where it names one.

        Raises:
            MissingExtra: Ray is not installed. EngineFault: the cluster cannot be reached.
            UsageError: it is none, or the placement does not fit.
        """
        self.job = job
        self.cluster: Cluster | None = None
        self._ranks: dict[str, RankGroup] = {}
        """those of a policy that has its own, by name, and those of the learner, by none"""
        if job.cluster:
            check_address(job.cluster)
            plan = plan_policies(job, specs)
            self.cluster = Cluster(
                job.cluster,
                checked_placement(job, specs),
                num_policies=sum(acts(job, name, spec) for name, (spec, _) in plan.items()),
                num_ranks=0 if launched() else job.learner_ranks,
            )

    def engine(self, name: str, policy: Policy) -> Engine:
        """Return what samples from `policy`."""
        if self.cluster is None:
            return make_engine(name, policy)
        return self.cluster.engine(
            engine_settings(policy.settings), policy.model, policy.tokenizer, policy=name
        )

    def ranks(self, name: str, folder: Path) -> RankGroup | None:
        """Return the ranks that compute for the policy `name`, with `folder` between them and us; None: this process.

        Raises:
            EngineFault: they do not start. UsageError: their machines do not see the folder.
        """
        wants = None if self.cluster is None else self.cluster.placement.policies.get(name)
        if wants is None and not self.job.learner_ranks:
            return None
        key = "" if wants is None else name
        if key not in self._ranks:
            self._ranks[key] = self._start(wants, folder / (key or "learner"))
        return self._ranks[key]

    def _start(self, wants: PolicyRanks | None, folder: Path) -> RankGroup:
        """Start the ranks of a policy that `wants` some of its own; None: those of the learner."""
        job, found = self.job, launched() if wants is None else None
        if found is not None:
            return found.open(folder)
        if self.cluster is None:
            return Ranks(job.learner_ranks, device=find_device(job.device).type)
        placement = self.cluster.placement
        count, each = (job.learner_ranks, placement.learner) if wants is None else (wants.ranks, wants)
        return RankActors(self.cluster.connection, count, each, folder, start_timeout=placement.start_timeout)

    def source(
        self,
        agents: Mapping[str, Agent],
        environment: str,
        limits: Limits,
        *,
        seats: Mapping[str, str],
        usual: Kind = "lockstep",
    ) -> Kind | Home:
        """Return what plays the episodes of `agents` in `environment`: here, the `usual` source."""
        if self.cluster is None:
            return find_source(agents[MAIN], usual)
        job = self.job
        harness = Harness(spec=job.agent, temperature=job.temperature, max_tokens=job.max_turn_tokens)
        return self.cluster.home(
            environment,
            dict.fromkeys(agents, harness),
            seats=seats,
            limits=limits,
            max_staleness=job.max_staleness,
        )

    def close(self) -> None:
        """End the ranks, and leave the cluster; what computes in them can then not be used any more."""
        for ranks in self._ranks.values():
            ranks.close()
        if self.cluster is not None:
            self.cluster.close()
