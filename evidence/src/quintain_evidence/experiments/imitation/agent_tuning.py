"""AgentTuning: does general data among agents' episodes keep what a model knew, or only stretch training?

A start that adds single digits learns two agents' worlds in equally many updates: on the method's mixture, on agents'
episodes alone, and on the control, the same mixture whose general answers are permuted over its episodes (the same
prompts, the same words). The number is the
probability of the right answer to held-out sums that is kept. A fourth arm has the mixture's agents' samples
alone. In the null world three digits are asked for, which nobody ever knew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quintain.credit_lab.permute import permute
from quintain.data.pipeline import as_example, example_samples
from quintain.methods.imitation import agent_tuning
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.types import Example, Trajectory, derive_seed
from quintain.warm_start.start import expert_action

GENERAL, NULL = "sums?digits=1&slips=0", "sums?digits=3&slips=0"
AGENTS = ("collab?slots=1&values=3", "guess?high=8&max_turns=4")


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the probability of right sums that the mixture keeps, and that the control keeps."""
    worlds = list(AGENTS)
    num, held_out = int(options.get("episodes", 200)), int(options.get("held_out", 256))
    updates, size = int(options.get("updates", 120)), int(options.get("size", 16))
    share = float(options.get("share", agent_tuning.Config().agent_fraction))
    model = str(options.get("model", "mini?tokens=words"))
    start = new_pupil([GENERAL, *worlds, NULL], seed=derive_seed("tuning", seed) % (1 << 31), model=model)
    general = start.show(GENERAL, tasks_from(GENERAL, num), expert_action, seed=seed)
    start.learn(
        example_samples([as_example(t) for t in general]),
        updates=int(options.get("start_updates", 150)),
        rate=float(options.get("rate", 2e-3)),
        size=size,
        seed=seed,
    )
    agents = [
        t for world in worlds for t in start.show(world, tasks_from(world, num), expert_action, seed=seed)
    ]
    own, known = list(map(as_example, agents)), list(map(as_example, general))
    wrong = list(map(as_example, permuted(general, seed)))

    def taught(examples: Sequence[Example], part: float, count: int = size) -> Pupil:
        odds = np.array(agent_tuning.mixture(examples, ("sums",), part))
        pupil = start.copy()
        pupil.learn(
            example_samples(examples),
            updates=updates,
            rate=float(options.get("rate", 2e-3)),
            draw=lambda step: (
                np.random.default_rng(derive_seed(seed, "draw", step))
                .choice(len(examples), count, p=odds / odds.sum())
                .tolist()
            ),
        )
        return pupil

    mixed, poisoned = taught([*own, *known], share), taught([*own, *wrong], share)
    alone, few = taught(own, 1.0), taught(own, 1.0, max(1, round(share * size)))

    def knows(pupil: Pupil, world: str = GENERAL) -> float:
        asked = pupil.show(world, tasks_from(world, held_out, split="eval"), expert_action, seed=0, turns=1)
        return float(np.mean(np.exp([own[0] for own in pupil.chances(asked)])))

    def acts(pupil: Pupil) -> float:
        tasks = int(options.get("played", 96))
        return float(
            np.mean(
                [pupil.success(world, tasks_from(world, tasks, split="eval"), seed=seed) for world in worlds]
            )
        )

    return [
        {
            "method": knows(mixed),
            "control": knows(poisoned),
            "null_method": knows(mixed, NULL),
            "null_control": knows(poisoned, NULL),
            "extra.start": knows(start),
            "extra.lost": knows(start) - knows(alone),
            "extra.over_few": knows(mixed) - knows(few),
            "extra.agent": acts(mixed),
            "extra.agent_short": 0.9 * acts(alone) - acts(mixed),
            "extra.agent_alone": acts(alone),
        }
    ]


def permuted(episodes: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `episodes` whose first answers are those of others; what was read stays."""
    answers = permute([t.turns[0].completion for t in episodes], seed=seed, most_unchanged=1.0).values
    return [
        replace(t, turns=(replace(t.turns[0], completion=answer), *t.turns[1:]))
        for t, answer in zip(episodes, answers, strict=True)
    ]
