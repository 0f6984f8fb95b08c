"""text2api on a real model: SmolLM2 calls tools; wrong calls are named and not carried out.

The next attempt is told of them. Under a grammar of the tools' schemas the same model writes no wrong call.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from quintain.agents.reflexion import FAILED, failed_calls
from quintain.data.calls import CLASSES, count_faults
from quintain.data.negatives import negatives
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import ask
from quintain.environments.catalog import find
from quintain.environments.tools import call_tool
from quintain.learning.saved import load_policy
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Limits
from quintain.rollout.trials import trials
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.types import Trajectory, flatten_scored
from quintain.warm_start.demonstrations import teller
from quintain.warm_start.start import build_agent
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
WORLD = "calc?steps=1&names=1&digits=1&checks=0"
TASKS = 3


def keep(_runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Play two rounds of attempts with JSON calls, and one with constrained ones."""
    loaded, make = load_policy(MODEL), find(WORLD)
    chat, tasks = Chat(loaded.tokenizer), tasks_from(WORLD, TASKS, split="eval")
    with closing(build_engine(EngineSettings(), loaded.model, loaded.tokenizer)) as engine:
        agent = build_agent(loaded.tokenizer, make, temperature=1.0, max_tokens=64, agent="tools")
        with closing(Rollout(agent, make, engine, limits=Limits(max_turns=3))) as rollout:
            rounds = trials(
                rollout, chat, tasks, rounds=2, seed=1, reflects=False, shows_errors=True, max_repeats=1
            )
        strict = build_agent(
            loaded.tokenizer, make, temperature=1.0, max_tokens=64, agent="constrained?max_calls=1"
        )
        with closing(Rollout(strict, make, engine, limits=Limits(max_turns=2))) as rollout:
            bound = list(flatten_scored(rollout.groups(tasks, size=1, seed=1)))
    first, second = rounds[0].trajectories, rounds[1].trajectories if len(rounds) > 1 else ()
    wrong = {t.task.id: failed_calls(t) for t in first}
    told = [is_told(t, wrong[t.task.id], chat) for t in second]
    kinds = [kind for t in (*first, *second) for kind in wrong_kinds(t, WORLD)]
    faults, few = (count_faults(own, teller(WORLD)) for own in ((*first, *second), bound))
    invalid = sum(few.get(kind, 0.0) for kind in (*CLASSES["format"], *CLASSES["executable"]))
    rejected = negatives([*first, *second])
    checks = [
        Check(
            name="named",
            has_passed=all(kind != "ok" for kind in kinds),
            detail=f"{len(kinds)} wrong calls of {faults['calls']:.0f}: {', '.join(sorted(set(kinds))) or 'none'}",
        ),
        Check(
            name="told",
            has_passed=all(told),
            detail=f"{sum(map(bool, wrong.values()))} of {TASKS} first attempts had wrong calls; the second is told",
        ),
        Check(
            name="negatives",
            has_passed=len(rejected) >= sum(map(bool, wrong.values())),
            detail=f"{len(rejected)} turns to learn from as rejected ones",
        ),
        Check(
            name="constrained",
            has_passed=few["calls"] > 0 and invalid == 0,
            detail=f"{few['calls']:.0f} calls under the grammar, none of them wrong in name or type",
        ),
    ]
    figures = {"calls": faults["calls"], "wrong": float(len(kinds)), "unsaid": few.get("unsaid", 0.0)}
    return checks, figures


def wrong_kinds(trajectory: Trajectory, world: str) -> list[str]:
    """Return the kinds of the calls of an episode that were not carried out, as the tools name them."""
    calls = [
        call
        for turn in trajectory.turns
        if any(error.cause == "invalid_call" for error in turn.tool_errors)
        for call in turn.action.tool_calls[:1]
    ]
    return [
        ask(find(world), lambda environment, own=call: call_tool(environment, own).kind) for call in calls
    ]


def is_told(trajectory: Trajectory, calls: Sequence[str], chat: Chat) -> bool:
    """Return whether the newest of the wrong `calls` stands in the first prompt of the attempt after."""
    prompt = chat.encoder.decode(trajectory.turns[0].prompt_ids)
    return not calls or (FAILED in prompt and calls[-1][:40] in prompt)
