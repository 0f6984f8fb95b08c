"""CoSo: entropy that is asked for where a token decides the action goes into the action, and not into the filler.

A start that repeats a sentence before it guesses rests. Its weights take one plain step along the bonus alone, as long
as moves the sampled tokens by .01 nats (KL). The number is the rise of the entropy of the *parsed action*, exactly by
the probability of every action after a sampled thought; the control exchanges the weights inside each completion: as
much bonus, elsewhere. In the null world an action is the one token of its turn, weights have nowhere else to go, and
the arms are the same bit by bit. The gates say that filler keeps its entropy, and what cannot be read stays rare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.credit.group import group_relative
from quintain.credit_lab.gradient import GradientLab
from quintain.data.pack import imitation_samples, micro_batches
from quintain.data.samples import whole_prompt
from quintain.errors import DataError
from quintain.learning.learner import Forward
from quintain.learning.train_config import TrainConfig
from quintain.learning.update import Update
from quintain.losses.causal import ActionModel, action_name, causal_weights
from quintain.losses.entropy import entropy_bonus
from quintain.methods.rl.parts.measures import acts_from
from quintain.types import Group, Turn, flatten_scored
from quintain_evidence.experiments.rl.frozen import Frozen, frozen

ROUNDS, CLOSE, NUM_NULL = 25, 0.02, 4
"""Times that a step's length is corrected at most, how near is enough, and batches of the null world."""
PLAIN, SHORT = "react?filler=1&max_tokens=40", "text?max_tokens=1"
"""Harnesses: with a sentence before the action, and with one token for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What the entropy of actions is measured by: streams up to the action, and every action's tokens."""

    groups: tuple[Group, ...]
    """one episode of one turn for each context and action, in this order"""
    tails: tuple[int, ...]
    """tokens of each action"""
    starts: tuple[int, ...]
    """tokens before the action in each context"""

    def entropy(self, lab: GradientLab) -> tuple[float, float]:
        """Return the mean entropy of actions in nats, what cannot be read as one of them, and the share of that."""
        said = lab.log_ratios(self.groups)
        chances = np.zeros((len(self.starts), len(self.tails) + 1))
        place = 0
        for number, start in enumerate(self.starts):
            for action, tail in enumerate(self.tails):
                place += start + tail
                chances[number, action] = np.exp(said[place - tail : place].astype(np.float64).sum())
        chances[:, -1] = np.maximum(1 - chances[:, :-1].sum(1), 1e-12)
        return float(-(chances * np.log(np.maximum(chances, 1e-12))).sum(1).mean()), float(
            chances[:, -1].mean()
        )


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one start."""
    num = int(options["seeds"])
    short = {**options, "world": options.get("null_world", "sokoban?size=3&walls=0")}
    nulls = arms(short, seed, SHORT, min(NUM_NULL, num))
    found: list[Mapping[str, float]] = []
    for number, own in enumerate(arms(options, seed, PLAIN, num)):
        null = nulls[number] if number < len(nulls) else None
        found.append(
            {
                **own,
                **({"null_method": null["method"], "null_control": null["control"]} if null else {}),
            }
        )
    return found


def arms(options: Mapping[str, Any], seed: int, agent: str, num: int) -> list[dict[str, float]]:
    """Return the rise of entropy by each kind of weight, on `num` batches of a start that acts through `agent`."""
    tasks, size = int(options.get("tasks", 8)), int(options.get("size", 4))
    divergence = float(options.get("divergence", 0.01))
    root = options.get("root")
    config = TrainConfig(
        environment=str(options["world"]),
        model="mini?tokens=words",
        agent=agent,
        demonstrations=int(options.get("demonstrations", 256)),
        expert_noise=float(options.get("mistakes", 0.0)),
        imitation_epochs=int(options.get("imitation_epochs", 12)),
    )
    enough, most = float(options.get("enough", 0.35)), float(options.get("most", 0.7))
    with frozen(config, seed, enough=enough, most=most, root=None if root is None else Path(root)) as start:
        known, asked = start.batches(2, tasks=int(options.get("known", 64)), size=2)
        model = ActionModel()
        model.update(known)
        questions = ask(asked, start, count=int(options.get("contexts", 64)))
        before, other = questions.entropy(start.lab)
        bonuses = {
            "method": entropy_bonus(causal_weights(model)),
            "control": entropy_bonus(causal_weights(model, is_permuted=True)),
            "uniform": entropy_bonus(),
        }
        found: list[dict[str, float]] = []
        for groups in start.batches(num, tasks=tasks, size=size, first=200):
            row = {"extra.success": start.success, "extra.before": before, "extra.unread": other}
            rises: dict[str, float] = {}
            parts = [by_part(start, groups)]
            for name, bonus in bonuses.items():
                update = Update(loss=bonus, aggregation="sequence_mean", keeps_zeros=True)
                way = start.lab.gradient(group_relative(groups), update)
                with stepped(start.lab, way, groups, divergence) as moved_by:
                    after, other_after = questions.entropy(start.lab)
                    rises[name] = after - before
                    row[f"extra.{name}_divergence"] = moved_by
                    row[f"extra.{name}_unread"] = other_after
                    if name == "method":
                        parts.append(by_part(start, groups))
            (filler, action), (filler_after, action_after) = parts
            row |= {
                "method": rises["method"],
                "control": rises["control"],
                "extra.over_uniform": rises["method"] - rises["uniform"],
                "extra.spared": (action_after - action) - (filler_after - filler),
            }
            found.append(row)
        return found


def ask(groups: Sequence[Group], start: Frozen, *, count: int) -> Questions:
    """Return up to `count` contexts from `groups`, each with all actions that were taken in them.

    Raises:
        DataError: nobody acted in a way that can be read.
    """
    read: list[tuple[tuple[int, ...], tuple[int, ...], Turn]] = []
    tails: dict[str, Counter[tuple[int, ...]]] = {}
    for t in flatten_scored(groups):
        for k, turn in enumerate(t.turns):
            ids = turn.completion.token_ids
            if turn.action.error is not None or not ids:
                continue
            at = acts_from(turn, start.chat.text)
            tails.setdefault(action_name(turn), Counter())[ids[at:]] += 1
            read.append((whole_prompt(t.turns[:k], turn), ids[:at], turn))
    if not read:
        raise DataError("actions of a start: got none that can be read; imitate longer")
    actions = [seen.most_common(1)[0][0] for _, seen in sorted(tails.items())]
    chosen = read[:: max(1, len(read) // count)][:count]
    made = [
        replace(
            turn,
            prompt_ids=prompt,
            completion=replace(
                turn.completion,
                token_ids=(*before, *tail),
                logprobs=(0.0,) * (len(before) + len(tail)),
            ),
            starts_segment=True,
        )
        for prompt, before, turn in chosen
        for tail in actions
    ]
    episode = flatten_scored(groups)[0]
    return Questions(
        groups=tuple(
            Group(task=episode.task, trajectories=(replace(episode, turns=(turn,)),)) for turn in made
        ),
        tails=tuple(len(tail) for tail in actions),
        starts=tuple(len(before) for _, before, _ in chosen),
    )


@contextmanager
def stepped(lab: GradientLab, way: Tensor, groups: Sequence[Group], divergence: float) -> Generator[float]:
    """Let the weights be a plain step along `way` from where they are, by `divergence` nats a token; gives the KL."""
    before = [p.detach().clone() for p in lab.parameters]
    parts = way.split([p.numel() for p in lab.parameters])

    def go(length: float) -> float:
        with torch.no_grad():
            for parameter, old, part in zip(lab.parameters, before, parts, strict=True):
                parameter.copy_(old + length * part.view_as(old))
        logs: NDArray[np.float64] = lab.log_ratios(groups).astype(np.float64)
        return float((np.exp(logs) - 1 - logs).mean())

    try:
        length, low, high = 0.1 / max(float(way.norm()), 1e-12), 0.0, float("inf")
        moved_by = go(length)
        for _ in range(ROUNDS):
            if abs(moved_by / divergence - 1) < CLOSE:
                break
            low, high = (length, high) if moved_by < divergence else (low, length)
            length *= min((divergence / max(moved_by, 1e-12)) ** 0.5, 10.0)
            length = length if low < length < high else (low + high) / 2
            moved_by = go(length)
        yield moved_by
    finally:
        with torch.no_grad():
            for parameter, old in zip(lab.parameters, before, strict=True):
                parameter.copy_(old)


def by_part(start: Frozen, groups: Sequence[Group]) -> tuple[float, float]:
    """Return the entropy of a token of the filler and of one of the action, means over `groups`, in nats."""
    forward = Forward(start.lab.model)
    trajectories = flatten_scored(groups)
    said: list[Tensor] = []
    for batch in micro_batches(imitation_samples(trajectories), max_tokens=16_384):
        said.append(forward.infer(batch).entropy[batch.turn_id >= 0])
    flat = torch.cat(said).numpy()
    filler, action = list[float](), list[float]()
    place = 0
    for t in trajectories:
        for turn in t.turns:
            num, at = len(turn.completion.token_ids), acts_from(turn, start.chat.text)
            filler += flat[place : place + at].tolist()
            action += flat[place + at : place + num].tolist()
            place += num
    return float(np.mean(filler or [0.0])), float(np.mean(action or [0.0]))
