"""Where the engines of a job sample and its episodes are played: in this process and beside it, or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.agents.protocol import Agent
from quintain.distributed.cluster import Cluster
from quintain.distributed.connection import check_address
from quintain.distributed.placement import load_placement
from quintain.distributed.worker import Harness
from quintain.engines.build import build_engine
from quintain.engines.protocol import Engine
from quintain.engines.settings import EngineSettings, read_engine
from quintain.models.device import find_device
from quintain.rollout.request import Limits
from quintain.rollout.source import Home, Kind
from quintain.training.job import MAIN, Job, PolicySettings, PolicySpec
from quintain.training.outside import find_source
from quintain.training.policies import acts, plan_policies
from quintain.training.sharding.actors import RankActors
from quintain.training.sharding.ranks import RankGroup, Ranks

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
        if job.cluster:
            check_address(job.cluster)
            acting = [name for name, (spec, _) in plan_policies(job, specs).items() if acts(job, name, spec)]
            self.cluster = Cluster(
                job.cluster,
                load_placement(job.placement),
                num_policies=len(acting),
                num_ranks=job.learner_ranks,
            )

    def engine(self, name: str, policy: Policy) -> Engine:
        """Return what samples from `policy`."""
        if self.cluster is None:
            return make_engine(name, policy)
        return self.cluster.engine(
            engine_settings(policy.settings), policy.model, policy.tokenizer, policy=name
        )

    def ranks(self, folder: Path) -> RankGroup | None:
        """Return the ranks in which the policies learn, with `folder` between them and us; None for none.

        Raises:
            EngineFault: they do not start. UsageError: their machines do not see the folder.
        """
        job = self.job
        if not job.learner_ranks:
            return None
        if self.cluster is None:
            return Ranks(job.learner_ranks, device=find_device(job.device).type)
        placement = self.cluster.placement
        return RankActors(
            self.cluster.connection, job.learner_ranks, placement.learner, folder,
            start_timeout=placement.start_timeout,
        )  # fmt: skip

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
        """Leave the cluster."""
        if self.cluster is not None:
            self.cluster.close()
