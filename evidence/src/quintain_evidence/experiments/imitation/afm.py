"""Chain-of-Agents: does one model that imitates a team heed the score of its own checker?

A scripted team adds: a solver who errs in half of the cases, a checker who errs in 15 of 100, a planner. Its runs
become transcripts that a tiny model imitates. In held-out transcripts the first score is replaced, and what the model
says next is read off its logits: the role that acts, or the one that plans anew. The number is the share of transcripts
in which that changes when the score is put across the threshold; the control puts another score of the same side there,
one token for one token. The null world's model was taught transcripts whose scores were permuted over transcripts.
Nothing is sampled, and the answer that stands before the score stays as it was.

The rival knows the same roles, and no team: it was taught the same activations, each transcript's in a random order. So
low scores stand beside plans there, too, and what does not stand there is who speaks next.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quintain.data.pipeline import as_example, example_samples
from quintain.environments.protocol import Environment
from quintain.methods.imitation.afm import Team
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.text.roles import ACT, CHECK, ENOUGH, PLAN, SUGGEST, Activation, read_roles, write_roles
from quintain.types import Action, Completion, Observation, Task, Trajectory, derive_seed
from quintain.worlds.sums.game import Sums

SLIPS = (-10, -1, 1, 10)
NEXT = (ACT, PLAN)
ACROSS = {1: 4, 2: 5, 4: 1, 5: 2}
"""score → one of the other side"""
WITHIN = {1: 2, 2: 1, 4: 5, 5: 4}
"""score → another one of its side"""


def solve(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
    """Suggest the sum, or in half of the cases another number."""
    assert isinstance(environment, Sums), "the world is sums"
    total = sum(environment.snapshot()[0].numbers)
    return Action(text=str(total if rng.random() < 0.5 else total + rng.choice(SLIPS)))


def checker(errs: float) -> Any:
    """Return the checker who knows the sum, and errs."""

    def check(environment: Environment, suggested: Action, rng: random.Random) -> int:
        assert isinstance(environment, Sums), "the world is sums"
        is_right = suggested.text == str(sum(environment.snapshot()[0].numbers))
        return rng.choice((4, 5) if is_right is not (rng.random() < errs) else (1, 2))

    return check


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return for each held-out transcript whether the next role changes: method, control, null world."""
    world, count = str(options["world"]), int(options.get("episodes", 300))
    team = Team(solve=solve, check=checker(float(options.get("errs", 0.15))))
    blank = new_pupil(
        [world],
        seed=derive_seed("afm", seed) % (1 << 31),
        model=str(options.get("model", "mini?tokens=words")),
        texts=[write_roles(example()) for _ in range(50)],
    )
    first = derive_seed(seed, "tasks") % 1_000_000
    shown = blank.show(world, tasks_from(world, count, first=first), team.act, seed=seed, turns=1)
    asked = blank.show(world, held_out(world, int(options["seeds"])), team.act, seed=seed + 1, turns=1)
    lessons = (shown, permuted(blank, shown, seed), disordered(blank, shown, seed))
    pupils = [taught(blank, episodes, options, seed) for episodes in lessons]
    found = [changes(pupil, asked) for pupil in pupils]
    texts = [said_in(blank, t) for t in asked]
    idle = [
        float((int(own[2].content) >= ENOUGH) is not is_right(own, t))
        for own, t in zip(texts, asked, strict=True)
    ]
    return [
        {
            "method": across, "control": within, "null_method": null_across, "null_control": null_within,
            "extra.errs": err, "extra.as_the_rule": rule, "extra.disordered": other,
        }
        for (across, within, rule), (null_across, null_within, _), (other, _, _), err in zip(*found, idle, strict=True)
    ]  # fmt: skip


def example() -> list[Activation]:
    """Return a transcript with every role, so that its marks are tokens."""
    return [Activation(role, f"{k}") for k in range(1, 6) for role in ("think", SUGGEST, CHECK, PLAN, ACT)]


