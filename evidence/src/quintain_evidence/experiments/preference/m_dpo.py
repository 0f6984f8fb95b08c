"""M-DPO: what does it do to the update of a pair that observations are left out of it?

Sokoban on a slippery floor: an episode is won or lost partly by slips, which only observations tell. A tiny model
imitated an expert who errs, until it solves some tasks; then its weights rest. Pairs of an episode that solved its task
and one that did not give an update of DPO at the reference, once as it ships, where the sampled tokens count, and once
with as many tokens of each side at random places after its first prompt, observations among them. The number is the
cosine of the update with the gradient of success on other episodes. In the null world episodes have one turn: there is
nothing but what was sampled, and both updates are the same.

Beside it: the cosine where all tokens after the first prompt count, and that of the same pairs with KTO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from quintain.credit_lab.gradient import GradientLab, success_credit
from quintain.data.pairs import pair_wins_with_losses
from quintain.data.samples import imitation_samples, pair_samples
from quintain.environments.noisy import noisy
from quintain.learning.update import Update
from quintain.losses.preference import dpo, kto
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Batch, Group, Loss, LossReport, Outputs, Sample, derive_seed
from quintain_evidence.labs.tabular import cosine

ONE_TURN = "guess?high=3&max_turns=1"
Weigh = Callable[[Sample, np.random.Generator], Sample]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of pairs of one checkpoint."""
    world = str(options.get("spec", "sokoban?size=3&walls=0&slip=0.2"))
    found = batches(world, options, seed)
    null = batches(ONE_TURN, {**options, "tasks": 12, "updates": 120, "batches": 2}, seed + 1)
    for number, row in enumerate(found):
        same = null[number % len(null)]
        row |= {"null_method": same["method"], "null_control": same["control"]}
    return found


def batches(world: str, options: Mapping[str, Any], seed: int) -> list[dict[str, float]]:
    """Return what each batch of pairs says in `world`."""
    pupil = taught(world, options, seed)
    lab, num = GradientLab(pupil.model), int(options.get("batches", options.get("seeds", 6)))
    size, group = int(options.get("tasks", 12)), int(options.get("group_size", 6))
    judge = success_gradient(lab, played(pupil, world, 3 * size, group, seed, "judge"))
    rows: list[dict[str, float]] = []
    for number in range(num):
        groups = played(pupil, world, size, group, derive_seed(seed, number), "pairs")
        pairs = pair_wins_with_losses(groups, 2)
        rng = np.random.default_rng(derive_seed(seed, number) % (1 << 63))
        streams = pair_samples(list(pairs))
        found = {
            name: direction(lab, [weigh(stream, rng) for stream in streams], dpo(0.1))
            for name, weigh in WEIGHS.items()
        }
        one_by_one = direction(lab, streams, kto(0.1))
        rows.append(
            {
                "method": cosine(found["sampled"], judge),
                "control": cosine(found["anywhere"], judge),
                "extra.all": cosine(found["all"], judge),
                "extra.kto": cosine(one_by_one, judge),
                "extra.pairs": float(len(pairs)),
                "extra.success": float(np.mean([t.is_success for g in groups for t in g.trajectories])),
            }
        )
    return rows


def taught(world: str, options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a pupil that imitated an expert who errs."""
    pupil = new_pupil(
        [world],
        seed=derive_seed("m_dpo", seed) % (1 << 31),
        model=str(options.get("model", "micro?tokens=words")),
    )
    shown = pupil.show(
        world,
        tasks_from(world, int(options.get("shown", 150)), first=derive_seed(seed, "shown") % 1_000_000),
        noisy(float(options.get("mistakes", 0.2))),
        seed=seed,
    )
    pupil.learn(
        imitation_samples(shown),
        updates=int(options.get("updates", 80)),
        rate=float(options.get("rate", 4e-3)),
        seed=seed,
    )
    return pupil


def played(pupil: Pupil, world: str, count: int, size: int, seed: int, what: str) -> list[Group]:
    """Return `size` episodes of each of `count` tasks."""
    tasks = tasks_from(world, count, first=derive_seed(seed, what) % 1_000_000)
    return pupil.play(world, tasks, size=size, seed=derive_seed(seed, what))


def success_gradient(lab: GradientLab, groups: Sequence[Group]) -> Tensor:
    """Return the direction in which success rises, by leave-one-out over `groups`."""
    return lab.gradient(success_credit(groups))


def direction(lab: GradientLab, streams: Sequence[Sample], loss: Loss) -> Tensor:
    """Return the direction of `loss` against the policy as it is."""

    def at_reference(outputs: Outputs, batch: Batch) -> LossReport:
        extra = replace(batch.extra, reference_logprobs=outputs.logprobs.detach(), kl=0.0)
        return loss(outputs, replace(batch, extra=extra))

    return lab.of_samples(streams, Update(loss=at_reference, aggregation="sequence_mean"))


def sampled(stream: Sample, _: np.random.Generator) -> Sample:
    """Return `stream` as it ships."""
    return stream


def everything(stream: Sample, _: np.random.Generator) -> Sample:
    """Return `stream` with all tokens after its first prompt counting."""
    return counting(stream, np.arange(begin(stream), len(stream.token_ids)))


def anywhere(stream: Sample, rng: np.random.Generator) -> Sample:
    """Return `stream` with as many tokens counting as were sampled, at random places after its first prompt."""
    places = np.arange(begin(stream), len(stream.token_ids))
    return counting(stream, rng.choice(places, int((stream.turn_id >= 0).sum()), replace=False))


def counting(stream: Sample, places: np.ndarray[Any, np.dtype[np.int64]]) -> Sample:
    """Return `stream` whose tokens at `places` count, and no other."""
    weight, turns = np.zeros_like(stream.loss_weight), np.full_like(stream.turn_id, -1)
    weight[places], turns[places] = 1.0, 0
    return replace(stream, loss_weight=weight, turn_id=turns)


def begin(stream: Sample) -> int:
    """Return the place of the first sampled token."""
    return int(np.argmax(stream.turn_id >= 0))


WEIGHS: Mapping[str, Weigh] = {"sampled": sampled, "anywhere": anywhere, "all": everything}
