"""SWiRL: are steps that were sound better to learn from than steps of episodes that succeeded?

On S3 a teacher who errs in half of his moves solves near tasks and fails far ones, so the filter by outcome keeps
hardly any step of far tasks. On stored contexts actions are sampled and judged one by one, by agreement with the
expert, and nothing is carried out. The number is the cosine of the method's gradient with ∇J of the far tasks, where
contexts are kept by the process. The control keeps them by the outcome, as many. Beside it: the judge's scores permuted
over the contexts, and as many contexts drawn at random. In the null world the teacher never errs, and both filters keep
everything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from quintain.credit_lab.permute import permute
from quintain.methods.rl import swirl
from quintain.methods.rl.parts.contexts import Keep, agreement, is_kept, single
from quintain.types import Action, Completion, Group, Score, Stop, Text, Trajectory, Turn, derive_seed
from quintain_evidence.labs.exact import END, exact_gradient
from quintain_evidence.labs.tables import fitted_table, s3
from quintain_evidence.labs.tabular import TablePolicy, assign, cosine, loss_gradient

DISTANCES = (1, 2, 3, 4, 5, 6)
FAR = 4
"""Moves of the shortest way of a far task, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A step of the teacher: where it was taken, and by which filters it is kept."""

    state: int
    task: int
    kept: frozenset[Keep]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one table."""
    num, size = int(options.get("contexts", 32)), int(options.get("size", 4))
    start = fitted_table(s3(seed, distances=DISTANCES), seed, until=float(options.get("until", 0.5)))
    world = start.world
    far = [k for k, state in enumerate(world.start.tolist()) if world.distance[state] >= FAR]
    exact = far_gradient(start, far)
    found: list[Mapping[str, float]] = []
    for batch in range(int(options["seeds"])):
        own = derive_seed("swirl", seed, batch)

        def angle(kept: Sequence[Context], *, is_permuted: bool = False, own: int = own) -> float:
            chosen = random.Random(own).sample(kept, min(num, len(kept)))
            groups = judged(start, chosen, size, own)
            if is_permuted:
                groups = with_other_scores(groups, own)
            method = swirl.method(swirl.Config(environment="sokoban"))
            credit = assign(start, replace(method, reward=lambda g: g), groups)
            return cosine(loss_gradient(start, credit, method.update), exact)

        taught = lessons(start, own, mistakes=float(options.get("mistakes", 0.5)))
        process, outcome = ([c for c in taught if keep in c.kept] for keep in ("process", "outcome"))
        equal = min(len(process), len(outcome), num)
        rng = random.Random(derive_seed(own, "equal"))
        process, outcome, every = (rng.sample(kept, equal) for kept in (process, outcome, taught))
        perfect = lessons(start, own, mistakes=0.0)
        sound, won = ([c for c in perfect if keep in c.kept] for keep in ("process", "outcome"))
        right = angle(process)
        found.append(
            {
                "method": right,
                "control": angle(outcome),
                "null_method": angle(sound),
                "null_control": angle(won),
                "extra.over_permuted": right - angle(process, is_permuted=True),
                "extra.over_random": right - angle(every),
                "extra.far_process": share(process, far),
                "extra.far_outcome": share(outcome, far),
                "extra.contexts": float(equal),
                "extra.start": start.objective(),
            }
        )
    return found


def far_gradient(start: TablePolicy, far: Sequence[int]) -> torch.Tensor:
    """Return ∇ of the mean J of the tasks `far`."""
    rows = torch.as_tensor(np.isin(start.world.task_of, list(far)))
    _, exact = exact_gradient(start.world, start.theta)
    return exact * rows[:, None]


def lessons(start: TablePolicy, seed: int, *, mistakes: float) -> list[Context]:
    """Return the steps of one episode of each task by a teacher; where the expert gives up there is no lesson."""
    world = start.world
    rng = random.Random(derive_seed(seed, "teacher"))
    found: list[Context] = []
    for task, first in enumerate(world.start.tolist()):
        state, steps, has_won = first, list[tuple[int, int]](), False
        for _ in range(world.horizon):
            right = int(world.expert[state])
            action = right
            if right == END or rng.random() < mistakes:
                action = rng.choice([a for a in range(len(world.actions)) if a != right])
            steps.append((state, action))
            has_won = bool(world.is_success[state, action])
            state = int(world.next[state, action])
            if state == END:
                break
        episode = recorded(start, task, steps, has_won=has_won)
        for number, (at, _) in enumerate(steps):
            if world.expert[at] == END:
                continue
            wanted = Action(text=world.actions[int(world.expert[at])])
            filters: tuple[Keep, ...] = ("process", "outcome", "both", "all")
            kept: frozenset[Keep] = frozenset(k for k in filters if is_kept(episode, number, wanted, k))
            found.append(Context(state=at, task=task, kept=kept))
    return found


def turn_of(start: TablePolicy, state: int, action: int) -> Turn:
    """Return the turn in which `action` is taken in `state`."""
    world = start.world
    return Turn(
        observation=(Text(text=world.keys[state]),),
        prompt_ids=(state,),
        completion=Completion(
            token_ids=(world.num_states + action,),
            logprobs=(float(start.logs()[state, action].detach()),),
            stop="stop",
        ),
        action=Action(text=world.actions[action]),
        state_key=world.keys[state],
        starts_segment=True,
    )


def recorded(start: TablePolicy, task: int, steps: Sequence[tuple[int, int]], *, has_won: bool) -> Trajectory:
    """Return an episode of the teacher."""
    return Trajectory(
        task=start.world.tasks[task],
        turns=tuple(turn_of(start, state, action) for state, action in steps),
        outcome=Score(value=float(has_won), is_success=has_won),
        stop=Stop.TERMINATED,
        seed=0,
        group=str(task),
        index=0,
    )


def judged(start: TablePolicy, contexts: Sequence[Context], size: int, seed: int) -> list[Group]:
    """Return `size` actions sampled on each of `contexts`, each worth what the judge says of it alone."""
    world, sums = start.world, start.probabilities().cumsum(1).numpy()
    draws = np.random.default_rng(derive_seed(seed, "actions")).random((world.num_states, size))
    groups: list[Group] = []
    for number, context in enumerate(contexts):
        wanted = Action(text=world.actions[int(world.expert[context.state])])
        members: list[Trajectory] = []
        for index in range(size):
            action = min(
                int(np.searchsorted(sums[context.state], draws[context.state, index])), len(world.actions) - 1
            )
            whole = single(recorded(start, context.task, [(context.state, action)], has_won=False), 0)
            score = agreement(whole.turns[0].action, wanted)
            members.append(
                replace(
                    whole,
                    turns=(replace(whole.turns[0], reward=score),),
                    outcome=Score(value=score, is_success=score == 1),
                    group=f"context {number}",
                    index=index,
                )
            )
        groups.append(Group(task=world.tasks[context.task], trajectories=tuple(members)))
    return groups


def with_other_scores(groups: Sequence[Group], seed: int) -> list[Group]:
    """Return `groups` whose actions have the scores of the actions of another context."""
    scores = permute([[t.outcome for t in g.trajectories] for g in groups], seed=seed).values
    return [
        replace(
            group,
            trajectories=tuple(replace(t, outcome=s) for t, s in zip(group.trajectories, own, strict=True)),
        )
        for group, own in zip(groups, scores, strict=True)
    ]


def share(contexts: Sequence[Context], far: Sequence[int]) -> float:
    """Return the share of `contexts` that are of far tasks."""
    return sum(context.task in far for context in contexts) / max(len(contexts), 1)
