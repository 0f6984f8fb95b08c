"""RLAdapter: does what an adviser is told get better by what came of its own advice?

Crafting with recipes drawn anew, two tiers deep. An adapter as a table chooses two of the facts that it sees, by their
kinds: the goal, what is done, the recipes of the goal and of others, what lies about, what is held. Its rows are shared
by tasks of a goal with as much done. The adviser knows only these two facts and names what to make; a frozen script
goes for that in nine of ten turns. Every round the table imitates messages through the stage that ships: those whose
sub-goal was reached in their own interval by a step that is paid. The number is the share of queries in other tasks at
which the sub-goal is what the expert makes next. The control imitates as many messages, paid what others were paid: the
outcomes are permuted among the episodes of the round. In the null world the adviser knows everything, whatever it is
told, so that no message is better than another.

Beside it: what success is lost where sub-goals of another episode are followed (without a loss they would be
decoration), how well the cosine of advice and behaviour tells true pairs from shuffled ones, and the rival: an adapter
that imitates all its messages, whatever came of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.agents.adviser import ADAPTER, REACHED, UNDERSTOOD, AdvisedWorld
from quintain.agents.experience import likeness
from quintain.credit_lab.permute import permute
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.methods.critic.rladapter import messages
from quintain.testing.pupil import tasks_from
from quintain.types import (
    Action,
    Completion,
    Example,
    Group,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    derive_seed,
)
from quintain.worlds.craft.game import Craft
from quintain_evidence.labs.seats import executor

SPEC = "craft?recipes=drawn&depth=2&reward=dense"
KINDS = ("goal", "done", "own recipe", "recipe of the table", "another recipe", "have", "place")
MESSAGES = tuple(combinations(KINDS, 2))
GOALS = ("table", "wood pickaxe", "wood sword")
FOLLOWS, EVERY, QUERIES = 0.9, 8, 4
Advise = Callable[[AdvisedWorld, str], str]
"""(world, message) → sub-goal"""


class Listening(AdvisedWorld):
    """An advised agent whose adviser is `by`."""

    def __init__(self, by: Advise) -> None:
        super().__init__(find(SPEC)(), every=EVERY, queries=QUERIES)
        self._by = by

    def advise(self, message: str) -> str:
        """Return what the adviser of this world says."""
        return self._by(self, message)

    @property
    def craft(self) -> Craft:
        """The world inside."""
        return cast(Craft, self.inner)


def told(world: AdvisedWorld, message: str) -> str:
    """Return the advice of one who knows the message alone."""
    return cast(Craft, world.inner).advise(message)


def knowing(world: AdvisedWorld, _: str) -> str:
    """Return the advice of one who knows everything."""
    return cast(Craft, world.inner).expert_thing()


def kind_of(fact: str, goal: str) -> str:
    """Return of which of `KINDS` a fact is, where the `goal` is known."""
    plain = fact.removeprefix("recipes: ")
    name, _, rest = plain.partition(": ")
    if name in ("goal", "done"):
        return name
    if plain.startswith("have"):
        return "have"
    if name in GOALS and rest[:1].isdigit():
        return (
            "own recipe"
            if name == goal != "table"
            else "recipe of the table"
            if name == "table"
            else "another recipe"
        )
    return "place"


def row_of(world: Listening) -> int:
    """Return the row of the table: the goal, and whether anything is done."""
    facts = world.facts()
    goal = next(fact.removeprefix("goal: ") for fact in facts if fact.startswith("goal: "))
    return 2 * GOALS.index(goal) + ("done: nothing" not in facts)


def spoken(world: Listening, message: int) -> str:
    """Return message number `message` in the words of what is seen: of several facts of a kind the first."""
    facts = world.facts()
    goal = GOALS[row_of(world) // 2]
    return "; ".join(
        next((fact for fact in facts if kind_of(fact, goal) == kind), "") for kind in MESSAGES[message]
    )


@dataclass
class Played:
    """What came of some episodes."""

    episodes: list[Trajectory] = field(default_factory=list[Trajectory])
    """the adapter's turns: prompt the row, sampled the message, reward whether its sub-goal was reached"""
    is_right: list[list[float]] = field(default_factory=list[list[float]])
    """[episode][query] whether the sub-goal was what the expert makes next"""
    subgoals: list[list[str]] = field(default_factory=list[list[str]])
    behaviour: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """what was advised, and what was done"""
    successes: list[float] = field(default_factory=list[float])


