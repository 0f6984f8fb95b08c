"""LAM Simulator: is it what an error says that makes the next call right, or only that there was one?

A checkpoint imitates the expert of `toolbox`, who reads errors. On held-out tasks the first call is forced to be wrong.
The next one is sampled twice with the same chance: once behind the error as it was, once behind that of another task,
which names another kind of value (the same errors in all, in another order). The number is the share of next calls that
are carried out, true less swapped. In the null world the line of every tool says what it takes.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quintain.benchmarks.labs.pupil import Pupil, new_pupil, tasks_from
from quintain.data.pipeline import as_example, example_samples
from quintain.data.stages import valid_turns
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment
from quintain.rollout.request import Limits, Options
from quintain.rollout.views import Prefix
from quintain.types import Action, Group, Observation, Text, derive_seed
from quintain.worlds.toolbox.game import Toolbox

ERROR = re.compile(r"Error: (\w+) takes a (\w+)\.")
NOTHING = "value"
"""The word that names no kind, in the place of one that does."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return for every task whether the next call was right behind the true error, and behind a swapped one."""
    model, count = str(options.get("model", "mini?tokens=words")), int(options["seeds"])
    rows: list[dict[str, float]] = []
    for world, key in ((str(options["world"]), ""), (str(options["null_world"]), "null_")):
        pupil = taught(world, options, seed, model)
        tasks = tasks_from(world, 6 * count, split="eval", first=derive_seed(seed, "tasks") % 100_000)
        ahead = forced(pupil, world, tasks, seed, is_told=bool(key))[:count]
        kinds = [kind_in(prefix) for prefix in ahead]
        texts = {"method": kinds, "control": swapped(kinds, seed), "extra.silent": [NOTHING] * len(kinds)}
        found = {
            name: next_calls(
                pupil, world, [told(p, kind) for p, kind in zip(ahead, told_kinds, strict=True)], seed
            )
            for name, told_kinds in texts.items()
        }
        for place in range(len(ahead)):
            if place == len(rows):
                rows.append({})
            for name in ("method", "control", *([] if key else ["extra.silent"])):
                rows[place][f"{key}{name}"] = found[name][place]
    return rows


def taught(world: str, options: Mapping[str, Any], seed: int, model: str) -> Pupil:
    """Return a pupil that imitated the expert of `world`; refused calls are context."""
    pupil = new_pupil([world], seed=derive_seed("lam", seed) % (1 << 31), model=model, agent="text")
    tasks = tasks_from(world, int(options.get("episodes", 400)))
    shown = pupil.show(world, tasks, noisy(0.0), seed=seed)
    pupil.learn(
        example_samples(valid_turns().apply([as_example(t) for t in shown])),
        updates=int(options.get("updates", 400)),
        rate=float(options.get("rate", 4e-3)),
        size=int(options.get("size", 16)),
        seed=seed,
    )
    return pupil


def forced(pupil: Pupil, world: str, tasks: Sequence[Any], seed: int, *, is_told: bool) -> list[Prefix]:
    """Return the moments behind a wrong first call of a tool whose line says what it takes, or does not."""

    def err(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        assert isinstance(environment, Toolbox), "the world is a toolbox"
        kit = environment.snapshot()[0]
        tool = kit.tool(kit.asked[0])
        assert tool is not None, "what is asked for is there"
        if len(seen) > 1 or tool.is_told != is_told:
            return Action(text="answer 0")
        value = rng.choice([value for kind, value in kit.known if kind != tool.kind])
        return Action(text=f"call {tool.name} {value}")

    shown = pupil.show(world, tasks, err, seed=derive_seed("forced", seed), turns=2)
    kept = [t for t in shown if t.turns[0].action.text.startswith("call")]
    with pupil.acting(world) as rollout:
        return [walk.prefix(1) for walk in rollout.walks(kept)]


def kind_in(prefix: Prefix) -> str:
    """Return the kind that the error names."""
    found = ERROR.search(text_of(prefix))
    assert found is not None, "the first call was wrong"
    return found[2]


def text_of(prefix: Prefix) -> str:
    """Return what is shown before the next turn."""
    observation = prefix.views[-1].observation
    return (
        observation
        if isinstance(observation, str)
        else "".join(p.text for p in observation if isinstance(p, Text))
    )


def told(prefix: Prefix, kind: str) -> Prefix:
    """Return `prefix` with an error that names `kind`."""
    text = ERROR.sub(rf"Error: \1 takes a {kind}.", text_of(prefix))
    return replace(prefix, views=(*prefix.views[:-1], replace(prefix.views[-1], observation=text)))


def swapped(kinds: Sequence[str], seed: int) -> list[str]:
    """Return `kinds` in an order in which none has its own, if none is half of them."""
    order = sorted(range(len(kinds)), key=lambda place: (kinds[place], derive_seed("swap", seed, place)))
    most = max(Counter(kinds).values(), default=0)
    found = [""] * len(kinds)
    for place, other in zip(order, [*order[most:], *order[:most]], strict=True):
        found[place] = kinds[other]
    return found


def next_calls(pupil: Pupil, world: str, ahead: Sequence[Prefix], seed: int) -> list[float]:
    """Return whether the next call is carried out, of each of `ahead`."""
    with pupil.acting(world) as rollout:
        groups: list[Group] = rollout.continuations(
            ahead, size=1, seed=derive_seed("next", seed), options=Options(limits=Limits(max_turns=2))
        )
    turns = [group.trajectories[0].turns[-1] for group in groups]
    return [float(turn.is_valid and turn.action.text.lower().startswith("call")) for turn in turns]
