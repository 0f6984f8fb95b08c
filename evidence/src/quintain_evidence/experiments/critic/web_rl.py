"""WebRL: does the critic's band keep tasks that are neither solved nor hopeless, by what it reads of them?

The policy is a calculator that errs, the more so the longer the numbers are, by a level of its own in every
replication. In a phase it adds numbers of one to four digits, and the method's critic, a value head on a micro model,
learns from the outcomes by the method's own updates. Then the method's curriculum orders new proposals. The number is
the share, of those of its first proposals that it takes for open, whose true success (replays) is in the band. The
control permutes what the critic said among the proposals. In the null world all tasks have two digits and none is not
open. The critic reads what an agent is shown first, and not of which part of the mixture a task is. Beside it: the
kinds that are kept, and the share of all proposals that is open.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from quintain.credit.success import chances
from quintain.credit_lab.permute import permute
from quintain.curriculum.levels import level_of
from quintain.curriculum.streams import TaskStream
from quintain.environments.baselines import play
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.noisy import NoisyExpert, noisy
from quintain.environments.protocol import Environment
from quintain.learning.policies import Policies, build_policies
from quintain.learning.update import learn_in_epochs
from quintain.methods.critic.web_rl import VALUES, Config, evolve_tasks, method
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import CriticUpdate, UpdateSamples
from quintain.models.save import save
from quintain.rollout.initial_states import read_initial_states
from quintain.testing.pupil import Pupil
from quintain.types import Action, Group, Observation, Task, Trajectory, as_text, derive_seed
from quintain.warm_start.start import build_agent, make_start

SPEC = "sums?digits={}&revisions=0&slips=0"
MIXED = "mix:" + ",".join(SPEC.format(digits) for digits in (1, 2, 3, 4))
ALIKE = SPEC.format(2)
MOST_ERRORS = 0.98


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of the share of kept tasks that are open, and of those kept by permuted values."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("web_rl", seed, number)
        base = random.Random(own).uniform(*options["base"])
        varied = kept(MIXED, erring(base, float(options["slope"])), options, own)
        alike = kept(ALIKE, noisy(float(options["alike"])), options, own)
        found.append(
            {
                **varied,
                "null_method": alike["method"],
                "null_control": alike["control"],
                "extra.base": base,
            }
        )
    return found


def erring(base: float, slope: float) -> NoisyExpert:
    """Return who errs in the share `base` of its turns with numbers of one digit, and `slope` more for each other."""

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        longest = max(map(len, re.findall(r"\d+", as_text(seen[0]))))
        return noisy(min(base + slope * (longest - 1), MOST_ERRORS))(environment, rng, seen)

    return act


def kept(world: str, policy: NoisyExpert, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return how much of what is kept is open, by the critic and by its values permuted."""
    config = Config(environment=world, oversample_factor=2, learning_rate=float(options["rate"]))
    band = (config.low, config.high)
    make = find(world)
    stream = TaskStream(tasks_of(make), first=derive_seed(seed, "tasks") % (1 << 40))
    num_played, num_proposed, most = (int(options[name]) for name in ("played", "proposed", "kept"))
    model, tokenizer = make_start("micro?tokens=words", make, seed=seed)
    tasks = [stream.at(place) for place in range(num_played + num_proposed)]
    episodes = Pupil(model, tokenizer, seed).show(world, tasks[:num_played], policy, seed=seed)
    proposed = tasks[num_played:]
    agent = build_agent(tokenizer, make, temperature=1.0, agent="auto")
    begins = read_initial_states(make, agent, proposed)
    with TemporaryDirectory() as folder:
        save(model, tokenizer, Path(folder))
        promised = judged_by(config, Path(folder), episodes, begins, int(options["updates"]), seed)
    failed = [as_text(t.turns[0].observation) for t in episodes if not t.is_success]
    shuffled = permute(promised, seed=seed).values
    true: dict[str, float] = {}

    def is_open(task: Task) -> bool:
        if task.id not in true:
            true[task.id] = success(world, policy, task, int(options["replays"]), seed)
        return band[0] <= true[task.id] <= band[1]

    row: dict[str, float] = {}
    for name, values in (("method", promised), ("control", shuffled)):
        places = [
            p for p in evolve_tasks(begins, values, failed, band)[:most] if band[0] <= values[p] <= band[1]
        ]
        row[name] = float(np.mean([is_open(proposed[p]) for p in places])) if places else 0.0
        if name == "method":
            row["extra.num_kept"] = float(len(places))
            row["extra.kinds"] = float(len({level_of(proposed[p]) for p in places}))
    row["extra.success"] = float(np.mean([t.is_success for t in episodes]))
    row["extra.open"] = float(np.mean([is_open(task) for task in proposed[: most // 2]]))
    return row


def judged_by(
    config: Config,
    start: Path,
    episodes: Sequence[Trajectory],
    begins: Sequence[Trajectory],
    updates: int,
    seed: int,
) -> list[float]:
    """Return what the method's critic holds for the chance of success of `begins`, once it has seen `episodes`."""
    made = method(config)
    nothing: Any = None
    policies: Policies = build_policies(
        config, start, made.needs.policies, has_critic=False, make_engine=lambda *_: nothing
    )
    update: CriticUpdate = made.updates[0]
    rng = np.random.default_rng(derive_seed(seed, "critic"))
    for number in range(updates):
        drawn = rng.choice(len(episodes), min(config.critic_batch, len(episodes)), replace=False)
        groups = [Group(task=episodes[i].task, trajectories=(episodes[i],)) for i in drawn.tolist()]
        lesson = cast(UpdateSamples, update.target(groups, cast(PolicyQueries, nothing)))
        learn_in_epochs(policies, lesson.samples, update.update, config, step=2, seed=number, policy=VALUES)
    return [own[0] for own in chances(policies[VALUES].turn_values(begins).before)]


def success(world: str, policy: NoisyExpert, task: Task, replays: int, seed: int) -> float:
    """Return how often `policy` solves `task`, of `replays` episodes."""
    with closing(find(world)()) as environment:
        won = 0
        for number in range(replays):
            rng, first = random.Random(derive_seed(seed, task.id, number)), list[Observation]()

            def act(
                inside: Environment,
                told: str,
                rng: random.Random = rng,
                first: list[Observation] = first,
            ) -> Action:
                first.append(told)
                return policy(inside, rng, first)

            won += play(environment, task, act).is_success
    return won / replays