def play(logits: Tensor, tasks: Sequence[Task], by: Callable[[int], Advise], seed: int) -> Played:
    """Return what comes of `tasks` with the adapter `logits` [rows, messages] and the adviser `by`(episode)."""
    chances = logits.softmax(-1).numpy()
    found = Played()
    act = executor(
        lambda e, hint: cast(Listening, e).craft.follow(hint), lambda seen: str(seen[-1]), follows=FOLLOWS
    )
    for number, task in enumerate(tasks):
        world = Listening(by(number))
        begin(world, task)
        rng = random.Random(derive_seed("played", seed, task.seed))
        turns, right, subgoals, done = list[Turn](), list[float](), list[str](), list[str]()
        is_over = is_success = False
        while not is_over:
            if world.seat() == ADAPTER:
                row, best = row_of(world), world.craft.expert_thing()
                message = rng.choices(range(len(MESSAGES)), chances[row])[0]
                result = advance(world, Action(text=spoken(world, message)))
                right.append(float(world.subgoal == best))
                subgoals.append(world.subgoal)
                turns.append(
                    Turn(
                        seat=ADAPTER, observation=(), prompt_ids=(row,), starts_segment=True,
                        completion=Completion(token_ids=(message,), logprobs=(0.0,), stop="stop"),
                        action=Action(text=world.message),
                    )
                )  # fmt: skip
                continue
            action = act(world, rng, (world.subgoal,))
            done.append(action.text)
            result = advance(world, action)
            is_over, is_success = result.is_terminated or result.is_truncated, bool(result.is_success)
            if REACHED in result.reward_terms:
                assert UNDERSTOOD in result.reward_terms, "both are told when an interval ends"
                turns[-1] = replace(turns[-1], reward=result.reward_terms[REACHED])
                found.behaviour.append((subgoals[-1], " ".join(done)))
                done = []
        found.episodes.append(
            Trajectory(
                task=task, turns=tuple(turns), outcome=Score(value=float(is_success), is_success=is_success),
                stop=Stop.TERMINATED, seed=seed, group=task.id, index=0,
            )
        )  # fmt: skip
        found.is_right.append(right)
        found.subgoals.append(subgoals)
        found.successes.append(float(is_success))
    return found


def imitate(logits: Tensor, examples: Sequence[Example], options: Mapping[str, Any]) -> Tensor:
    """Return `logits` after steps of imitation of the messages in `examples` by their weights."""
    rows, said, weights = list[int](), list[int](), list[float]()
    for example in examples:
        assert example.weights is not None, "every message was weighed"
        for turn, weight in zip(example.trajectory.turns, example.weights, strict=True):
            rows.append(turn.prompt_ids[0])
            said.append(turn.completion.token_ids[0])
            weights.append(float(weight[0]))
    table = logits.clone().requires_grad_()
    optimizer = torch.optim.Adam([table], lr=float(options.get("rate", 0.1)))
    counts = torch.tensor(weights, dtype=torch.float64)
    for _ in range(int(options.get("updates", 10))):
        optimizer.zero_grad()
        chosen = table.log_softmax(-1)[rows, said]
        (-(counts * chosen).sum() / counts.sum().clamp(min=1)).backward()
        optimizer.step()
    return table.detach()


