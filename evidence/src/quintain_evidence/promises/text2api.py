"""text2api on a real model: SmolLM2 makes arguments up, none of which is carried out, and the next attempt is told.

It calls tools whose arguments it is not told, under a grammar of their names alone. Under a grammar of the tools'
schemas the same model writes no wrong call.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from quintain.agents.reflexion import FAILED, find_failed_calls
from quintain.data.calls import CLASSES, count_faults
from quintain.data.negatives import negatives
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.environments.tools import call_tool
from quintain.environments.wrapped import Wrapped
from quintain.learning.saved import load_policy
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Limits
from quintain.rollout.trials import trials
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.types import ToolSpec, Trajectory, flatten_scored
from quintain.warm_start.demonstrations import teller
from quintain.warm_start.start import build_agent
from quintain.worlds.calc.game import Calc
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
WORLD = "calc?steps=1&names=1&digits=1&checks=0"
AGENT = "constrained?max_calls=1"
TASKS = 4
ANYTHING = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}, "maxProperties": 2}


class Untold(Wrapped):
    """`inner`, whose tools do not say which arguments they have."""

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the environment, each with any arguments."""
        return tuple(replace(spec, parameters=ANYTHING) for spec in self.inner.tools())


def keep(_runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Play two rounds of attempts without schemas, and one with them."""
    loaded, make = load_policy(MODEL), find(WORLD)
    chat, tasks = Chat(loaded.tokenizer), tasks_from(WORLD, TASKS, split="eval")

    def make_untold() -> Environment:
        return Untold(make())

    with closing(build_engine(EngineSettings(), loaded.model, loaded.tokenizer)) as engine:
        loose = build_agent(loaded.tokenizer, make_untold, temperature=1.0, max_tokens=64, agent=AGENT)
        with closing(Rollout(loose, make_untold, engine, limits=Limits(max_turns=1))) as rollout:
            rounds = trials(rollout, chat, tasks, rounds=2, seed=1, reflects=False, shows_errors=True)
        strict = build_agent(loaded.tokenizer, make, temperature=1.0, max_tokens=64, agent=AGENT)
        with closing(Rollout(strict, make, engine, limits=Limits(max_turns=1))) as rollout:
            bound = list(flatten_scored(rollout.groups(tasks, size=1, seed=1)))
    first, second = (trial.trajectories for trial in rounds)
    wrong = {t.task.id: find_failed_calls(t) for t in first}
    kinds = Counter(kind for t in (*first, *second) for kind in wrong_kinds(t))
    faults, few = (count_faults(own, teller(WORLD)) for own in ((*first, *second), bound))
    invalid = sum(few.get(kind, 0.0) for kind in (*CLASSES["format"], *CLASSES["executable"]))
    rejected = negatives([*first, *second])
    checks = [
        Check(
            name="named",
            has_passed=kinds.total() > 0 and not kinds["ok"],
            detail=f"{kinds.total()} of {faults['calls']:.0f} calls are wrong, and their tools were not run: "
            f"{', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}",
        ),
        Check(
            name="told",
            has_passed=any(wrong.values()) and all(is_told(t, wrong[t.task.id], chat) for t in second),
            detail=f"{sum(map(bool, wrong.values()))} of {TASKS} second attempts are told a wrong call of the first",
        ),
        Check(
            name="negatives",
            has_passed=len(rejected) >= kinds.total(),
            detail=f"{len(rejected)} turns to learn from as rejected ones",
        ),
        Check(
            name="constrained",
            has_passed=few["calls"] > 0 and invalid == 0,
            detail=f"{few['calls']:.0f} calls under the grammar of the schemas, none of them wrong in name or type",
        ),
    ]
    return checks, {"calls": faults["calls"], "wrong": float(kinds.total()), "unsaid": few.get("unsaid", 0.0)}


def wrong_kinds(trajectory: Trajectory) -> list[str]:
    """Return the kinds of the calls of an episode that were not carried out, as the tools name them."""
    calls = [
        call
        for turn in trajectory.turns
        if any(error.cause == "invalid_call" for error in turn.tool_errors)
        for call in turn.action.tool_calls
    ]
    with closing(Calc()) as world:
        return [call_tool(world, call).kind for call in calls]


def is_told(trajectory: Trajectory, calls: Sequence[str], chat: Chat) -> bool:
    """Return whether the newest of the wrong `calls` stands in the first prompt of the attempt after."""
    prompt = chat.encoder.decode(trajectory.turns[0].prompt_ids)
    return not calls or (FAILED in prompt and calls[-1][:40] in prompt)
