"""Where the engines of a configuration sample and its episodes are played: in this process and beside it, or on a
cluster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from quintain.agents.protocol import Agent
from quintain.distributed.cluster import Cluster
from quintain.distributed.connection import check_address
from quintain.distributed.placement import Placement, PolicyRanks, load_placement
from quintain.distributed.worker import Harness
from quintain.engines.build import build_engine
from quintain.engines.protocol import Engine
from quintain.engines.settings import SERVERS, EngineSettings, read_engine
from quintain.errors import ConfigError, UsageError
from quintain.learning.policies import acts, plan_policies
from quintain.learning.saved import is_of_run, tokenizer_folder
from quintain.learning.sections import ModelSection, PolicySettings
from quintain.learning.sharding.actors import RankActors
from quintain.learning.sharding.ranks import RankGroup, Ranks
from quintain.learning.sharding.torchrun import join_torchrun
from quintain.learning.train_config import MAIN, PolicySpec, TrainConfig
from quintain.models.device import find_device
from quintain.models.memory import amount
from quintain.rollout.request import Limits
from quintain.rollout.source import Kind, MakeSource
from quintain.runs.memory import Plan, learner_bytes
from quintain.serve.agent_source import find_source
from quintain.warm_start.start import new_model

if TYPE_CHECKING:
    from quintain.learning.policies import Policy


TENSORS = re.compile(r"(?:--tensor-parallel-size|-tp|--pipeline-parallel-size|-pp|--tp-size)[= ](\d+)")
"""Arguments of a server that name how many cards it takes, by which it is multiplied."""
SHARED, MIN_SHARE = 0.9, 0.1
"""Share of a card that a server and a learner on it may take together; and what a server must be left with."""
SLACK = 0.05
"""Share of a card that nobody asks after."""
CONTEXT = 1 << 30
"""Bytes that this program itself may hold of a card beside its tensors."""


def make_engine(name: str, policy: Policy, taken: Collection[int] = ()) -> Engine:
    """Return what samples from `policy` here; of the cards of this machine those `taken` are the learners'."""
    settings = engine_settings(policy.settings, has_adapter=policy.adapter is not None)
    settings = place_servers(settings, taken, cards(), keeps=learner_bytes(policy))
    model = policy.start if settings.adapters else policy.model
    return build_engine(settings, model, policy.tokenizer, policy=name)


def engine_settings(settings: PolicySettings, *, has_adapter: bool = False) -> EngineSettings:
    """Return how a policy with `settings` is served.

    What the text that names its engine leaves open follows from the policy: servers compute in its precision, and those
    that are started here take its LoRA layers as adapters where it `has_adapter`.

    Raises:
        UsageError: the text that names its engine cannot be read.
    """
    given = read_engine(settings.engine)
    usual: dict[str, Any] = {}
    if given["kind"] in SERVERS:
        usual["dtype"] = "bfloat16" if settings.precision == "bf16" else "float32"
        usual["lora_rank"] = settings.lora_rank
        by_files = given.get("weights", "files") == "files"
        usual["adapters"] = has_adapter and by_files and "urls" not in given
    return EngineSettings(max_length=settings.max_context, precision=settings.precision, **{**usual, **given})


class Card(NamedTuple):
    """A card of this machine."""

    total: int
    """its bytes"""
    held: int = 0
    """those of them that other programs hold"""


