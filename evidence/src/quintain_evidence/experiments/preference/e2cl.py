"""E2CL: is it what is foretold of a draft that mends it, or a second try?

A planner in a kitchen whose errors say why. It imitated the expert a little, was then taught what comes of its drafts
and what to do instead, by what ships, and is frozen. At the steps of the expert in tasks that are held out it drafts
an action and foretells what the environment will say; no call of the environment lies between. Where an error is
foretold it does something else. The number is the share of drafts that are errors after which something is carried
out. The control has the same drafts and foretold words, permuted over the states: as many second tries, elsewhere. In
the null world the drafts are the expert's, there are no errors, and the number is how often something is carried out.

Beside it: how often a foretold word is what the environment says, how many drafts are errors, how often something is
carried out with and without foresight, and the number with the kind of error permuted among those that were foretold.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from quintain.agents.foresight import CORRECT, FINE, FORETELL
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.catalog import find
from quintain.methods.method import Collector
from quintain.methods.preference.e2cl import (
    Config,
    Explored,
    Lesson,
    Told,
    drafts_of,
    feedback_of,
    num_done,
)
from quintain.rollout.corrections import try_proposals
from quintain.testing.pupil import Pupil, RolloutCollector, new_pupil, tasks_from
from quintain.types import Action, Trajectory, derive_seed, flatten_scored
from quintain.warm_start.start import expert_action

SECOND = Action(text="look")
"""Stands for the second try until the policy says one."""
REASONS = ("closed", "not here", "hands full", "nothing in hand", "no such place", "no use", "no such action")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A step of the expert's, what was drafted there, and what was foretold of it."""

    shown: Trajectory
    turn: int
    draft: Action
    foretold: str
    truth: str
    """what the environment says of the draft"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return what one planner comes to."""
    world = str(options["spec"])
    pupil = taught(world, options, seed)
    shown = pupil.show(
        world, tasks_from(world, int(options.get("held_out", 60)), split="eval"), expert_action, seed=seed
    )
    states = foreseen(pupil, world, shown, seed)
    sure = foreseen(pupil, world, shown, seed, drafts_expert=True)
    rng = random.Random(seed)
    told = [each.foretold for each in states]
    errors = [n for n, word in enumerate(told) if word != FINE]
    kinds = dict(zip(errors, rng.sample([told[n] for n in errors], len(errors)), strict=True))
    arms = {
        "method": told,
        "control": rng.sample(told, len(told)),
        "extra.kinds": [kinds.get(n, word) for n, word in enumerate(told)],
    }
    done = {name: carried_out(pupil, world, states, words, seed) for name, words in arms.items()}
    wrong = [n for n, each in enumerate(states) if each.truth != FINE]
    even = [each.foretold for each in sure]
    calm = [carried_out(pupil, world, sure, words, seed) for words in (even, rng.sample(even, len(even)))]
    return [
        {
            **{name: share([found[n] for n in wrong]) for name, found in done.items()},
            "null_method": share(calm[0]),
            "null_control": share(calm[1]),
            "extra.errors": len(wrong) / len(states),
            "extra.majority": Counter(each.truth for each in states).most_common(1)[0][1] / len(states),
            "extra.foretold": share([each.foretold == each.truth for each in states]),
            "extra.gain": share(done["method"]) - share([each.truth == FINE for each in states]),
            "extra.states": float(len(states)),
        }
    ]


def taught(world: str, options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a planner that imitated the expert, explored, and learned what came of its drafts."""
    pupil = new_pupil(
        [world],
        seed=derive_seed("e2cl", seed) % (1 << 31),
        model=str(options.get("model", "mini?tokens=words")),
        texts=(FINE, FORETELL, CORRECT, *REASONS),
        agent="foresight+text",
    )
    count = int(options.get("episodes", 60))
    tasks = tasks_from(world, count, first=derive_seed(seed, "tasks") % 1_000_000)
    shown = pupil.show(world, tasks, expert_action, seed=seed)
    base = list(map(as_example, shown))
    rate, size = float(options.get("rate", 2e-3)), int(options.get("size", 16))
    pupil.learn(
        example_samples(base), updates=int(options.get("first", 60)), rate=rate, size=size, falls=False
    )
    explored = Explored(Config(environment=world))
    with pupil.acting(world) as rollout:
        collector = cast(Collector, RolloutCollector(rollout=rollout, seed_of_run=seed))
        explored.explore(collector, 1, shown)
    pupil.learn(
        example_samples([*base, *explored.examples]),
        updates=int(options.get("updates", 300)),
        rate=rate,
        size=size,
    )
    return pupil


def foreseen(
    pupil: Pupil, world: str, shown: Sequence[Trajectory], seed: int, *, drafts_expert: bool = False
) -> list[State]:
    """Return what `pupil` drafts at each step of `shown`, or the expert drafts, and what it foretells of that."""
    found: list[State] = []
    make = find(world)
    with pupil.acting(world) as rollout:
        collector = RolloutCollector(rollout=rollout, seed_of_run=seed)
        walks = {id(t): walk for t, walk in zip(shown, collector.replay_episodes(shown), strict=True)}
        for length in sorted({turn for t in shown for turn in drafts_of(t)}):
            same = [t for t in shown if length in drafts_of(t)]
            groups = collector.continue_from(
                1,
                [walks[id(t)].prefix(length + drafts_expert) for t in same],
                size=1,
                seed=derive_seed("drafted", seed, length),
                max_turns=num_done(same[0], length) + 1,
            )
            for t, group in zip(same, groups, strict=True):
                for each in group.scored:
                    draft = each.turns[length].action
                    result = try_proposals(make, t, {length: draft})[length].result
                    found.append(
                        State(
                            shown=t,
                            turn=length,
                            draft=draft,
                            foretold=pupil.decode(each.turns[length + 1].completion.token_ids[:-1]).strip(),
                            truth=feedback_of(result.observation, is_valid=result.is_valid),
                        )
                    )
    return found


def carried_out(
    pupil: Pupil, world: str, states: Sequence[State], words: Sequence[str], seed: int
) -> list[bool]:
    """Return whether something is carried out at each of `states` where `words` are foretold of the drafts."""
    found = [state.truth == FINE for state in states]
    with pupil.acting(world) as rollout:
        collector = RolloutCollector(rollout=rollout, seed_of_run=seed)
        second = [n for n, word in enumerate(words) if word != FINE]
        for length in sorted({states[n].turn for n in second}):
            places = [n for n in second if states[n].turn == length]
            done = num_done(states[places[0]].shown, length)
            same = [
                Lesson(
                    episode=states[n].shown,
                    turn=length,
                    draft=states[n].draft,
                    feedback=words[n],
                    right=SECOND,
                )
                for n in places
            ]
            written = collector.continue_from(
                1,
                [walk.prefix(length) for walk in collector.replay_episodes([x.episode for x in same])],
                size=1,
                max_turns=done + 1,
                teacher=Told.of(same),
            )
            ahead = [walk.prefix(length + 2) for walk in collector.replay_episodes(flatten_scored(written))]
            tries = collector.continue_from(
                1, ahead, size=1, seed=derive_seed("second", seed, length), max_turns=done + 1
            )
            for n, group in zip(places, tries, strict=True):
                found[n] = all(t.turns[-1].is_valid for t in group.scored)
    return found


def share(found: Sequence[bool]) -> float:
    """Return the share that is true; 0 of none."""
    return fmean(map(float, found)) if found else 0.0
