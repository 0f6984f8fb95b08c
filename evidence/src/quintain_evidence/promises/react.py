"""ReAct on a real model: SmolLM2 thinks and acts with tools, and thinks alone where acting brings no answer.

What the model writes is nobody's test data: every answer of it is read, written again and read again.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from quintain.agents.backoff import ROLE, THINK
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import ask
from quintain.environments.catalog import find
from quintain.learning.saved import load_policy
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Limits
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.text.parse import parse_react, write_react
from quintain.types import Score, Trajectory, flatten_scored
from quintain.warm_start.start import build_agent
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
WORLD = "calc?steps=1&names=1&digits=1&checks=0"
STEPS, SAMPLES, TASKS = 2, 3, 3
AGENT = f"backoff?steps={STEPS}&samples={SAMPLES}&max_tokens=48+react?max_tokens=48"


def keep(_runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Play a few tasks by acting, and by thinking where that brings no answer."""
    loaded, make = load_policy(MODEL), find(WORLD)
    agent = build_agent(loaded.tokenizer, make, temperature=0.7, agent=AGENT)
    engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    with closing(Rollout(agent, make, engine, limits=Limits(max_turns=STEPS + 2))) as rollout:
        episodes = list(
            flatten_scored(rollout.groups(tasks_from(WORLD, TASKS, split="eval"), size=1, seed=1))
        )
    chat, tools = Chat(loaded.tokenizer), ask(make, lambda environment: environment.tools())
    texts = [chat.text(turn.completion.token_ids) for t in episodes for turn in t.turns]
    read = [parse_react(text, tools) for text in texts]
    whole = [action for action in read if action.error is None]
    again = [parse_react(write_react(action), tools) for action in whole]
    backed = [t for t in episodes if any(turn.seat == f"agent/{ROLE}" for turn in t.turns)]
    checks = [
        Check(
            name="plays",
            has_passed=len(episodes) == TASKS and all(isinstance(t.outcome, Score) for t in episodes),
            detail=f"{TASKS} episodes of {len(texts)} answers",
        ),
        Check(
            name="reads",
            has_passed=all(a.tool_calls == b.tool_calls for a, b in zip(whole, again, strict=True)),
            detail=f"{len(whole)} of {len(texts)} answers are actions, each the same when it is written and read again",
        ),
        Check(
            name="backs off",
            has_passed=bool(backed) and all(is_backed_off(t, chat) for t in backed),
            detail=f"{len(backed)} of {TASKS} tasks had no answer after {STEPS} actions: {SAMPLES} chains of thought "
            "each, which saw the task and none of what was done",
        ),
    ]
    figures = {
        "answers": float(len(texts)),
        "actions": float(len(whole)),
        "solved": float(sum(t.is_success for t in episodes)),
    }
    return checks, figures


def is_backed_off(trajectory: Trajectory, chat: Chat) -> bool:
    """Return whether the chains of an episode come after as many actions as they must, from one and the same prompt."""
    places = [
        k
        for k, turn in enumerate(trajectory.turns)
        if turn.starts_segment and is_chain(turn.prompt_ids, chat)
    ]
    before = sum(not turn.is_internal for turn in trajectory.turns[: places[0]])
    prompts = {trajectory.turns[k].prompt_ids for k in places}
    return before == STEPS and len(places) == SAMPLES and len(prompts) == 1


def is_chain(prompt_ids: Sequence[int], chat: Chat) -> bool:
    """Return whether a prompt asks for a chain of thought."""
    return THINK in chat.encoder.decode(prompt_ids)