def place_servers(
    settings: EngineSettings, taken: Collection[int], cards: Sequence[Card], *, keeps: int = 0
) -> EngineSettings:
    """Return `settings` with the cards of each server that is started, and its share of them.

    Args:
        settings: of an engine; those of others than such servers, and what they say already, stay.
        taken: numbers of the cards that learners compute on.
        cards: those of this machine; none where there are none.
        keeps: bytes of its card that the learner takes, which a server on it must leave.

    Raises:
        UsageError: there are not as many cards as the servers need, or too little of them is free.
    """
    if settings.kind not in SERVERS or settings.urls or not cards:
        return settings

    def find_share(number: int) -> float:
        return SHARED - (cards[number].held + (keeps if number in taken else 0)) / cards[number].total

    if not settings.devices:
        settings = replace(settings, devices=_devices(settings, taken, cards))
    chosen = [int(number) for server in settings.devices for number in server.split(",")]
    if not (known := [number for number in chosen if number < len(cards)]):
        return settings
    tightest = min(known, key=find_share)
    share = find_share(tightest)
    if share < MIN_SHARE or (settings.memory or 0) > share + 1 - SHARED:
        card = cards[tightest]
        used = [f"the learner takes about {amount(keeps)}"] * (tightest in taken)
        used += [f"other programs hold {amount(card.held)}"] * (card.held > 0)
        lower = "train LoRA layers, in bf16, with fewer tokens_per_microbatch, or " * (tightest in taken)
        raise UsageError(
            f"engine: got {settings.kind}{f' with memory={settings.memory:g}' if settings.memory else ''} on card "
            f"{tightest} of {amount(card.total)}, of which {' and '.join(used)}; {lower}name another card: "
            f"{settings.kind}?devices={tightest + 1}"
        )
    return settings if settings.memory or share > SHARED - SLACK else replace(settings, memory=share)


def _devices(settings: EngineSettings, taken: Collection[int], cards: Sequence[Card]) -> tuple[str, ...]:
    """Return the cards of each server: those that neither learners nor, as far as it goes, others use."""
    each = math.prod(int(number) for number in TENSORS.findall(settings.arguments)) or 1
    free = [number for number in range(len(cards)) if number not in taken]
    free.sort(key=lambda number: cards[number].held > cards[number].total * SLACK)
    if len(free) >= settings.replicas * each:
        return tuple(
            ",".join(map(str, sorted(free[n * each : (n + 1) * each]))) for n in range(settings.replicas)
        )
    if free or settings.replicas * each > 1:
        raise UsageError(
            f"engine: got {settings.replicas} × {settings.kind} of {each} {'card' if each == 1 else 'cards'}, and "
            f"{len(free)} of the {len(cards)} cards here are free beside the learner's; give replicas="
            f"{max(1, len(free) // each)}, or say which they are to share: {settings.kind}?devices=0,1,…&memory=0.4"
        )
    return (str(min(taken)),)


def check_servers(config: TrainConfig, specs: Mapping[str, PolicySpec], plan: Plan | None) -> None:
    """Refuse servers of `config` that do not serve what is trained, or for which there is no room, before it is loaded.

    Raises:
        UsageError: they compute in another precision, or this machine has no room. EngineFault: one does not answer.
    """
    if config.cluster:
        return
    kept = {part.name: part.least for part in plan.parts} if plan is not None else {}
    for name, (spec, settings) in plan_policies(config, specs).items():
        if not acts(config, name, spec):
            continue
        found, model = engine_settings(settings), settings.model or config.model
        if found.urls and new_model(model) is None:
            folder = str(tokenizer_folder(model)) if is_of_run(model) else model
            build_engine(found, folder, policy=name).close()
        place_servers(
            found, learner_cards(config, specs, config.learner_ranks), cards(), keeps=kept.get(name, 0)
        )


def cards() -> list[Card]:
    """Return the cards of this machine that torch sees."""
    found: list[Card] = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        held = total - free - torch.cuda.memory_reserved(number)
        found.append(Card(total, max(held - CONTEXT, 0)))
    return found


def learner_cards(model: ModelSection, specs: Mapping[str, PolicySpec], ranks: int) -> set[int]:
    """Return the numbers of the cards that the policies of `model` compute on in this process and in its `ranks`."""
    devices = [find_device(settings.device) for _, settings in plan_policies(model, specs).values()]
    found = {device.index or 0 for device in devices if device.type == "cuda"}
    return found | (set(range(ranks)) if found else set())


