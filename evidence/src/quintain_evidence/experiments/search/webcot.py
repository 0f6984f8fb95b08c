"""WebCoT: does a thought say what was not seen yet, or a branch that was left carry loss?

Searches of an expert who errs now and then, on sites whose sections do not say what is in them, as `webcot` makes
episodes of them. What is measured carries the actions out in a site of its own, by the environment's own actions: a
word of a thought must have stood in the task, on a page that was open, or in an action that was done, or be one of the
template's; and loss is on steps back and on clicks that no step back undid, on no others. An episode that
breaks either is counted. In the control each thought is that of the step after it, and every action has loss. Where
sections say what is in them and nobody errs, no thought may be said at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from quintain.agents.catalog import build
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin
from quintain.methods.search.webcot import SearchStep, retrace_search
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Task, derive_seed, flatten_scored
from quintain_evidence.labs.mind import mind_tokenizer

TEMPLATE = frozenset(
    ["i", "tried", "this", "state", "is", "go", "back", "to", "from", "where", "bad", "good"]
)
WORD = re.compile(r"\w+")
ERRORS = 0.2


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return how many episodes break what must hold, and as many of the control."""
    world, count = str(options["world"]), int(options["searches"])
    broken = control = trials = thoughts = branched = 0
    for task, steps in make_searches(world, count, ERRORS, seed):
        said, kept = [step.thought for step in steps], [step.is_kept for step in steps]
        shifted, everything = [*said[1:], said[-1]], [True] * len(steps)
        trials += 1
        broken += breaks(world, task, steps, said, kept)
        control += breaks(world, task, steps, shifted, everything)
        thoughts += sum(map(bool, said))
        branched += not all(kept)
    flat = world.replace("labels=vague&", "")
    null = [step for _, steps in make_searches(flat, count // 5, 0.0, seed) for step in steps]
    return [
        {
            "violations": float(broken),
            "trials": float(trials),
            "control_violations": float(control),
            "control_trials": float(trials),
            "extra.null_changed": float(sum(bool(step.thought) or not step.is_kept for step in null)),
            "extra.thoughts": float(thoughts),
            "extra.branched": branched / trials,
        }
    ]


def make_searches(world: str, count: int, errors: float, seed: int) -> list[tuple[Task, list[SearchStep]]]:
    """Return `count` searches of an expert who errs in a share of its turns, as far as they were solved."""
    make, chat = find(world), Chat(mind_tokenizer())
    rollout = Rollout(build("rollback+react", chat, make()), make, Scripted(lambda *_: (), chat.tokenizer))
    first = derive_seed("searches", seed) % 1_000_000
    with closing(rollout), closing(make()) as site:
        tasks = [site.task("train", first + k) for k in range(count)]
        found = flatten_scored(rollout.demonstrations(tasks, noisy(errors), seed=seed))
    return [(t.task, steps) for t in found if t.is_success and (steps := retrace_search(t, make))]


def breaks(
    world: str, task: Task, steps: Sequence[SearchStep], thoughts: Sequence[str], has_loss: Sequence[bool]
) -> bool:
    """Return whether a thought has a word that was not there, or loss is where none may be, or none where it must."""
    wanted, clicked, is_early = [True] * len(steps), list[int](), False
    with closing(find(world)()) as site:
        words = set(WORD.findall(str(begin(site, task)).lower())) | TEMPLATE
        for number, (step, thought) in enumerate(zip(steps, thoughts, strict=True)):
            words |= set(WORD.findall(step.action.text.lower()))
            is_early |= not words.issuperset(WORD.findall(thought.lower()))
            words |= set(WORD.findall(str(advance(site, step.action).observation).lower()))
            verb, _, rest = step.action.text.partition(" ")
            if verb == "back":
                for _ in range(int(rest or 1)):
                    wanted[clicked.pop()] = False
            else:
                clicked.append(number)
    return is_early or wanted != list(has_loss)
