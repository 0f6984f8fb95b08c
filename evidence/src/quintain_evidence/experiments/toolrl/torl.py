"""ToRL: does RL gain by what tools tell, where something is to be worked out?

A policy that knows the form of a call and nothing else learns by the method's own reward, credit and loss. The number
is what it gains in success on held-out problems of two operations. The control is the same world in which calls are
answered by what those of another task were told: the same calls at the same cost. In the null world there is nothing
to be worked out, and what calls tell cannot help. Doses are the cap: problems of one and of two operations, with 0, 1
and 2 calls an answer.

The rival is the same RL without tools: what is done in the head comes out right half the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from quintain.methods.toolrl import torl
from quintain.rewards.efficiency import num_calls
from quintain.types import Group, derive_seed
from quintain_evidence.experiments.toolrl.calculating import Setting, success, tasks

HEAD = 0.5
"""How often what is done in the head comes out right."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of gains in success."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("torl", seed, number)
        real, real_calls, start = gain(Setting(steps=(2,)), options, own)
        other, other_calls, _ = gain(Setting(steps=(2,), results="permuted"), options, own)
        easy, easy_calls, _ = gain(Setting(steps=(0,)), options, own)
        easy_other, _, _ = gain(Setting(steps=(0,), results="permuted"), options, own)
        head, _, _ = gain(Setting(steps=(2,), calls=0, thinks=HEAD), options, own)
        doses = [gain(Setting(steps=(1, 2), calls=calls), options, own)[0] for calls in range(3)]
        found.append(
            {
                "method": real,
                "control": other,
                "null_method": easy,
                "null_control": easy_other,
                "extra.start": start,
                "extra.head": head,
                "extra.calls": real_calls - easy_calls,
                "extra.control_calls": other_calls,
                **{f"extra.cap{calls}": dose for calls, dose in enumerate(doses)},
            }
        )
    return found


def gain(setting: Setting, options: Mapping[str, Any], seed: int) -> tuple[float, float, float]:
    """Return the gain in success by RL in `setting`, the calls of an answer after it, and the success before it."""
    start = setting.table(seed)
    pool, fresh = tasks("train", seed, 64), tasks("eval", seed, int(options.get("held_out", 256)))
    method = torl.method(torl.Config())
    end = setting.trained(
        start, method, pool, batches=int(options["batches"]), rate=float(options["rate"]), seed=seed
    )
    before, after = (setting.play(policy, fresh, size=1, seed=seed) for policy in (start, end))
    return success(after) - success(before), mean_calls(after), success(before)


def mean_calls(groups: Sequence[Group]) -> float:
    """Return the calls of an episode but for its answer."""
    return fmean(num_calls(t) for group in groups for t in group.trajectories)
