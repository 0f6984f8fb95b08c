"""ATLaS: does imitating critical turns point nearer to success than imitating as many tokens of other turns?

A start that imitated padded teachers (an expert that looks around in 40 % of its turns, each teacher in a style of its
own) rests. Fresh episodes of the same teachers give the gradients: of the method's critical turns, and of random turns
of the same episode with as many tokens. The reference is the success gradient of the policy's own episodes in held-out
houses, whose clock makes looks cost. Beside it stands a control that draws among turns that are no looks: what is left
there is more than having dropped them. In the null world every turn halves an interval and the marks are arbitrary:
odd numbers in half of the episodes and even ones in the others, by a coin, so that every turn is marked as often.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from quintain.credit_lab.gradient import compare_choices, leave_out, success_credit
from quintain.data.pipeline import Stage, as_example, example_samples, weigh_stage, weigh_turns
from quintain.environments.noisy import make_idler
from quintain.methods.imitation import atlas
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Example, Trajectory, derive_seed
from quintain.warm_start.start import expert_action

NUM_STYLES = 8
LOOK = "look"
FAR = 100_000
"""Number of the first task that gives gradients; starts learn from the tasks before."""
Mark = Callable[[Trajectory], Sequence[float]]
"""episode → weight of each turn"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one start: cosines of critical and of random turns with success."""
    num, world = int(options["seeds"]), str(options["world"])
    rate, ratio = float(options.get("rate", 0.4)), float(options.get("ratio", 0.3))
    words = atlas.Config().critical
    critical = atlas.pipeline(ratio, atlas.rule(world, words)).stages[-1]
    start, success = taught(world, options, seed, lambda k: make_idler(rate, k % NUM_STYLES))
    arms = cosines(
        start,
        world,
        options,
        seed,
        shown(start, world, num * int(options.get("episodes", 32)), seed, rate, FAR),
        {
            "method": (critical, None),
            "control": (critical, lambda t: [1.0] * len(t.turns)),
            "acting": (critical, lambda t: [float(turn.action.text != LOOK) for turn in t.turns]),
        },
    )
    null_world = str(options.get("null_world", "guess?high=16&max_turns=6"))
    sooner = {**options, "first": int(options.get("null_first", 20))}
    other, _ = taught(null_world, sooner, seed, lambda _: expert_action)
    odd = stage_of(marks)
    guesses = [
        t
        for t in other.show(
            null_world,
            tasks_from(null_world, 2 * num * int(options.get("episodes", 32)), first=FAR),
            expert_action,
            seed=derive_seed(seed, "null"),
        )
        if len(t.turns) > 1
    ][: num * int(options.get("episodes", 32))]
    nulls = cosines(
        other,
        null_world,
        options,
        seed,
        guesses,
        {"method": (odd, None), "control": (odd, lambda t: [1.0] * len(t.turns))},
    )
    return [
        {
            "method": arms["method"][k],
            "control": arms["control"][k],
            "null_method": nulls["method"][k],
            "null_control": nulls["control"][k],
            "extra.acting": arms["method"][k] - arms["acting"][k],
            "extra.cosine": arms["method"][k],
            "extra.start": success,
        }
        for k in range(num)
    ]


def taught(
    world: str, options: Mapping[str, Any], seed: int, teacher: Callable[[int], Any]
) -> tuple[Pupil, float]:
    """Return a start that imitated `teacher`(number of the episode) until its success is as asked, and its success."""
    model = str(options.get("model", "mini?tokens=words"))
    pupil = new_pupil([world], seed=derive_seed("start", seed) % (1 << 31), model=model)
    count = int(options.get("demonstrations", 256))
    by_style: list[list[Trajectory]] = []
    tasks = tasks_from(world, count)
    for style in range(NUM_STYLES):
        by_style.append(
            pupil.show(world, tasks[style::NUM_STYLES], teacher(style), seed=derive_seed(seed, style))
        )
    samples = example_samples([as_example(t) for own in by_style for t in own if t.is_success])
    found = pupil.learn_until(
        samples,
        world,
        low=float(options.get("low", 0.3)),
        high=float(options.get("high", 0.6)),
        first=int(options.get("first", 40)),
        rate=float(options.get("learning_rate", 2e-3)),
        size=int(options.get("size", 16)),
    )
    return pupil, found