def check_placement(placement_file: str, policies: Collection[str]) -> Placement:
    """Return the placement in a file; the run has these `policies`.

    Raises:
        ConfigError: it names a policy that the run has not, or the main one. UsageError: there is no such file.
    """
    placement = load_placement(placement_file)
    others = [name for name in policies if name != MAIN]
    if unknown := [name for name in placement.policies if name not in others]:
        raise ConfigError(
            f"policies of a placement: got {unknown[0]!r}; the policies beside the main one are "
            f"{', '.join(others) or 'none'}"
        )
    return placement


class Resources:
    """Engines and sources of episodes of `config`, whose method asks for the policies `specs`."""

    def __init__(self, config: TrainConfig, specs: Mapping[str, PolicySpec]) -> None:
        """Connect to the cluster of the configuration, where it names one.

        Raises:
            MissingExtra: Ray is not installed. EngineFault: the cluster cannot be reached.
            UsageError: it is none, or the placement does not fit.
        """
        self.config, self._specs = config, specs
        self.cluster: Cluster | None = None
        self._ranks: dict[str, RankGroup] = {}
        """those of a policy that has its own, by name, and those of the learner, by none"""
        if config.cluster:
            check_address(config.cluster)
            plan = plan_policies(config, specs)
            self.cluster = Cluster(
                config.cluster,
                check_placement(config.placement, plan),
                num_policies=sum(acts(config, name, spec) for name, (spec, _) in plan.items()),
                num_ranks=0 if join_torchrun() else config.learner_ranks,
            )

    def engine(self, name: str, policy: Policy) -> Engine:
        """Return what samples from `policy`."""
        if self.cluster is None:
            return make_engine(
                name, policy, learner_cards(self.config, self._specs, self.config.learner_ranks)
            )
        return self.cluster.engine(
            engine_settings(policy.settings), policy.model, policy.tokenizer, policy=name
        )

    def ranks(self, name: str, folder: Path) -> RankGroup | None:
        """Return the ranks that compute for the policy `name`, with `folder` between them and us; None: this process.

        Raises:
            EngineFault: they do not start. UsageError: their machines do not see the folder.
        """
        wants = None if self.cluster is None else self.cluster.placement.policies.get(name)
        if wants is None and not self.config.learner_ranks:
            return None
        key = "" if wants is None else name
        if key not in self._ranks:
            self._ranks[key] = self._start(wants, folder / (key or "learner"))
        return self._ranks[key]

    def _start(self, wants: PolicyRanks | None, folder: Path) -> RankGroup:
        """Start the ranks of a policy that `wants` some of its own; None: those of the learner."""
        config, found = self.config, join_torchrun() if wants is None else None
        if found is not None:
            return found.open(folder)
        if self.cluster is None:
            return Ranks(config.learner_ranks, device=find_device(config.device).type)
        placement = self.cluster.placement
        count, each = (config.learner_ranks, placement.learner) if wants is None else (wants.ranks, wants)
        return RankActors(self.cluster.connection, count, each, folder, start_timeout=placement.start_timeout)

    def source(
        self,
        agents: Mapping[str, Agent],
        environment: str,
        limits: Limits,
        *,
        seats: Mapping[str, str],
        usual: Kind = "lockstep",
    ) -> Kind | MakeSource:
        """Return what plays the episodes of `agents` in `environment`: here, the `usual` source."""
        if self.cluster is None:
            return find_source(agents[MAIN], usual)
        config = self.config
        harness = Harness(
            spec=config.agent, temperature=config.temperature, max_tokens=config.max_turn_tokens
        )
        return self.cluster.home(
            environment,
            dict.fromkeys(agents, harness),
            seats=seats,
            limits=limits,
            max_staleness=config.max_staleness,
        )

    def close(self) -> None:
        """End the ranks, and leave the cluster; what computes in them can then not be used any more."""
        for ranks in self._ranks.values():
            ranks.close()
        if self.cluster is not None:
            self.cluster.close()
