"""ReAct on a real model: SmolLM2 goes on with thoughts and actions, and thinks alone where acting brings no answer.

What the model writes is nobody's test data. After two turns of an expert it goes on in their form: each answer is read,
written again and read again. From nothing it finds no form, and the harness backs off to chains of thought.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from quintain.agents.backoff import ROLE, THINK
from quintain.agents.protocol import Agent
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import ask
from quintain.environments.catalog import find
from quintain.learning.saved import load_policy
from quintain.rollout.collect import Rollout
from quintain.rollout.replay import prefixes_of
from quintain.rollout.request import Limits, Options
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.text.parse import parse_react, write_react
from quintain.types import Trajectory, flatten_scored
from quintain.warm_start.start import build_agent, expert_action
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
WORLD = "calc?steps=1&names=2&digits=1&checks=0&calculator=false"
STEPS, SAMPLES, TASKS, SHOWN = 2, 3, 4, 2
BACKOFF = f"backoff?steps={STEPS}&samples={SAMPLES}&max_tokens=32+react?max_tokens=32"


def keep(_runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Go on from an expert's turns, and play a task from its beginning."""
    loaded, make = load_policy(MODEL), find(WORLD)
    chat, tools = Chat(loaded.tokenizer), ask(make, lambda environment: environment.tools())
    tasks = tasks_from(WORLD, TASKS, split="eval")

    def acting(name: str) -> Agent:
        return build_agent(loaded.tokenizer, make, temperature=0.3, max_tokens=48, agent=name)

    engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    with closing(Rollout(acting("react"), make, engine, limits=Limits(max_turns=SHOWN + 1))) as rollout:
        expert = [group.trajectories[0] for group in rollout.demonstrations(tasks, expert_action, seed=1)]
        prefixes = [p for p in prefixes_of(rollout.replay_episodes(expert)) if len(p.turns) == SHOWN]
        went_on = [group.trajectories[0] for group in rollout.continuations(prefixes, size=1, seed=2)]
        alone = Options(agent=acting(BACKOFF), limits=Limits(max_turns=STEPS + 1))
        (episode,) = flatten_scored(rollout.groups(tasks[:1], size=1, seed=1, options=alone))
    texts = [chat.text(t.turns[SHOWN].completion.token_ids) for t in went_on]
    read = [parse_react(text, tools) for text in texts]
    whole = [action for action in read if action.error is None]
    again = [parse_react(write_react(action), tools) for action in whole]
    checks = [
        Check(
            name="reads",
            has_passed=2 * len(whole) > len(texts)
            and all(a.tool_calls == b.tool_calls for a, b in zip(whole, again, strict=True)),
            detail=f"{len(whole)} of {len(texts)} answers after {SHOWN} turns of an expert are actions, each the same "
            "when it is written and read again",
        ),
        Check(
            name="thinks",
            has_passed=all(text.startswith("Thought: ") for text in texts),
            detail=f"as in {texts[0].partition(chr(10))[0]!r:.80}",
        ),
        Check(
            name="backs off",
            has_passed=any(turn.seat == f"agent/{ROLE}" for turn in episode.turns)
            and is_backed_off(episode, chat),
            detail=f"no answer after {STEPS} actions: {SAMPLES} chains of thought, which saw the task and none "
            "of what was done",
        ),
    ]
    return checks, {"answers": float(len(texts)), "actions": float(len(whole))}


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