def shuffled(episodes: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `episodes` whose messages are paid what others were paid."""
    paid = [turn.reward for t in episodes for turn in t.turns]
    new = iter(permute(paid, ["all"] * len(paid), seed=seed, moves_all=False).values)
    return [replace(t, turns=tuple(replace(turn, reward=next(new)) for turn in t.turns)) for t in episodes]


def praise(episodes: Sequence[Trajectory], _: int) -> list[Trajectory]:
    """Return `episodes` whose messages are all paid as if their sub-goals had been reached."""
    return [replace(t, turns=tuple(replace(turn, reward=1.0) for turn in t.turns)) for t in episodes]


def leave_as_is(episodes: Sequence[Trajectory], _: int) -> list[Trajectory]:
    """Return `episodes` as they were paid."""
    return list(episodes)


PAYMENTS = {"method": leave_as_is, "control": shuffled, "extra.all": praise}
"""arm → what its messages are paid"""


def trained(tasks: Sequence[Task], by: Advise, options: Mapping[str, Any], seed: int, arm: str) -> Tensor:
    """Return the adapter of `arm` after the rounds, from a start that says any two facts."""
    logits = torch.zeros(2 * len(GOALS), len(MESSAGES), dtype=torch.float64)
    size = int(options.get("tasks", 48))
    for number in range(int(options.get("rounds", 6))):
        part = tasks[number * size : (number + 1) * size]
        own = play(logits, part, lambda _: by, derive_seed(seed, "round", number)).episodes
        paid = PAYMENTS[arm](own, derive_seed(seed, "shuffled", number))
        made = messages()([Group(task=t.task, trajectories=(t,)) for t in paid])
        logits = imitate(logits, made.examples, options)
    return logits


def share(played: Played) -> float:
    """Return the share of queries whose sub-goal was right."""
    return fmean(right for own in played.is_right for right in own)


def auc(pairs: Sequence[tuple[str, str]], seed: int) -> float:
    """Return how often advice is more like what was done than what was done after other advice, equal ones a half."""
    rng = random.Random(seed)
    wins = list[float]()
    for advice, done in pairs:
        _, other = rng.choice([each for each in pairs if each[0] != advice] or [("", "")])
        own, theirs = likeness(advice, done), likeness(advice, other)
        wins.append(0.5 if own == theirs else float(own > theirs))
    return fmean(wins)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` adapters, each with tasks of its own."""
    return [replication(options, derive_seed("rladapter", seed, n)) for n in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what adapters come to on other tasks."""
    num, held = (
        int(options.get("rounds", 6)) * int(options.get("tasks", 48)),
        int(options.get("held_out", 96)),
    )
    tasks = tasks_from(SPEC, num + held, first=seed % 1_000_000)
    shown, held_out = tasks[:num], tasks[num:]
    found: dict[str, float] = {}
    for prefix, by in (("", told), ("null_", knowing)):
        for arm in ("method", "control") if prefix else PAYMENTS:
            logits = trained(shown, by, options, seed, arm)
            own = play(logits, held_out, lambda _, by=by: by, derive_seed(seed, "held out"))
            found[f"{prefix}{arm}"] = share(own)
            if prefix:
                continue
            found[f"extra.success_{arm.removeprefix('extra.')}"] = fmean(own.successes)
            if arm == "method":
                found |= swapped(logits, held_out, own, seed)
                found["extra.auc"] = auc(own.behaviour, derive_seed(seed, "pairs"))
    start = play(torch.zeros(6, len(MESSAGES), dtype=torch.float64), held_out, lambda _: told, seed)
    found["extra.start"] = share(start)
    return found


def swapped(logits: Tensor, tasks: Sequence[Task], own: Played, seed: int) -> dict[str, float]:
    """Return the success that is lost where the sub-goals of other episodes are followed."""
    others: NDArray[np.int64] = np.random.default_rng(derive_seed(seed, "swapped") % (1 << 63)).permutation(
        len(tasks)
    )

    def of_another(number: int) -> Advise:
        said = own.subgoals[int(others[number])]
        return lambda world, _: said[min(world.num_queries, len(said) - 1)]

    lost = play(logits, tasks, of_another, derive_seed(seed, "held out"))
    return {"extra.lost": fmean(own.successes) - fmean(lost.successes)}
