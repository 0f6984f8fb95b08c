"""Where a run's policy comes from: a folder, a hub id, or a tiny model made for the environment.

A tiny model knows no language: its tokenizer is trained on what the environment writes, its weights are drawn
from the seed. The one rule: the policy a run starts from is saved in the run, so that resuming and evaluating
need nothing from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from quintain.agents.catalog import AUTO, build
from quintain.agents.protocol import Agent
from quintain.curriculum.streams import Uniform
from quintain.environments.baselines import random_action, telling
from quintain.environments.boundary import asked, spec_of, tasks_of
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, Expert, Factory
from quintain.errors import ConfigError, UsageError, suggestion
from quintain.models.load import load
from quintain.models.tiny import SIZES, build_tiny
from quintain.rollout.collect import Limits, OnEpisode, Rollout
from quintain.rollout.samplers import Demonstrator
from quintain.text.chat import Chat
from quintain.text.parse import write_tool_calls
from quintain.text.tokenizer import SPANS, train_tokenizer
from quintain.training.corpus import corpus
from quintain.types import Action, Observation, Trajectory, derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast


FUMBLES = 0.15
"""Share of a form teacher's tool calls that cannot be read."""


@dataclass(frozen=True, slots=True)
class NewModel:
    """What a model made from nothing is to be: ``NewModel("mini", "words")``, written ``mini?tokens=words``."""

    size: str
    tokens: str = "phrases"
    """What one of its tokens may span; see `quintain.text.tokenizer.SPANS`."""


def new_model(spec: str) -> NewModel | None:
    """Return the new model that `spec` names, or None where it is a folder or a hub id.

    Raises:
        UsageError: an unknown knob, or a value that it cannot have.
    """
    size, _, written = spec.partition("?")
    if size not in SIZES:
        return None
    knobs = dict(parse_qsl(written, keep_blank_values=True))
    tokens = knobs.pop("tokens", "phrases")
    if knobs:
        raise UsageError(
            f"model: got {spec!r} with {', '.join(knobs)}; its one knob is tokens, as tokens=words"
        )
    if tokens not in SPANS:
        raise UsageError(f"model: got {spec!r}; {suggestion(tokens, SPANS)}")
    return NewModel(size, tokens)


def new_policy(
    model: str, make_environment: Factory, *, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model and tokenizer that `model` names: a new one (`new_model`), a folder or a hub id."""
    if (new := new_model(model)) is not None:
        tokenizer = new_tokenizer(make_environment, seed=seed, tokens=new.tokens)
        return build_tiny(tokenizer, size=new.size, seed=seed), tokenizer
    loaded = load(model)
    return loaded.model, loaded.tokenizer


def new_tokenizer(
    make_environment: Factory, *, seed: int, tokens: str = "phrases"
) -> PreTrainedTokenizerFast:
    """Return a tokenizer trained on what the environment writes; `tokens` as in `SPANS`."""
    return train_tokenizer(corpus(make_environment, seed), tokens=tokens)


def harness(
    tokenizer: PreTrainedTokenizerBase,
    make_environment: Factory,
    *,
    temperature: float,
    max_tokens: int = 128,
    agent: str = AUTO,
) -> Agent:
    """Return the harness that `agent` names; by default the one that fits the environment."""
    chat = Chat(tokenizer)
    return asked(
        make_environment,
        lambda environment: build(agent, chat, environment, temperature=temperature, max_tokens=max_tokens),
    )


def teacher(make_environment: Factory, *, mistakes: float = 0.0) -> Demonstrator:
    """Return the environment's expert, or random valid actions (which teach the form only) where it has none.

    The expert does something else in the share `mistakes` of its turns (`environments.noisy`).

    Raises:
        ConfigError: there are to be mistakes, and no expert who could make them.
    """
    if not asked(make_environment, lambda environment: isinstance(environment, Expert)):
        if mistakes:
            raise ConfigError(
                f"mistakes: got {mistakes} with environment {spec_of(make_environment)}, which has no expert who "
                "could err; give it expert_action(), or set mistakes to 0"
            )
        return fumbled_action
    return noisy(mistakes) if mistakes else expert_action


def expert_action(environment: Environment, _rng: Random, _seen: Sequence[Observation]) -> Action:
    """Return the next action of the environment's expert."""
    assert isinstance(environment, Expert), "asked only where there is an expert"
    return environment.expert_action()


def valid_action(environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
    """Return a random valid action; integers come from the range that the observations `seen` name."""
    return random_action(environment, rng, telling(seen))


def fumbled_action(environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
    """Return a random valid action, or now and then a tool call that cannot be read.

    A policy that only ever saw calls go well does not know what to do once one went wrong. The warm-up does
    not imitate the unreadable ones: they are there for what comes after them.
    """
    action = valid_action(environment, rng, seen)
    if not action.tool_calls or rng.random() >= FUMBLES:
        return action
    text = write_tool_calls(action.tool_calls)
    start = rng.randrange(1, len(text) - 1)
    return Action(text=text[:start] + text[start + rng.randint(1, 8) :])


def demonstrate(
    agent: Agent,
    make_environment: Factory,
    *,
    count: int,
    seed: int,
    mistakes: float = 0.0,
    on_episode: OnEpisode | None = None,
) -> list[Trajectory]:
    """Return the scored ones of `count` episodes of the teacher on training tasks, as the policy's tokens."""
    demonstrator = teacher(make_environment, mistakes=mistakes)
    rollout = Rollout(agent, make_environment, None, limits=Limits(max_failure_share=0.5))
    try:
        tasks = Uniform(tasks_of(make_environment)).draw(0, count)
        groups = rollout.demonstrations(
            tasks, demonstrator, seed=derive_seed(seed, "demonstrations"), on_episode=on_episode
        )
    finally:
        rollout.close()
    return [trajectory for group in groups for trajectory in group.scored]
