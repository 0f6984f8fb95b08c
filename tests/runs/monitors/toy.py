"""Toy worlds for runs of a few steps in which one thing goes wrong, and a policy that says what it is told.

What is sampled, scored, trained and recorded is so by the real loop: the engine is made to say the tokens, as it is for
the canary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import quintain
from quintain.agents.protocol import Agent, Brief, Prompt, Session
from quintain.engines.protocol import Grammar
from quintain.environments.protocol import Environment
from quintain.types import Action, Completion, StepResult, Task, ToolCall, as_text

NUM_TASKS, GROUP_SIZE = 2, 4
LUCKY = (1, 4, 6, 7)
"""Calls of a step that are right; each tool is so once in two groups, so that what is long is not better."""
Words = str | tuple[ToolCall, ...] | tuple[int, ...] | None
"""What is said: a text, calls, tokens, or what the policy wants."""


def right_or_wrong(step: int, number: int, task: Task) -> Words:
    """Every second episode is right, in words that name its task."""
    return f"{'right' if number % 2 else 'wrong'} {'ab'[number > GROUP_SIZE] * 3}"


def for_right(text: str, step: int) -> tuple[float, bool]:
    """Pay for what is right."""
    return float(text.startswith("right")), text.startswith("right")


@dataclass
class Scene:
    """What happens in a toy run."""

    say: Callable[[int, int, Task], Words] = right_or_wrong
    """(step, number of the episode in its step, task) → what is said"""
    pay: Callable[[str, int], tuple[float, bool]] = for_right
    """(what was said, step) → reward and success"""
    terms: Callable[[float], dict[str, float]] = lambda reward: {"goal": reward, "format": 0.2}
    breaks: Callable[[int, int], bool] = lambda step, attempt: False
    """(step, number of the attempt in its step, from 1) → whether it breaks"""
    tool_fails: Callable[[int], bool] = lambda call: False
    """number of the call in its step → whether the tool fails"""
    sharpen: int | None = None
    """step from which the policy is sure of what it says"""
    world: str = "Text"
    onset: int = 0
    """step after which it goes wrong"""
    is_fatal: bool = False
    step: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])

    def begin(self, step: int) -> None:
        """Begin `step`."""
        self.step = step
        self.counts.clear()

    def next(self, what: str) -> int:
        """Count one more of `what` in this step."""
        self.counts[what] += 1
        return self.counts[what]


_scenes = [Scene()]


def now(scene: Scene | None = None) -> Scene:
    """Return what happens now, which is `scene` from now on where it is given."""
    if scene is not None:
        _scenes[:] = [scene]
    return _scenes[0]


class Text(Environment):
    """Say the right thing."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        self.is_training = task.split == "train"
        if self.is_training and now().breaks(now().step, now().next("attempt")):
            raise RuntimeError("it broke")
        return f"task {task.seed % 2}"

    def step(self, action: Action) -> StepResult:
        reward, is_success = now().pay(as_text(action.text), now().step if self.is_training else 0)
        return StepResult(
            observation="done",
            reward=reward,
            reward_terms=now().terms(reward),
            is_terminated=True,
            is_success=is_success,
        )


class Tools(Environment):
    """Push, pull, turn or hold."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        return f"task {task.seed % 2}"

    @quintain.tool
    def push(self, force: int) -> str:
        """Push."""
        return self.done(force)

    @quintain.tool
    def pull(self, force: int) -> str:
        """Pull."""
        return self.done(force)

    @quintain.tool
    def turn(self, force: int) -> str:
        """Turn."""
        return self.done(force)

    @quintain.tool
    def hold(self, force: int) -> str:
        """Hold."""
        return self.done(force)

    def done(self, force: int) -> str:
        """End the episode, or fail as a tool may."""
        call = now().next("call")
        if now().tool_fails(call):
            return self.failure("no answer", cause="timeout")
        return self.finish("done", reward=float(call in LUCKY))


@dataclass(frozen=True)
class Told:
    """An agent whose policy says what the scene tells it."""

    inner: Agent
    vocabulary: int

    def open(self, brief: Brief) -> Session:
        """Begin an episode."""
        return Telling(self.inner.open(brief), brief.task, self.vocabulary)


@dataclass
class Telling:
    """One episode of it."""

    inner: Session
    task: Task
    vocabulary: int

    def observe(self, observation: Any, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """Return the prompt, to which one answer is possible."""
        prompt = self.inner.observe(observation, legal_actions)
        is_training = self.task.split == "train"
        words = now().say(now().step, now().next(self.task.split), self.task) if is_training else "wrong"
        if words is None:
            return prompt
        constraint = Grammar.of_tokens(self.ids(words))
        return replace(prompt, sampling=replace(prompt.sampling, constraint=constraint))

    def ids(self, words: Words) -> tuple[int, ...]:
        """Return the tokens of `words`."""
        if isinstance(words, str):
            return self.inner.write(Action(text=words))
        if words and isinstance(words[0], ToolCall):
            return self.inner.write(Action(text="", tool_calls=words))  # type: ignore[arg-type]
        return words  # type: ignore[return-value]

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        return self.inner.read(completion)

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`."""
        return self.inner.write(action)
