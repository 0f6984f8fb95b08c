"""Optima (arXiv 2410.08115): seats learn to talk less and readably, by a reward of tokens.

R = R_task - λ_token · tokens/most + λ_loss/loss.

Generate, rank, select, train. Dialogues of a task are ranked by what they solve, by their tokens against those of
the longest, and by how plain their most surprising message is to the *starting* policy
(`quintain.rewards.dialogue`). With ``learn=sft`` the best dialogue of each task is imitated where it is worth more
than `threshold` and among the best `keep_fraction` of tasks; with ``dpo`` messages are preferred; ``hybrid`` takes
turns, imitation first. All seats are played and learned by one policy, or by those that `seats` name.

Preferences are of a tree of messages: from a message that is drawn by its worth, the conversation is continued three
times, and again. What a message is worth is the mean of all conversations through it. The best child of a message
against the worst is a pair where the best is worth more than `min_value` and they differ by more than `min_gap`;
the half with the largest differences is kept. A message that says nearly what an expanded one said is not expanded, and
children that say nearly the same are one.

Differences to the paper: no pool of prompts for other formats in the first round, temperature does it; losses below
`min_loss` count as that, for a tiny model finds much of what it says certain; a message is compared with others of
its own depth alone, and in tokens; the half that is kept is that of all pairs, where the code halves those of a task;
the code hands the two bounds of a pair over in each other's place. An environment's own price of messages is a second
one: `twocards?cost=0` has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.credit.layout import outcome_of
from quintain.data.pairs import Pairs, extremes, top_share
from quintain.data.pipeline import Pipeline, PipelineResult, check_stage
from quintain.data.seats import split_seats
from quintain.errors import ConfigError
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.losses.preference import dpo
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, Needs
from quintain.rewards.dialogue import dialogue_rewards, edit_distance
from quintain.rewards.efficiency import Count, num_tokens
from quintain.search.episodes import Episodes, path_of
from quintain.search.tree import Node, Path, Seen
from quintain.search.tree_search import Budget, TreeSearch
from quintain.types import Batch, Example, Group, LossReport, Outputs, Trajectory

Surprise = Callable[[Collector, Sequence[Trajectory]], list[float]]
"""(collector, dialogues) → nats of the most surprising message of each"""
Said = tuple[tuple[int, ...], ...]
"""the tokens of each message from the first on"""
WAYS, CANDIDATES = 3, 10
"""Ways on from a message that is expanded, and messages of which it is drawn."""
TWIN, SAME = 0.25, 0.1
"""Edits over length below which a message is not expanded beside its twin, and below which two children are one."""
KEPT = 0.5
"""Share of pairs that are learned from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of Optima."""

    renamed: ClassVar[Mapping[str, str]] = {
        "share": "keep_fraction",
        "least_gap": "min_gap",
        "least_loss": "min_loss",
        "least_value": "min_value",
    }
    """earlier names of options"""

    environment: str = "twocards?cost=0"
    """Name of the environment; several seats make it a dialogue."""
    steps: int = 6
    num_epochs: PositiveInt = 2
    tasks: PositiveInt = 64
    group_size: PositiveInt = 8
    """Dialogues of a task; in rounds of dpo the messages that are expanded, the beginning among them."""
    learn: Literal["sft", "dpo", "hybrid"] = "hybrid"
    """Imitate the best dialogues, prefer the better messages, or both in turn."""
    token_weight: NonNegativeFloat = 0.6
    """λ_token: what the longest dialogue of a task pays for its tokens."""
    loss_weight: NonNegativeFloat = 1.0
    """λ_loss: what a dialogue is paid for messages that are plain to the starting policy."""
    min_loss: PositiveFloat = 1.0
    """Nats a token below which no message is plainer."""
    threshold: float = 0.5
    """Worth above which a dialogue is imitated."""
    keep_fraction: Share = 0.7
    """Share of the best dialogues of all tasks that are imitated."""
    min_value: float = 0.4
    """Worth that the better message of a pair has to be above."""
    min_gap: NonNegativeFloat = 0.2
    """Difference of worth above which two messages are a pair."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the policy that began the round."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        PreferenceRoundsConfig.check(self)
        if not self.keep_fraction:
            raise ConfigError(
                f"keep_fraction: got {self.keep_fraction}, with which nothing is imitated; give a number above 0"
            )


def method(config: Config) -> Rounds:
    """Return Optima as `config` describes it."""
    return rounds_of(config, partial(Dialogues, config))