def shown(pupil: Pupil, world: str, count: int, seed: int, rate: float, first: int) -> list[Trajectory]:
    """Return `count` solved episodes of padded teachers, styles mixed evenly."""
    tasks = tasks_from(world, 2 * count, first=first)
    parts: list[list[Trajectory]] = []
    for style in range(NUM_STYLES):
        own = derive_seed(seed, "shown", style)
        found = pupil.show(world, tasks[style::NUM_STYLES], make_idler(rate, style), seed=own)
        parts.append([t for t in found if t.is_success])
    mixed = [t for row in zip(*parts, strict=False) for t in row]
    return mixed[:count]


def cosines(
    start: Pupil,
    world: str,
    options: Mapping[str, Any],
    seed: int,
    episodes: Sequence[Trajectory],
    arms: Mapping[str, tuple[Stage, Mark | None]],
) -> dict[str, list[float]]:
    """Return the cosines of each arm: a stage that chooses turns, or random turns among a mark's, as many tokens."""
    num, size = int(options["seeds"]), int(options.get("episodes", 32))
    targets = success_gradients(start, world, num, size, seed)
    batches = [episodes[k * size : (k + 1) * size] for k in range(num)]
    sets = {
        name: [
            example_samples(
                as_asked(stage.apply([as_example(t) for t in batch]), among, derive_seed(seed, name, k))
            )
            for k, batch in enumerate(batches)
        ]
        for name, (stage, among) in arms.items()
    }
    return compare_choices(start.lab, sets, targets)


def success_gradients(start: Pupil, world: str, num: int, size: int, seed: int) -> list[Tensor]:
    """Return `num` gradients of success in held-out tasks, each of all batches of `size` episodes but one."""
    group = 4
    tasks = tasks_from(world, num * size // group, split="eval")
    groups = start.play(world, tasks, size=group, seed=seed)
    each = size // group
    found = [start.lab.gradient(success_credit(groups[k * each : (k + 1) * each])) for k in range(num)]
    return leave_out(found)


def as_asked(examples: Sequence[Example], among: Mark | None, seed: int) -> list[Example]:
    """Return `examples` as they are; or with as many tokens of turns `among` those of a mark, drawn at random."""
    if among is None:
        return list(examples)
    rng = random.Random(seed)
    return [instead(example, among(example.trajectory), rng) for example in examples]


def instead(example: Example, among: Sequence[float], rng: random.Random) -> Example:
    """Return `example` whose weight lies on random turns, until they have as many tokens as counted before.

    The last turn drawn counts in part, so that the sums are equal. Turns that `among` says 0 of come last.
    """
    assert example.weights is not None, "a stage has weighed it"
    wanted = sum(float(own.sum()) for own in example.weights)
    turns = example.trajectory.turns
    order = sorted(range(len(turns)), key=lambda k: (not among[k], rng.random()))
    weights = [0.0] * len(turns)
    for turn in order:
        num = len(turns[turn].completion.token_ids)
        weights[turn] = min(1.0, wanted / num)
        wanted -= weights[turn] * num
        if wanted <= 1e-9:
            break
    return weigh_turns(as_example(example.trajectory), weights)


def stage_of(mark: Mark) -> Stage:
    """Return the stage that weighs turns by `mark`, and leaves episodes out in which nothing counts."""
    return weigh_stage("marked", "has no marked turn", mark)


def marks(trajectory: Trajectory) -> list[float]:
    """Return 1 for turns with odd numbers, or with even ones: which of both is a coin of the task."""
    coin = derive_seed("marks", trajectory.task.id) % 2
    return [float((number_of(turn.action) + coin) % 2) for turn in trajectory.turns]


def number_of(action: Any) -> int:
    """Return the number that a guess names."""
    return int(action.tool_calls[0].arguments["number"]) if action.tool_calls else 0
