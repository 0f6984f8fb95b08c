"""Self-Rewarding LM: do pairs that a policy judged itself point to success, or any pairs of its own answers?

A start answers sums and judges its answers. It gives four answers to each task and judges each three times; the best
and the worst make a pair. The number compares the gradient of DPO on these pairs with that of success, of other
episodes; the control pairs the same answers by the same scores, permuted within the task. In the null world the
demonstrations judged at random, so that the judge knows nothing, and the form all the same. The agreement of the judge
with the truth, on the policy's own errors, stands beside it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quintain.credit_lab.gradient import cosine, leave_out, success_credit
from quintain.data.pipeline import as_example, example_samples
from quintain.data.samples import pair_samples
from quintain.environments.noisy import NoisyExpert, noisy
from quintain.environments.protocol import Environment
from quintain.learning.update import Update
from quintain.losses.preference import dpo
from quintain.methods.selftraining import self_rewarding
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import (
    Action,
    Batch,
    Group,
    LossReport,
    Observation,
    Outputs,
    Trajectory,
    derive_seed,
    flatten_scored,
)

FAR = 100_000
"""Number of the first task that answers are given to; starts learn from the tasks before."""
VERDICTS = ("right", "wrong")


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one start: cosines of own-judged and of permuted pairs with success."""
    num = int(options["seeds"])
    start, success = taught(options, seed, noisy(0.0))
    own, agreement = cosines(start, options, seed)
    null, at_random = cosines(taught(options, seed, judging_at_random())[0], options, seed)
    return [
        {
            "method": own["method"][k],
            "control": own["control"][k],
            "null_method": null["method"][k],
            "null_control": null["control"][k],
            "extra.start": success,
            "extra.agreement": agreement,
            "extra.null_agreement": at_random,
        }
        for k in range(num)
    ]


def judging_at_random() -> NoisyExpert:
    """Return the demonstrator who answers as the expert does and judges by a coin."""

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        action = noisy(0.0)(environment, rng, seen)
        return Action(text=rng.choice(VERDICTS)) if action.text in VERDICTS else action

    return act


def taught(options: Mapping[str, Any], seed: int, teacher: NoisyExpert) -> tuple[Pupil, float]:
    """Return a pupil that answers some tasks and not all, and its success."""
    world = str(options["world"])
    pupil = new_pupil([world], seed=derive_seed("judge", seed) % (1 << 31), model=str(options["model"]))
    shown = pupil.show(world, tasks_from(world, int(options["demonstrations"])), teacher, seed=seed)
    samples = example_samples([as_example(t) for t in shown])
    pupil.learn(samples, updates=int(options["updates"]), rate=float(options["rate"]))
    return pupil, pupil.success(f"{world}&revisions=0", tasks_from(world, 96, first=FAR // 2), seed=seed)


def cosines(start: Pupil, options: Mapping[str, Any], seed: int) -> tuple[dict[str, list[float]], float]:
    """Return cosines of both arms, and the judge's agreement with the truth over all answers."""
    num, size = int(options["seeds"]), int(options["tasks"])
    world = f"{options['world']}&revisions=0"
    targets = success_gradients(start, world, num, int(options["reference"]), seed)
    groups = start.play(
        world, tasks_from(world, num * size, first=FAR), size=4, seed=derive_seed(seed, "answers")
    )
    answers = judged(start, world, groups, seed)
    rng = random.Random(seed)
    found: dict[str, list[float]] = {"method": [], "control": []}
    for k in range(num):
        names = {group.task.id for group in groups[k * size : (k + 1) * size]}
        own = [answer for answer in answers if answer.task.id in names]
        for name, given in (("method", own), ("control", permuted(own, rng))):
            samples = pair_samples(self_rewarding.prefer_best(given))
            found[name].append(cosine(start.lab.of_samples(samples, FIRST), targets[k]))
    known = [
        (score, answer.trajectories[0].turns[0].reward_terms["answer"] > 0)
        for answer in answers
        if (score := self_rewarding.score_of(answer)) is not None
    ]
    return found, self_rewarding.agreement(known) or 0.0


def judged(start: Pupil, world: str, groups: Sequence[Group], seed: int) -> list[Group]:
    """Return each readable answer with three judgements, as a round of the method collects them."""
    episodes = [t for t in flatten_scored(groups) if len(t.turns) == 2 and t.turns[0].is_valid]
    steps = start.alternatives(world, episodes, size=3, seed=derive_seed(seed, "judged"))
    again = [group for group in steps if group.task.id.endswith("@1")]
    return [
        Group(task=own.task, trajectories=tuple(with_verdict(own, t) for t in others.trajectories))
        for own, others in zip(episodes, again, strict=True)
    ]


def with_verdict(answer: Trajectory, verdict: Trajectory) -> Trajectory:
    """Return `answer` with the one turn of `verdict` in the place of its own."""
    return replace(answer, turns=(answer.turns[0], verdict.turns[-1]))


def permuted(answers: Sequence[Group], rng: random.Random) -> list[Group]:
    """Return `answers` with their judgements permuted within each task."""
    places: dict[str, list[int]] = {}
    for place, answer in enumerate(answers):
        places.setdefault(answer.task.id, []).append(place)
    source = list(range(len(answers)))
    for own in places.values():
        for place, other in zip(own, rng.sample(own, len(own)), strict=True):
            source[place] = other
    return [
        Group(
            task=answer.task,
            trajectories=tuple(
                with_verdict(answer.trajectories[0], replace(t, turns=t.turns[-1:]))
                for t in answers[source[place]].trajectories
            ),
        )
        for place, answer in enumerate(answers)
    ]


def at_equality(outputs: Outputs, batch: Batch) -> LossReport:
    """Return DPO with the policy that sampled as the reference: the first step of a round."""
    return dpo()(outputs, replace(batch, extra=replace(batch.extra, reference_logprobs=batch.logprobs)))


FIRST = Update(loss=at_equality, is_on_policy=False)


def success_gradients(start: Pupil, world: str, num: int, size: int, seed: int) -> list[Any]:
    """Return `num` gradients of success by the answer, of all batches of `size` held-out tasks but one."""
    groups = start.play(world, tasks_from(world, num * size, split="eval"), size=4, seed=seed)
    return leave_out(
        [
            start.lab.gradient(
                success_credit(groups[k * size : (k + 1) * size]), keep=lambda _, turn: turn == 0
            )
            for k in range(num)
        ]
    )