def held_out(world: str, count: int) -> list[Task]:
    """Return held-out tasks."""
    return tasks_from(world, count, split="eval")


def taught(blank: Pupil, episodes: Sequence[Trajectory], options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a copy of `blank` that has imitated `episodes`."""
    pupil = blank.copy()
    pupil.learn(
        example_samples([as_example(t) for t in episodes]),
        updates=int(options.get("updates", 150)),
        rate=float(options.get("rate", 4e-3)),
        size=int(options.get("size", 32)),
        seed=seed,
    )
    return pupil


def said_in(pupil: Pupil, trajectory: Trajectory) -> tuple[Activation, ...]:
    """Return what the roles say in the first turn."""
    ids = list(trajectory.turns[0].completion.token_ids)
    return read_roles(str(pupil.tokenizer.decode(ids, skip_special_tokens=True)))


def is_right(activations: Sequence[Activation], trajectory: Trajectory) -> bool:
    """Return whether the first suggestion is the sum that is asked for."""
    numbers = str(trajectory.turns[0].observation[0]).partition("text='")[2].partition(" = ?")[0]
    return int(activations[1].content) == sum(map(int, numbers.split(" + ")))


def permuted(pupil: Pupil, shown: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `shown` with its scores permuted over all transcripts; everything else stays."""
    texts = [list(said_in(pupil, t)) for t in shown]
    places = [(i, k) for i, own in enumerate(texts) for k, a in enumerate(own) if a.role == CHECK]
    scores = [texts[i][k].content for i, k in places]
    random.Random(derive_seed("permuted", seed)).shuffle(scores)
    for (i, k), score in zip(places, scores, strict=True):
        texts[i][k] = Activation(CHECK, score)
    return [rewritten(pupil, t, write_roles(own), ends=True) for t, own in zip(shown, texts, strict=True)]


def disordered(pupil: Pupil, shown: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `shown` with the activations of each transcript in a random order."""
    rng = random.Random(derive_seed("disordered", seed))
    texts = [said_in(pupil, t) for t in shown]
    return [
        rewritten(pupil, t, write_roles(rng.sample(own, len(own))), ends=True)
        for t, own in zip(shown, texts, strict=True)
    ]


def rewritten(pupil: Pupil, trajectory: Trajectory, text: str, *, ends: bool = False) -> Trajectory:
    """Return `trajectory` in which `text` was said in its first turn; with `ends` its last token ends it, too."""
    turn = trajectory.turns[0]
    ids = tuple(pupil.tokenizer(text, add_special_tokens=False)["input_ids"])
    ids += turn.completion.token_ids[-1:] if ends else ()
    return replace(
        trajectory, turns=(replace(turn, completion=Completion(token_ids=ids, logprobs=(), stop="stop")),)
    )


def changes(pupil: Pupil, asked: Sequence[Trajectory]) -> list[tuple[float, float, float]]:
    """Return of each transcript whether the next role changes with a score across, within, and is as the rule says."""
    found: list[tuple[float, float, float]] = []
    variants: list[Trajectory] = []
    for t in asked:
        own = said_in(pupil, t)
        score = int(own[2].content)
        for other in (score, ACROSS[score], WITHIN[score]):
            before = write_roles([*own[:2], Activation(CHECK, str(other))])
            variants += [rewritten(pupil, t, f"{before}<{role}>") for role in NEXT]
    logs = np.array([own.sum() for own in pupil.chances(variants)]).reshape(len(asked), 3, len(NEXT))
    for t, own in zip(asked, logs.argmax(axis=2), strict=True):
        score = int(said_in(pupil, t)[2].content)
        rule = NEXT.index(ACT if score >= ENOUGH else PLAN)
        found.append(
            (float(own[1] != own[0]), float(own[2] != own[0]), float(own[0] == rule and own[1] != rule))
        )
    return found
