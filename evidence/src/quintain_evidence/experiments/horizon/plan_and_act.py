"""Plan-and-Act: does a plan that is shown for imitation ever say what only a later page shows?

The expert orders things in web shops, and says a plan before every action, of what it will do, made by looking ahead.
Every word of a plan must stand in the task, in what can be done, or on a page that was shown by then; one that does not
is a violation. The control are plans of the same steps whose words are not held against what was shown: hindsight.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from quintain.agents.plan import Plan, foresee_steps, step_plan
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.types import as_text, derive_seed

WORD = re.compile(r"[\w']+")


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return how many plans leak, made of words that were seen by then and of all, and where steps do not fit."""
    found = dict.fromkeys(
        ("violations", "trials", "control_violations", "control_trials", "extra.unordered"), 0.0
    )
    lengths: list[int] = []
    with closing(find(str(options["world"]))()) as web:
        for number in range(int(options["tasks"])):
            task = web.task("train", derive_seed("plans", seed) % (1 << 40) + number)
            shown = f"{task.prompt}\n{web.instructions()}\n{as_text(begin(web, task))}"
            whole: list[str] = []
            for turn in range(web.max_turns):
                steps = foresee_steps(web)
                everything = " ".join(f"{a.text} {a.tool_calls}" for step in steps for a in step)
                made, hindsight = step_plan(steps, shown), step_plan(steps, everything)
                found["trials"] += 1
                found["control_trials"] += 1
                found["violations"] += leaks(made, shown)
                found["control_violations"] += leaks(hindsight, shown)
                ordered = [a.text for step in steps for a in step]
                if turn == 0:
                    whole, _ = ordered, lengths.append(len(made.steps))
                found["extra.unordered"] += ordered != whole[turn:] or not all(steps)
                result = advance(web, steps[0][0])
                shown += f"\n{as_text(result.observation)}"
                if result.is_terminated or result.is_truncated:
                    break
    return [{**found, "extra.steps": sum(lengths) / len(lengths)}]


def leaks(plan: Plan, shown: str) -> bool:
    """Return whether `plan` has a word that was not `shown`."""
    known = set(WORD.findall(shown.lower()))
    return any(word not in known for word in WORD.findall(" ".join(step.text for step in plan.steps).lower()))
