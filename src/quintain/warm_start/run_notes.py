"""What is said of a run before its first step, where that is when something can still be changed.

Notes are lines for people: nobody teaches the task, the model was taught elsewhere, imitation is more work than the
training after it, rewards leave their range. What cannot come to anything is refused with what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from quintain.agents.catalog import check as check_agent
from quintain.agents.catalog import is_outside
from quintain.environments.boundary import has_expert
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import Factory
from quintain.environments.specs import place_files
from quintain.errors import ConfigError
from quintain.learning.sections import MICRO_TOKENS, DataSection, UpdateSection, WarmStartSection
from quintain.learning.train_config import USUAL_DEMONSTRATIONS, TrainConfig
from quintain.store.creation import is_run, read_settings
from quintain.store.names import split_step
from quintain.types import Score, Stop, Trajectory

PAGE, AGENT_PAGE = "docs/own-environment.md", "docs/your-agent.md"
MANY = 8192
"""Episodes of a step from which their number is said."""
MANY_TOKENS = 1 << 21
"""Tokens of a batch from which their number is said."""
TOLERANCE = 1e-6
"""Of rewards, in which rounding is no fault."""


def before_teaching(config: TrainConfig, make_environment: Factory) -> Iterator[str]:
    """Yield what is to be known before demonstrations are made for `config`."""
    taught = find_trained_format(config.model)
    if taught and config.environment != NO_ENVIRONMENT and name_of(taught) != name_of(config.environment):
        yield (
            f"{config.model} was taught in {taught}, and this run is in {config.environment}: what it knows of "
            "actions there may not help here; compare with a new model (--model tiny)"
        )
    if (episodes := config.episodes_of_step or 0) > MANY:
        yield (
            f"a step plays {episodes:,} episodes, of up to {episodes * config.max_turn_tokens:,} sampled tokens for "
            "each of their turns; fewer --tasks or a smaller --group-size, if that was not meant"
        )
    if config.tokens_per_pass > MANY_TOKENS:
        yield (
            f"up to {config.tokens_per_pass:,} tokens go through the model at once, so that memory may hold a whole "
            f"step; lower tokens_per_microbatch (usual: {MICRO_TOKENS:,}), if that was not meant"
        )
    is_shown = not isinstance(config.demonstrations, str) and config.demonstrations != 0
    if not is_shown or config.environment == NO_ENVIRONMENT:
        return
    if is_outside(config.agent):
        yield outside_note(config, has_expert=has_expert(make_environment))
        return
    if has_expert(make_environment):
        return
    if config.demonstrations is None:
        yield (
            f"{config.environment} has no expert_action(): the best episodes of random play are imitated, then the "
            f"best of the policy's own; an expert would teach more, and sooner ({PAGE})"
        )
    else:
        yield (
            f"{config.environment} has no expert_action(): its {config.demonstrations} demonstrations are random valid "
            "actions, which teach how an action is written and nothing of the task; write expert_action(), or give "
            f"--demonstrations FILE ({PAGE})"
        )


def outside_note(config: DataSection, *, has_expert: bool) -> str:
    """Return what the warm start of an agent outside imitates, and what could be imitated instead."""
    count = USUAL_DEMONSTRATIONS if config.demonstrations is None else config.demonstrations
    if "expert" in check_agent(config.agent)[-1].options:
        return (
            f"{count} episodes are imitated that the agent plays with its expert=; an agent outside is not let play "
            "until it solves enough of the tasks, so more of them is for you to say: --demonstrations N"
        )
    shown = "of the environment's expert" if has_expert else "of random valid actions"
    return (
        f"{count} episodes {shown} are imitated, through the harness that fits {config.environment} and not as the "
        f"agent writes its requests; give the agent expert= and it plays them itself ({AGENT_PAGE}), or "
        "--demonstrations 0"
    )


def before_imitation(
    warm: WarmStartSection, update: UpdateSection, episodes: int | None, lengths: Sequence[int]
) -> Iterator[str]:
    """Yield what is to be known before streams of `lengths` tokens are imitated, where a step plays `episodes`."""
    if not lengths or episodes is None:
        return
    tokens = sum(lengths)
    imitated = warm.imitation_epochs * tokens
    trained = update.steps * episodes * update.passes * tokens / len(lengths)
    if imitated > trained:
        yield (
            f"the warm start goes {warm.imitation_epochs} times through {tokens:,} tokens, {imitated / trained:.1f} "
            f"times what {update.steps} steps will train on; fewer --imitation-epochs or --demonstrations, or more "
            "--steps"
        )


def after_first_evaluation(
    config: DataSection, trajectories: Sequence[Trajectory], return_range: tuple[float, float], longest: int
) -> Iterator[str]:
    """Yield what is to be known of `config` once held-out tasks were played, before anything is trained.

    Args:
        config: what is about to be trained.
        trajectories: episodes of the held-out tasks.
        return_range: smallest and largest total reward that the environment names.
        longest: tokens of the longest stream that the policy can take.

    Raises:
        ConfigError: no episode had room for a single turn.
    """
    if trajectories and all(t.stop is Stop.MAX_TOKENS and not t.turns for t in trajectories):
        raise ConfigError(
            f"environment {config.eval_environment or config.environment}: got {len(trajectories)} tasks, none of "
            f"whose first prompts fits into the {longest:,} tokens of the model beside an answer of "
            f"{config.max_turn_tokens}; shorten what reset() and the instructions say, take a model with more room, or "
            "lower --max-turn-tokens"
        )
    cut = sum(t.stop is Stop.MAX_TOKENS for t in trajectories)
    if cut > len(trajectories) / 2:
        yield (
            f"{cut} of {len(trajectories)} held-out episodes ended because their stream was full ({longest:,} tokens): "
            "shorten observations, keep a window of them (--agent window+tools), or take a model with more room"
        )
    low, high = return_range
    returns = [t.outcome.value for t in trajectories if isinstance(t.outcome, Score)]
    if returns and not low - TOLERANCE <= min(returns) <= max(returns) <= high + TOLERANCE:
        yield (
            f"returns from {min(returns):g} to {max(returns):g} leave the range {low:g} to {high:g} that the "
            f"environment names; set its return_range, by which rewards are judged ({PAGE})"
        )


def find_trained_format(model: str) -> str:
    """Return the environment in which the run was made whose folder `model` lies in; empty where it lies in none."""
    place = Path(split_step(model)[0])
    for folder in (place, place.parent):
        if is_run(folder):
            return str(read_settings(folder)["config"].get("environment", ""))
    return ""


def name_of(environment: str) -> str:
    """Return the name of `environment` without its options; a file by its whole path, as runs keep it."""
    return place_files(environment).partition("?")[0]