def rounds_of(config: Config, make: Callable[[], Dialogues]) -> Rounds:
    """Return the rounds in which the dialogues that `make` returns for each are ranked and learned from."""
    likelihood, preference = imitation(), dpo(config.beta)

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        return (preference if batch.extra.num_pairs else likelihood)(outputs, batch)

    return Rounds(
        collect=lambda collector, step: make().collect(collector, step),
        update=Update(loss=loss, has_reference=True, is_own_reference=True, is_on_policy=False, lr_warmup=0),
        needs=Needs(branches=True, reference=True),
    )


def most_surprising(collector: Collector, dialogues: Sequence[Trajectory]) -> list[float]:
    """Return the nats a token of the most surprising message of each dialogue, under the starting policy."""
    said = collector.logprobs(dialogues, by="reference")
    return [max((-float(turn.mean()) for turn in turns if len(turn)), default=0.0) for turns in said]


@dataclass(slots=True)
class Dialogues:
    """The dialogues of a round, task by task, with what each is worth, and which messages were expanded."""

    config: Config
    count: Count = num_tokens
    surprise: Surprise = most_surprising
    families: list[Family] = field(default_factory=list["Family"])
    is_preferring: bool = False
    """whether messages are preferred in this round, not dialogues imitated"""
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    """draws the messages that are expanded"""

    def collect(self, collector: Collector, step: int) -> Collected:
        """Return dialogues of each task, of a tree the first ones, and what is learned of them."""
        config = self.config
        self.is_preferring = config.learn == "dpo" or (config.learn == "hybrid" and step % 2 == 0)
        tasks = collector.tasks(step, config.tasks)
        self.families = [
            Family(
                root=Node(seen=Seen(key=task.id, text="", place=task)),
                rate=self._rate,
                chance=lambda: self.rng,
            )
            for task in tasks
        ]
        ground = Episodes(
            player=collector,
            step=step,
            size=WAYS if self.is_preferring else config.group_size,
            name="ways on",
            phase="branch",
            is_by_depth=False,
        )
        search = TreeSearch(
            trees=self.families,
            ground=ground,
            budget=Budget(rounds=config.group_size if self.is_preferring else 1),
            score=partial(self._score, collector),
        )
        for number in search.grow():
            self.rng = np.random.default_rng(collector.seed("messages", step, number))
        groups = ground.groups[: len(tasks)]
        return Collected(groups=groups, data=[self.build(split_seats(groups))], metrics=self.metrics())

    def build(self, groups: Sequence[Group]) -> PipelineResult | Pairs:
        """Return the dialogues that are imitated, or the pairs of messages."""
        config = self.config
        if self.is_preferring:
            found = [each for family in self.families for each in family.children(config.min_value)]
            return top_share(extremes(found, margin=config.min_gap), KEPT)
        places = select_best(
            [family.worth for family in self.families], config.threshold, config.keep_fraction
        )
        best = [family.dialogues[k] for family, k in zip(self.families, places, strict=True) if k is not None]
        kept = {(each.group, each.index) for each in best}

        def is_kept(example: Example) -> bool:
            own = example.trajectory  # of one seat, whose group is named after that of the dialogue
            return any((name, own.index) in kept for name in (own.group, own.group.rpartition("/")[0]))

        ranked = check_stage(
            "ranked", "is not the best dialogue of its task, or not worth imitating", is_kept
        )
        return Pipeline(ranked)(groups)

    def metrics(self) -> Mapping[str, float]:
        """Return tokens and worth of a dialogue and nats of its most surprising message, as means of the round."""
        told = {
            "optima/tokens": [
                float(self.count(each)) for family in self.families for each in family.dialogues
            ],
            "optima/worth": [worth for family in self.families for worth in family.worth],
            "optima/surprise": [loss for family in self.families for loss in family.losses],
        }
        return {name: fmean(values) for name, values in told.items() if values}

    def _score(self, collector: Collector, found: Sequence[Sequence[Path]]) -> list[list[float | None]]:
        """Return the nats of the most surprising message of each new dialogue."""
        nats = iter(self.surprise(collector, [path[0].place for paths in found for path in paths]))
        return [[next(nats) for _ in paths] for paths in found]

    def _rate(self, dialogues: Sequence[Trajectory], losses: Sequence[float]) -> list[float]:
        """Return what each of a task's dialogues is worth, beside the others of it."""
        config = self.config
        return dialogue_rewards(
            list(map(outcome_of, dialogues)),
            list(map(self.count, dialogues)),
            losses,
            token_weight=config.token_weight,
            loss_weight=config.loss_weight,
            min_loss=config.min_loss,
        )


