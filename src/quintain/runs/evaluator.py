"""Where a run is evaluated: in its own environment, or in another that it never trains on.

The other asks whether what was learned holds where things differ: larger screens, other rooms, a new shop. The policy
acts there as it learned to; where it could not, the run is refused before anything is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from quintain.agents.protocol import Agent
from quintain.environments.boundary import ask, check_tools
from quintain.environments.catalog import find
from quintain.environments.protocol import Factory
from quintain.errors import ConfigError, UsageError
from quintain.learning.sections import DataSection
from quintain.learning.train_config import MAIN, TrainConfig
from quintain.rollout.collect import Rollout
from quintain.rollout.request import EpisodeRequest
from quintain.runs.resources import Resources
from quintain.types import Trajectory
from quintain.warm_start.start import harness, new_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def make_evaluator(
    config: TrainConfig,
    rollout: Rollout,
    tokenizer: PreTrainedTokenizerBase,
    resources: Resources,
    recall: Callable[[EpisodeRequest], Trajectory | None] | None = None,
) -> Rollout:
    """Return what plays the evaluations of `config`: `rollout` itself, or another in `eval_environment`.

    What `recall` returns is not played; see `Rollout`.
    """
    if not config.eval_environment:
        return rollout
    limits = replace(rollout.limits, has_state_keys=False)
    agent = check_evaluation(config, tokenizer, is_new=new_model(config.model) is not None)
    make_environment = find(config.eval_environment)
    source = resources.source({MAIN: agent}, config.eval_environment, limits, seats={})
    return Rollout(agent, make_environment, rollout.engine, limits=limits, source=source, recall=recall)


def check_evaluation(config: DataSection, tokenizer: PreTrainedTokenizerBase, *, is_new: bool) -> Agent:
    """Return the harness in the `eval_environment` of `config`, for a policy that may be a model that `is_new`.

    Raises:
        ConfigError: a policy that learns in `environment` cannot act in `eval_environment`: another harness, or a new
            model and no tool that it learns to call.
    """
    learned = harness(config, tokenizer, find(config.environment))
    where = f"eval_environment: got {config.eval_environment} for a run in {config.environment}"
    try:
        agent = harness(config, tokenizer, find(config.eval_environment))
    except UsageError as error:
        raise ConfigError(f"{where}; {error}") from error
    forms = [type(innermost(each)).__name__ for each in (learned, agent)]
    if forms[0] != forms[1]:
        raise ConfigError(
            f"{where}, which is acted in by {forms[1]}, not by {forms[0]}; name one that both have, as agent=react"
        )
    known, needed = (_tools(find(each)) for each in (config.environment, config.eval_environment))
    if needed and not known & needed and is_new:
        raise ConfigError(
            f"{where}, whose tools ({', '.join(sorted(needed))}) a new model never calls there; name one that shares "
            "tools with it, or a model that was trained before"
        )
    return agent


def innermost(agent: Agent) -> Agent:
    """Return the harness within all that it is wrapped in."""
    while (inner := getattr(agent, "agent", None)) is not None:
        agent = inner
    return agent


def _tools(make: Factory) -> set[str]:
    return {tool.name for tool in ask(make, check_tools)}
