"""AndroidGen: do failed episodes teach up to their last subgoal, or is any piece of a failure as good?

A start that fills in forms of `web` half-way rests. Only failures of its own are looked at: the turns up to the last
subgoal that was reached and kept, and as many tokens of a window at a random place of the same episode. The number
compares both gradients with the gradient of success of other episodes. A second control cuts at the place of another
failure: what is left there is more than being early. In the null world there is one subgoal, which no failure holds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from quintain.benchmarks.labs.gradient import compare_choices, leave_out, success_credit
from quintain.benchmarks.labs.permute import permute
from quintain.benchmarks.labs.pupil import Pupil, new_pupil, tasks_from
from quintain.data.pipeline import as_example, example_samples, weigh_turns
from quintain.environments.noisy import noisy
from quintain.methods.imitation.atlas import ask_progress
from quintain.methods.rl.parts.contexts import ExpertLabels
from quintain.methods.selftraining import androidgen
from quintain.types import Example, Sample, Trajectory, derive_seed, scored

FAR = 100_000
"""Number of the first task that failures are of; starts learn from the tasks before."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one start: cosines of prefixes and of windows with success."""
    world, num = str(options["world"]), int(options["seeds"])
    own, success = cosines(world, options, seed)
    null_world = str(options.get("null_world", "web?goal=open&depth=1"))
    nulls, _ = cosines(null_world, {**options, "low": 0.0, "high": 1.0}, seed)
    return [
        {
            "method": own["method"][k],
            "control": own["control"][k],
            "null_method": nulls["method"][k],
            "null_control": nulls["control"][k],
            "extra.over_elsewhere": own["method"][k] - own["elsewhere"][k],
            "extra.start": success,
        }
        for k in range(num)
    ]


def cosines(world: str, options: Mapping[str, Any], seed: int) -> tuple[dict[str, list[float]], float]:
    """Return cosines of the arms of a start in `world`, batch by batch, and the success of the start."""
    num, size = int(options["seeds"]), int(options.get("episodes", 32))
    model = str(options.get("model", "mini?tokens=words"))
    start = new_pupil([world], seed=derive_seed("android", seed) % (1 << 31), model=model)
    tasks = tasks_from(world, int(options.get("demonstrations", 256)))
    shown = start.show(world, tasks, noisy(float(options.get("mistakes", 0.2))), seed=seed)
    success = start.learn_until(
        example_samples([as_example(t) for t in shown]),
        world,
        low=float(options.get("low", 0.3)),
        high=float(options.get("high", 0.6)),
        first=int(options.get("first", 40)),
        rate=float(options.get("learning_rate", 4e-3)),
    )
    targets = success_gradients(start, world, num, int(options.get("reference", 64)), seed)
    critic = ExpertLabels(world, ask_progress)
    played = scored(
        start.play(world, tasks_from(world, num * size, first=FAR), seed=derive_seed(seed, "own"))
    )
    sets: dict[str, list[list[Sample]]] = {name: [] for name in ("method", "control", "elsewhere")}
    rng = random.Random(seed)
    for k in range(num):
        failed = [t for t in played[k * size : (k + 1) * size] if not t.is_success]
        kept = [androidgen.num_kept(critic.labels(t)) for t in failed]
        pairs = [(t, n) for t, n in zip(failed, kept, strict=True) if n]
        for name, examples in choices(pairs, rng, derive_seed(seed, k)).items():
            sets[name].append(example_samples(examples) if examples else [])
    return compare_choices(start.lab, sets, targets), success


def choices(
    pairs: Sequence[tuple[Trajectory, int]], rng: random.Random, seed: int
) -> dict[str, list[Example]]:
    """Return what counts of each failure: its prefix, a window of as many tokens, a prefix as long as another's."""
    lengths = [n for _, n in pairs]
    others = permute(lengths, seed=seed).values if len(pairs) > 1 else lengths
    return {
        "method": [window(t, 0, tokens(t, n)) for t, n in pairs],
        "control": [window(t, rng.randrange(len(t.turns)), tokens(t, n)) for t, n in pairs],
        "elsewhere": [
            window(t, 0, tokens(t, min(n, len(t.turns)))) for (t, _), n in zip(pairs, others, strict=True)
        ],
    }


def tokens(trajectory: Trajectory, num: int) -> float:
    """Return the sampled tokens of the first `num` turns."""
    return float(sum(len(turn.completion.token_ids) for turn in trajectory.turns[:num]))


def window(trajectory: Trajectory, first: int, wanted: float) -> Example:
    """Return `trajectory` in which turns from `first` on count until they have as many tokens as `wanted`.

    Where it ends too soon, the window goes on at the beginning; the last turn counts in part.
    """
    num = len(trajectory.turns)
    weights = [0.0] * num
    for place in range(num):
        turn = (first + place) % num
        size = len(trajectory.turns[turn].completion.token_ids)
        weights[turn] = min(1.0, wanted / size) if size else 0.0
        wanted -= weights[turn] * size
        if wanted <= 1e-9:
            break
    return weigh_turns(as_example(trajectory), weights)


def success_gradients(start: Pupil, world: str, num: int, size: int, seed: int) -> list[Tensor]:
    """Return `num` gradients of success in held-out tasks, each of all batches of `size` episodes but one."""
    group = 4
    each = max(1, size // group)
    groups = start.play(world, tasks_from(world, num * each, split="eval"), size=group, seed=seed)
    return leave_out(
        [start.lab.gradient(success_credit(groups[k * each : (k + 1) * each])) for k in range(num)]
    )
