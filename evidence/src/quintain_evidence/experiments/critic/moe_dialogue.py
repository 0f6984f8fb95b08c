"""Mixture-of-expert dialogue management: does a manager that reads what the experts would say beat every blind mixture?

`collab`: a user tells some of three slots at once and the others when asked. Four scripted experts speak: one asks for
what is not known, one for what is, one hands in (with guesses for what is not known), one makes small talk. The best
single expert earns next to nothing, and any selector beats it, so the number is the return of a manager less that of
the best state-blind mixture, a grid over the simplex on tuning tasks, both on other tasks. The manager has a
hidden layer over the words of the talk and of a candidate. It learns offline, from talks in which experts were drawn at
random, through the shipped targets and loss, and then takes the best candidate. The control is given the texts of the
candidates in another order than they stand in, in training and after. In the null world all four candidates are of the
expert who hands in, each with guesses of its own: nothing that can be read tells which is right.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.agents.experts import MANAGER, ExpertsWorld
from quintain.credit.layout import Critic
from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.losses.own_q import own_q
from quintain.methods.critic.moe_dialogue import choice_targets
from quintain.testing.pupil import tasks_from
from quintain.types import (
    Action,
    Completion,
    Group,
    Outputs,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_text,
    derive_seed,
)
from quintain.worlds.collab.game import Collab

SPEC = "collab?slots=3&values=4&told=0.5"
Script = Callable[[Collab, random.Random], str]
Choose = Callable[[str, random.Random], int]
"""(what the manager is shown, chance) → place of the candidate that is said"""


def asks(world: Collab, rng: random.Random) -> str:
    """Ask for a slot that is not known, for any where all are."""
    known, names = world.snapshot().known, world.shape.names
    return f"ask {rng.choice([name for slot, name in enumerate(names) if slot not in known] or names)}"


def repeats(world: Collab, rng: random.Random) -> str:
    """Ask for a slot that is known, for nothing where none is."""
    known, names = world.snapshot().known, world.shape.names
    return f"ask {rng.choice([names[slot] for slot in sorted(known)] or ['again'])}"


def decides(world: Collab, rng: random.Random) -> str:
    """Hand in what is known, and guesses."""
    now, shape = world.snapshot(), world.shape
    chosen = (
        value if slot in now.known else rng.choice(shape.options(slot))
        for slot, value in enumerate(now.values)
    )
    return f"submit {', '.join(chosen)}"


def talks(_: Collab, rng: random.Random) -> str:
    """Say something that leads nowhere."""
    return rng.choice(("how are you", "nice to hear", "what a day"))


EXPERTS: tuple[Script, ...] = (asks, repeats, decides, talks)
HIDDEN = 32
COPIES: tuple[Script, ...] = (decides,) * 4


def opened() -> Collab:
    """Return the world."""
    world = find(SPEC)()
    assert isinstance(world, Collab), "the world of the claim"
    return world


def talk(task: Task, scripts: Sequence[Script], choose: Choose, seed: int) -> Trajectory:
    """Return the choices of a manager in one talk, a turn each: what it was shown, the place that it chose, the pay."""
    inner = opened()
    world = ExpertsWorld(inner, ("asks", "repeats", "decides", "talks"))
    shown = as_text(begin(world, task))
    rng, turns, is_success = random.Random(derive_seed("talk", seed, task.seed)), list[Turn](), False
    while True:
        for script in scripts:
            shown = as_text(advance(world, Action(text=script(inner, rng))).observation)
        place = choose(shown, rng)
        result = advance(world, Action(text=str(place + 1)))
        turns.append(
            Turn(
                seat=MANAGER, observation=(), prompt_ids=(0,), starts_segment=True,
                completion=Completion(token_ids=(place,), logprobs=(0.0,), stop="stop"),
                action=Action(text=shown), reward=result.reward,
            )
        )  # fmt: skip
        if result.is_terminated or result.is_truncated:
            is_success = bool(result.is_success)
            break
    value = sum(turn.reward for turn in turns)
    return Trajectory(
        task=task, turns=tuple(turns), outcome=Score(value=value, is_success=is_success), stop=Stop.TERMINATED,
        seed=seed, group=task.id, index=0,
    )  # fmt: skip


def returns(tasks: Sequence[Task], scripts: Sequence[Script], choose: Choose, seed: int) -> float:
    """Return the mean return over `tasks`."""
    return fmean(
        found.outcome.value
        for found in (talk(task, scripts, choose, seed) for task in tasks)
        if isinstance(found.outcome, Score)
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """What a manager is shown, taken apart: ``Shown({"color:"}, [{"ask", "size"}, …])``."""

    talk: frozenset[str]
    candidates: tuple[frozenset[str], ...]


@cache
def read(text: str) -> Shown:
    """Return the words that the other said, and those of the candidates in order."""
    said = set[str]()
    candidates: list[frozenset[str]] = []
    for line in text.splitlines():
        who, _, words = line.partition(": ")
        if who == "other":
            said |= {word.strip(".") for word in words.lower().split()}
        elif who.isdigit():
            candidates.append(frozenset(words.lower().replace(",", " ").split()))
    return Shown(frozenset(said), tuple(candidates))


class Chooser:
    """Scores of candidates and a value of the talk, by a hidden layer each: ``Chooser(words, order, 0).learn(talks)``.

    `order` says in which order it reads the candidates that it is shown as `text`: the control's is another.
    """

    def __init__(self, words: Sequence[str], order: Callable[[str], Sequence[int]], seed: int) -> None:
        self._place = {word: place for place, word in enumerate(words)}
        self._order = order
        made, num = torch.Generator().manual_seed(seed), len(words) + 1

        def weights(*shape: int) -> Tensor:
            drawn = torch.randn(*shape, generator=made, dtype=torch.float64) / HIDDEN**0.5
            return drawn.requires_grad_()

        self.of_talk, self.of_candidate, self.of_worth = (
            weights(num, HIDDEN),
            weights(num, HIDDEN),
            weights(num, HIDDEN),
        )
        self.score, self.worth = weights(HIDDEN), weights(HIDDEN)

    def features(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return the words of the talks [T, words], and of the candidates [T, experts, words], as it reads them."""
        num, width = len(texts), len(self._place) + 1
        talks, candidates = np.zeros((num, width)), np.zeros((num, len(EXPERTS), width))
        talks[:, -1] = candidates[:, :, -1] = 1
        for row, text in enumerate(texts):
            shown = read(text)
            talks[row, [self._place[word] for word in shown.talk if word in self._place]] = 1
            for place, source in enumerate(self._order(text)):
                own = [self._place[w] for w in shown.candidates[source] if w in self._place]
                candidates[row, place, own] = 1
        return torch.from_numpy(talks), torch.from_numpy(candidates)

    def said(self, features: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return log π of the candidates [T, experts], and V [T]."""
        talks, candidates = features
        pairs = (talks @ self.of_talk).unsqueeze(1) + candidates @ self.of_candidate
        return (pairs.relu() @ self.score).log_softmax(-1), (talks @ self.of_worth).relu() @ self.worth

    @torch.no_grad()
    def choose(self, text: str, _: random.Random) -> int:
        """Return the place of the best candidate."""
        return int(self.said(self.features([text]))[0].argmax())

    def learn(self, talks: Sequence[Trajectory], options: Mapping[str, Any]) -> float:
        """Learn from `talks` offline; return the mean TD error at the end, in absolute size."""
        groups = [Group(task=t.task, trajectories=(t,)) for t in talks]
        turns = [turn for t in talks for turn in t.turns]
        features = self.features([turn.action.text for turn in turns])
        chosen = torch.tensor([turn.completion.token_ids[0] for turn in turns])
        rows = torch.arange(len(turns))
        weights = [self.of_talk, self.of_candidate, self.of_worth, self.score, self.worth]
        optimizer = torch.optim.AdamW(
            weights, lr=float(options.get("rate", 0.01)), weight_decay=float(options.get("decay", 0.1))
        )
        loss = own_q(float(options.get("softness", 0.1)), float(options.get("conservatism", 0.0)))
        error = 0.0
        for _ in range(int(options.get("targets", 16))):
            with torch.no_grad():
                before = iter(self.said(features)[1].numpy())
            values = [[np.array([next(before)]) for _ in t.turns] for t in talks]
            known = Critic(values=values)
            credit = choice_targets(
                groups, lambda _, known=known: known, discount=float(options.get("discount", 0.9))
            )
            batch = pack(samples_from(credit))
            targets = (batch.turn_id >= 0).nonzero().squeeze(1)
            empty = torch.zeros(len(batch.token_ids), dtype=torch.float64)
            batch = replace(batch, returns=batch.returns.double(), loss_weight=batch.loss_weight.double())
            for _ in range(int(options.get("updates", 15))):
                logs, worth = self.said(features)
                outputs = Outputs(
                    logprobs=empty.index_copy(0, targets, logs[rows, chosen]),
                    entropy=empty.index_copy(0, targets, -(logs.exp() * logs).sum(-1)),
                    values=empty.index_copy(0, targets, worth),
                )
                report = loss(outputs, batch)
                optimizer.zero_grad()
                report.loss.backward()
                optimizer.step()
                error = report.metrics["q/error"]
        return error**0.5


def known_words(talks: Sequence[Trajectory]) -> list[str]:
    """Return the words that are heard or read in a tenth of `talks` or more."""
    counts = Counter[str]()
    for t in talks:
        shown = [read(turn.action.text) for turn in t.turns]
        counts.update(set[str]().union(*(s.talk for s in shown), *(c for s in shown for c in s.candidates)))
    return sorted(word for word, count in counts.items() if count >= len(talks) / 10)


def as_shown(_: str) -> Sequence[int]:
    """Return the order in which candidates stand."""
    return range(len(EXPERTS))


def displaced(text: str) -> Sequence[int]:
    """Return another order, the same whenever the same is shown."""
    places = list(range(len(EXPERTS)))
    random.Random(derive_seed("displaced", text)).shuffle(places)
    return places


def anyone(_: str, rng: random.Random) -> int:
    """Choose any candidate."""
    return rng.randrange(len(EXPERTS))


def blind(
    shares: Sequence[float], scripts: Sequence[Script], tasks: Sequence[Task], seed: int
) -> NDArray[np.float64]:
    """Return the return in each of `tasks` of drawing the expert of every turn by `shares`."""
    world, found = opened(), np.zeros(len(tasks))
    for number, task in enumerate(tasks):
        begin(world, task)
        rng, is_over = random.Random(derive_seed("blind", seed, task.seed)), False
        while not is_over:
            script = rng.choices(scripts, shares)[0]
            result = advance(world, Action(text=script(world, rng)))
            found[number] += result.reward
            is_over = result.is_terminated or result.is_truncated
    return found


def best_mixture(scripts: Sequence[Script], tasks: Sequence[Task], parts: int, seed: int) -> list[float]:
    """Return the shares of the mixture, of a grid of `parts`, with the highest mean return over `tasks`."""
    grid = [
        [each / parts for each in shares]
        for shares in product(range(parts + 1), repeat=len(scripts))
        if sum(shares) == parts
    ]
    return max(grid, key=lambda shares: blind(shares, scripts, tasks, seed).mean())


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` managers, each with talks and tasks of its own, against the mixture of the block."""
    parts = int(options.get("parts", 8))
    first = derive_seed("moe_dialogue", seed) % 1_000_000
    tuning = tasks_from(SPEC, int(options.get("tuning", 128)), first=first)
    shares = best_mixture(EXPERTS, tuning, parts, seed)
    return [
        replication(shares, options, first + 10_000 * (number + 1), derive_seed(seed, number))
        for number in range(int(options["seeds"]))
    ]


def replication(
    shares: Sequence[float], options: Mapping[str, Any], first: int, seed: int
) -> dict[str, float]:
    """Return what managers with their own talks come to, beyond the mixture with `shares`."""
    num, held = int(options.get("talks", 600)), int(options.get("held_out", 128))
    tasks = tasks_from(SPEC, num + held, first=first)
    shown, held_out = tasks[:num], tasks[num:]
    found: dict[str, float] = {}
    for prefix, scripts in (("", EXPERTS), ("null_", COPIES)):
        data = [talk(task, scripts, anyone, seed) for task in shown]
        words = known_words(data)
        mixture = float(blind(shares, scripts, held_out, seed).mean())
        for arm, order in (("method", as_shown), ("control", displaced)):
            manager = Chooser(words, order, seed % (1 << 62))
            error = manager.learn(data, options)
            found[f"{prefix}{arm}"] = returns(held_out, scripts, manager.choose, seed) - mixture
            if not prefix and arm == "method":
                found["extra.error"] = error
        if not prefix:
            found["extra.mixture"] = mixture
            found["extra.anyone"] = fmean(t.outcome.value for t in data if isinstance(t.outcome, Score))
            for place, name in enumerate(("asks", "repeats", "decides", "talks")):
                found[f"extra.share_{name}"] = shares[place]
        read.cache_clear()
    world = opened()
    found["extra.expert"] = fmean(play(world, task, expert).total for task in held_out)
    return found