@dataclass(slots=True, kw_only=True)
class Family:
    """The dialogues of one task as a tree of messages, and those after which several ways were tried."""

    root: Node = field(default_factory=lambda: Node(seen=Seen(key="", text="")))
    rate: Callable[[Sequence[Trajectory], Sequence[float]], list[float]]
    chance: Callable[[], np.random.Generator]
    dialogues: list[Trajectory] = field(default_factory=list[Trajectory])
    expanded: list[Said] = field(default_factory=list[Said])
    """what was said up to a message that was expanded; () is the beginning"""
    worth: list[float] = field(default_factory=list[float])
    losses: list[float] = field(default_factory=list[float])

    def select(self) -> Node | None:
        """See `SearchTree`; the beginning comes first."""
        if not self.expanded:
            return self.root
        return self.draw(self.chance()) if self.dialogues else None

    def back_up(self, node: Node, paths: Sequence[Path], scores: Sequence[float | None]) -> None:
        """See `SearchTree`; what all dialogues are worth depends on the longest of them."""
        self.expanded.append(message_tokens(node.seen.place)[: node.depth] if node.depth else ())
        self.dialogues += [path[0].place for path in paths]
        self.losses += [score or 0.0 for score in scores]
        self.worth = self.rate(self.dialogues, self.losses)
        if self.dialogues:
            self.root.seen = replace(self.root.seen, place=self.dialogues[0])

    def draw(self, rng: np.random.Generator) -> Node:
        """Return a message to expand, drawn by worth among the best; the beginning where there is none left."""
        through: dict[Node, list[float]] = {}
        for each, worth in zip(self.dialogues, self.worth, strict=True):
            for node in self._messages(each)[:-1]:
                through.setdefault(node, []).append(worth)
        open_ones = [(fmean(values), node) for node, values in through.items() if not self._is_twin(node)]
        ranked = sorted(open_ones, key=lambda each: -each[0])[:CANDIDATES]
        if not ranked:
            return self.root
        weights = np.exp(np.array([value - ranked[0][0] for value, _ in ranked]))
        return ranked[int(rng.choice(len(ranked), p=weights / weights.sum()))][1]

    def _messages(self, dialogue: Trajectory) -> list[Node]:
        """Return the messages of `dialogue` in the tree, which they are put into."""
        found, node = list[Node](), self.root
        for seen in path_of(dialogue):
            node = node.children.setdefault(seen.key, Node(seen=seen, parent=node))
            found.append(node)
        return found

    def children(self, least: float) -> list[list[tuple[Trajectory, float]]]:
        """Return the ways on from each expanded message whose best is worth more than `least`, each up to its message.

        Ways on that say nearly the same are one, which is worth the mean of all.
        """
        found: list[list[tuple[Trajectory, float]]] = []
        for said in dict.fromkeys(self.expanded):
            depth = len(said)
            ways: list[tuple[Trajectory, list[float]]] = []
            for each, worth in zip(self.dialogues, self.worth, strict=True):
                own = message_tokens(each)
                if own[:depth] != said or len(own) == depth:
                    continue
                same = next(
                    (w for t, w in ways if edit_distance(message_tokens(t)[depth], own[depth]) < SAME), None
                )
                if same is None:
                    ways.append((replace(each, turns=each.turns[: depth + 1]), [worth]))
                else:
                    same.append(worth)
            valued = [(trajectory, fmean(values)) for trajectory, values in ways]
            if valued and max(value for _, value in valued) > least:
                found.append(valued)
        return found

    def _is_twin(self, node: Node) -> bool:
        """Return whether `node` was expanded, or says nearly what an expanded message of its depth says."""
        said = message_tokens(node.seen.place)[: node.depth]
        return any(
            len(other) == len(said) and edit_distance(other[-1], said[-1]) < TWIN
            for other in self.expanded
            if other
        )


def message_tokens(dialogue: Trajectory) -> Said:
    """Return the tokens of each message."""
    return tuple(turn.completion.token_ids for turn in dialogue.turns)


def select_best(worth: Sequence[Sequence[float]], threshold: float, share: float) -> list[int | None]:
    """Return the place of the best of each group; None where that is not above `threshold`, or below the best `share`.

    Of several groups above the threshold the best `share` stay, at least one, and who ties with the last of them.
    Example: worth (1, 2), (3, 0), (.1,), threshold .5 and share .5 → None, 0, None.
    """
    best = [max(range(len(own)), key=lambda k: (own[k], -k)) if own else None for own in worth]
    values = [own[k] for own, k in zip(worth, best, strict=True) if k is not None and own[k] > threshold]
    if not values:
        return [None] * len(worth)
    cut = sorted(values, reverse=True)[max(1, math.floor(share * len(values) + 1e-9)) - 1]
    return [
        k if k is not None and own[k] > threshold and own[k] >= cut else None
        for own, k in zip(worth, best, strict=True)
    ]
