"""LAM Simulator: is it what an error says that makes the next call right, or only that there was one?

A checkpoint imitates the expert of `toolbox`, who reads errors. On held-out tasks the first call is forced to be wrong,
of a tool whose line does not say what it takes. The next call is sampled several times with the same chance: behind the
error as it was, and behind that of another task, which names another kind of value (the same kinds in all, in another
order). The number is the share of next calls that are carried out, true less swapped. In the null world errors are
swapped among tools that take the same kind: only the tool that they name is another.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quintain.data.pipeline import as_example, example_samples
from quintain.data.stages import valid_turns
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment
from quintain.rollout.request import Limits, Options
from quintain.rollout.views import Prefix
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Action, Group, Observation, Task, as_content, as_text, derive_seed
from quintain.worlds.toolbox.game import Toolbox

ERROR = re.compile(r"Error: (\w+) takes a (\w+)\.")
NOTHING = "value"
"""The word that names no kind, in the place of one that does."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return for every task whether the next call was right behind the true error, and behind others."""
    world, count = str(options["world"]), int(options["seeds"])
    pupil = taught(world, options, seed)
    tasks = tasks_from(world, 4 * count, split="eval", first=derive_seed(seed, "tasks") % 100_000)
    ahead = forced(pupil, world, tasks, seed)[:count]
    named = list(map(named_in, ahead))
    names, kinds = [name for name, _ in named], [kind for _, kind in named]
    errors = {
        "method": named,
        "control": list(zip(names, swapped(kinds, seed), strict=True)),
        "extra.silent": [(name, NOTHING) for name in names],
        "null_method": named,
        "null_control": list(zip(swapped(names, seed, within=kinds), kinds, strict=True)),
    }
    found = {
        key: next_calls(pupil, world, [told(p, *error) for p, error in zip(ahead, own, strict=True)], seed)
        for key, own in errors.items()
    }
    return [{key: own[place] for key, own in found.items()} for place in range(len(ahead))]


def taught(world: str, options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a pupil that imitated the expert of `world`; refused calls are context."""
    model = str(options.get("model", "mini?tokens=runs"))
    pupil = new_pupil([world], seed=derive_seed("lam", seed) % (1 << 31), model=model, agent="text")
    tasks = tasks_from(world, int(options.get("episodes", 800)))
    shown = pupil.show(world, tasks, noisy(0.0), seed=seed)
    pupil.learn(
        example_samples(valid_turns().apply([as_example(t) for t in shown])),
        updates=int(options.get("updates", 550)),
        rate=float(options.get("rate", 2e-3)),
        size=int(options.get("size", 16)),
        seed=seed,
    )
    return pupil


def forced(pupil: Pupil, world: str, tasks: Sequence[Task], seed: int) -> list[Prefix]:
    """Return the moments behind a wrong first call of a tool whose line does not say what it takes."""

    def err(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        assert isinstance(environment, Toolbox), "the world is a toolbox"
        kit = environment.snapshot()[0]
        tool = kit.tool(kit.asked[0])
        assert tool is not None, "what is asked for is there"
        if len(seen) > 1 or tool.is_told:
            return Action(text="answer 0")
        value = rng.choice([value for kind, value in kit.known if kind != tool.kind])
        return Action(text=f"call {tool.name} {value}")

    shown = pupil.show(world, tasks, err, seed=derive_seed("forced", seed), turns=2)
    kept = [t for t in shown if t.turns[0].action.text.startswith("call")]
    with pupil.acting(world) as rollout:
        return [walk.prefix(1) for walk in rollout.replay_episodes(kept)]


def named_in(prefix: Prefix) -> tuple[str, str]:
    """Return the tool and the kind that the error names."""
    found = ERROR.search(text_of(prefix))
    assert found is not None, "the first call was wrong"
    return found[1], found[2]


def text_of(prefix: Prefix) -> str:
    """Return what is shown before the next turn."""
    return as_text(as_content(prefix.views[-1].observation))


def told(prefix: Prefix, name: str, kind: str) -> Prefix:
    """Return `prefix` with an error that names the tool `name` and `kind`."""
    text = ERROR.sub(f"Error: {name} takes a {kind}.", text_of(prefix))
    return replace(prefix, views=(*prefix.views[:-1], replace(prefix.views[-1], observation=text)))


def swapped(words: Sequence[str], seed: int, within: Sequence[str] = ()) -> list[str]:
    """Return `words` in an order in which none has its own, if none is half of them; each class of `within` by itself.

    Classes are of places: ``within=["a", "b", "a"]`` puts the first and the third word into each other's place.
    """
    found = [""] * len(words)
    classes = within or [""] * len(words)
    for label in sorted(set(classes)):
        own = [place for place, of in enumerate(classes) if of == label]
        order = sorted(own, key=lambda place: (words[place], derive_seed("swap", seed, place)))
        most = max(Counter(words[place] for place in own).values())
        for place, other in zip(order, [*order[most:], *order[:most]], strict=True):
            found[place] = words[other]
    return found


def next_calls(pupil: Pupil, world: str, ahead: Sequence[Prefix], seed: int) -> list[float]:
    """Return whether the next call is carried out, of each of `ahead`."""
    with pupil.acting(world) as rollout:
        groups: list[Group] = rollout.continuations(
            ahead, size=1, seed=derive_seed("next", seed), options=Options(limits=Limits(max_turns=2))
        )
    turns = [group.trajectories[0].turns[-1] for group in groups]
    return [float(turn.is_valid and turn.action.text.lower().startswith("call")) for turn in turns]
