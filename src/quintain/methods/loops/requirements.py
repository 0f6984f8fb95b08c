"""What cannot work is refused before the first episode, with what to change."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from quintain.environments.boundary import call_within, spec_of
from quintain.environments.catalog import find
from quintain.environments.protocol import Expert, Legal, Privileged, Proposes, Snapshot, StateKey
from quintain.errors import ConfigError
from quintain.learning.sections import DataSection
from quintain.learning.train_config import MAIN, ColdStart, TrainConfig
from quintain.methods.method import Needs
from quintain.rollout.collect import Limits
from quintain.runs.context import TrainingContext, open_context
from quintain.store.run import Run
from quintain.types import Group
from quintain.warm_start.expert_episodes import with_recordings
from quintain.warm_start.start import demonstrate

NUM_REHEARSED = 8
"""Episodes that turn rewards are looked for in."""


def begin_run(
    needs: Needs,
    config: TrainConfig,
    run: Run,
    *,
    has_warm_start: bool = True,
    cold_start: ColdStart | None = None,
    plays: bool = True,
) -> AbstractContextManager[TrainingContext]:
    """Return the parts of a run of `config` with what `needs` asks for, to be entered; see `open_context`.

    Raises:
        ConfigError: the environment has not what `needs` names.
    """
    refuse_environment(config, needs)
    limits = Limits(has_state_keys=needs.state_keys or needs.branches)
    return open_context(
        config,
        run,
        has_warm_start=has_warm_start,
        cold_start=cold_start,
        has_critic=needs.critic and needs.critic_policy == MAIN,
        policies=needs.policies,
        limits=limits,
        asks_expert=can_be_recorded(needs),
        plays=plays,
    )


def can_be_recorded(needs: Needs) -> bool:
    """Return whether recorded episodes are enough of the expert that is asked for."""
    return needs.expert and not needs.expert_anywhere


def refuse_environment(config: DataSection, needs: Needs) -> None:
    """Raise a `ConfigError` when the environment of `config` has not what `needs` names.

    Raises:
        DataError: recorded episodes take the place of an expert, and none is of a task of the environment.
    """
    make_environment = find(config.environment)
    is_shown = can_be_recorded(needs) and (isinstance(config.demonstrations, str) or bool(config.teacher))
    if is_shown and not config.teacher:
        with_recordings(config, make_environment)
    environment = call_within(spec_of(make_environment), make_environment)
    try:
        asked = (
            (needs.state_keys, isinstance(environment, StateKey), "one without state keys, which this credit compares "
             "states by; give it a method state_key(), or use grpo"),
            (needs.expert_anywhere, isinstance(environment, Expert), "one without an expert, who is asked what is "
             "right wherever the policy comes, which no recording says; give it expert_action(), or use grpo"),
            (needs.expert, isinstance(environment, Expert) or is_shown, "one without an expert, whose actions this "
             "method learns from; give it expert_action(), or recorded episodes (--demonstrations FILE), or use grpo"),
            (needs.tools, needs.tools and bool(environment.tools()), "one without tools, whose calls this method "
             "counts; count turns (otc --count turns), leave the reward term out, or use grpo"),
            (needs.legal_actions, isinstance(environment, Legal), "one that does not list its legal actions, among "
             "which exploration chooses; give it legal_actions(), or leave tries_all and epsilon out"),
            (needs.privileged, isinstance(environment, Privileged), "one that does not say what it hides, which the "
             "critic of this method is told; give it privileged(), or say is_told=false"),
            (needs.proposals, isinstance(environment, Proposes), "one that cannot say what could be asked for, for "
             "tasks to be proposed; give it proposal(rng) and read_proposal(text), or leave the proposer out"),
            (needs.snapshots, isinstance(environment, Snapshot), "one without snapshots, which step values are sampled "
             "from; give it snapshot() and restore(), or use ppo"),
        )  # fmt: skip
        for is_needed, is_there, lacking in asked:
            if is_needed and not is_there:
                raise ConfigError(f"environment {config.environment}: got {lacking}")
    finally:
        environment.close()


def refuse_without_turn_rewards(
    context: TrainingContext, needs: Needs, reward: Callable[[Sequence[Group]], Sequence[Group]]
) -> None:
    """Raise a `ConfigError` when turn rewards or answers are needed and a few episodes of the teacher have none.

    The rewards are those that the method's own terms, `reward`, leave.
    """
    if not (needs.turn_rewards or needs.answers):
        return
    episodes = demonstrate(
        context.agent, context.make_environment, count=NUM_REHEARSED, seed=context.seed("rehearsal")
    )
    if needs.answers and not any(turn.is_answer for t in episodes for turn in t.turns):
        raise ConfigError(
            f"environment {context.config.environment}: got {len(episodes)} episodes without a turn that is called an "
            "answer, which this method imitates; pay answers as the reward term answer, or use grpo"
        )
    groups = reward([Group(task=episode.task, trajectories=(episode,)) for episode in episodes])
    if needs.turn_rewards and not any(
        turn.reward for group in groups for t in group.trajectories for turn in t.turns[:-1]
    ):
        raise ConfigError(
            f"environment {context.config.environment}: got {len(episodes)} episodes without a reward before their "
            "last turn, which this credit is made of; reward turns in its step(), add a reward term, or use grpo"
        )
