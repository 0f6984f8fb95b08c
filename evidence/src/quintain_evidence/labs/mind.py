"""Minds: scripted models that read the rendered prompt alone, and the blindfold.

A mind is a function from the text of the whole stream, markers included, to what a model would write. It has no handle
on environment, task or answer. What it draws it draws from `draw`, the seed of the request: episodes of equal tasks
and seeds draw alike in every arm. `blindfold` plays it with every observation and task text blanked: a mind that then
solves more than who does nothing or acts at random knows what it should not, and what is measured with it is void.
"""

from __future__ import annotations

import hashlib
import inspect
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from quintain.agents.catalog import AUTO
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.baselines import noop, play, random_action
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, advance
from quintain.environments.wrapped import Wrapped
from quintain.errors import DataError, UsageError
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Limits
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import (
    Action,
    Image,
    Observation,
    StepResult,
    Task,
    Text,
    as_content,
    derive_seed,
    flatten_scored,
)
from quintain.warm_start.start import build_agent
from quintain_evidence.labs.probe import Probe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Say = Callable[[str, int], str]
"""(text of the stream up to the answer, draw) → answer, its end left out"""
BLANK = "..."
LEVEL = 0.01
"""One-sided p-value from which a blindfolded mind is better than chance."""


@dataclass(frozen=True, slots=True)
class Mind:
    """A scripted model: ``Mind(lambda prompt, draw: "left" if "door: left" in prompt else "right")``."""

    say: Say

    @property
    def digest(self) -> str:
        """SHA-256 of the source of its function: what arms that have the same mind agree in."""
        function = getattr(self.say, "func", self.say)  # of a partial
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()

    def engine(self, tokenizer: PreTrainedTokenizerFast) -> Scripted:
        """Return an engine that answers as the mind does; an answer that is too long is cut."""
        chat = Chat(tokenizer)

        def answer(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
            said = self.say(str(tokenizer.decode(list(stream))), request.seed)
            return chat.write(said)[: request.sampling.max_tokens]

        return Scripted(answer, tokenizer)


@cache
def mind_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of few words, which can spell all others and reads back what it wrote."""
    said = "<|system|>Read the task, then act.<|user|>What is it?<|assistant|>Thought: it is\nAction: do it<|end|>"
    return train_tokenizer([said], 400)


@contextmanager
def play_mind(
    mind: Mind,
    environment: str | type[Environment],
    *,
    seed: int,
    agent: str = AUTO,
    wrap: Callable[[Environment], Environment] = lambda environment: environment,
    limits: Limits | None = None,
    max_tokens: int = 400,
) -> Generator[Probe]:
    """Open a probe that `mind` plays through the harness `agent`, in `environment` or what `wrap` makes of it.

    Two probes with equal `seed` draw alike, whatever differs between their harnesses and environments.
    """
    make = find(environment)
    tokenizer = mind_tokenizer()

    def make_environment() -> Environment:
        return wrap(make())

    harness = build_agent(tokenizer, make_environment, temperature=1.0, max_tokens=max_tokens, agent=agent)
    rollout = Rollout(harness, make_environment, mind.engine(tokenizer), limits=limits)
    try:
        yield Probe(rollout, seed)
    finally:
        rollout.close()


class Blinded(Wrapped):
    """`inner`, of which nothing is seen but that something happened: every text of an observation is `BLANK`."""

    def __init__(self, inner: Environment, tasks: Sequence[Task]) -> None:
        """Blank what is shown; `tasks` are those whose own text the agent is not shown either."""
        super().__init__(inner)
        self._whole = {task.id: task for task in tasks}

    def reset(self, task: Task) -> Observation:
        """Begin the episode of the whole task, unseen."""
        return blank(self.begin_inner(self._whole.get(task.id, task)))

    def step(self, action: Action) -> StepResult:
        """Carry out `action`, unseen."""
        result = advance(self.inner, action)
        return replace(result, observation=blank(result.observation))


def blank(observation: Observation) -> Observation:
    """Return `observation` with every text blanked; pictures are left out."""
    shown = [part for part in as_content(observation) if not isinstance(part, Image)]
    return tuple(replace(part, text=BLANK) for part in shown) or (Text(text=BLANK),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blindness:
    """What a blindfolded mind solved of so many tasks, beside chance: ``Blindness(blind=3, chance=5, num=100)``."""

    blind: int
    chance: int
    """solved by doing nothing or by random valid actions, whichever solves more"""
    num: int

    @property
    def p_value(self) -> float:
        """One-sided p-value (Fisher) that it solves no more than chance."""
        from scipy.stats import hypergeom

        # Of all that were solved, how many are the mind's, were it and chance the same.
        return float(hypergeom.sf(self.blind - 1, 2 * self.num, self.blind + self.chance, self.num))

    @property
    def is_void(self) -> bool:
        """Whether it knows what it should not."""
        return self.p_value < LEVEL


def blindfold(
    mind: Mind,
    environment: str | type[Environment],
    *,
    seed: int,
    agent: str = AUTO,
    num: int = 100,
    limits: Limits | None = None,
) -> Blindness:
    """Return what `mind` solves of `num` held-out tasks of `environment` with observations and tasks blanked.

    Raises:
        UsageError: `num` is below 20, with which nothing would be found.
    """
    if num < 20:
        raise UsageError(f"tasks of a blindfold: got {num}; give 20 or more, or nothing would be found")
    make = find(environment)
    whole = list[Task]()
    with play_mind(mind, environment, seed=seed, agent=agent, limits=limits) as probe:
        whole += probe.tasks(num)
    with play_mind(
        mind, environment, seed=seed, agent=agent, limits=limits, wrap=lambda inner: Blinded(inner, whole)
    ) as probe:
        hidden = [replace(task, prompt=BLANK if task.prompt else "") for task in whole]
        blind = sum(t.is_success for t in flatten_scored(probe.play(hidden)))
    with closing(make()) as world:
        idle = sum(play(world, task, noop).is_success for task in whole)
        rng = random.Random(derive_seed("blindfold", seed))
        drawn = sum(
            play(world, task, lambda e, told: random_action(e, rng, told)).is_success for task in whole
        )
    return Blindness(blind=blind, chance=max(idle, drawn), num=num)


def require_blindfold(
    mind: Mind,
    environment: str | type[Environment],
    *,
    seed: int,
    agent: str = AUTO,
    num: int = 100,
    limits: Limits | None = None,
) -> Blindness:
    """Return what `blindfold` does, of a mind that is no better than chance.

    Raises:
        DataError: it is, so that what is measured with it is void.
    """
    found = blindfold(mind, environment, seed=seed, agent=agent, num=num, limits=limits)
    if found.is_void:
        raise DataError(
            f"a mind under the blindfold: got {found.blind} of {num} tasks solved where chance solves "
            f"{found.chance}; take from it what it knows without reading, for the study is void"
        )
    return found
