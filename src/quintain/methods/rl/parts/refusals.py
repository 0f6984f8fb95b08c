"""What cannot work is refused before the first episode, with what to change.

The one rule: a setting that would be ignored, or that leaves nothing to learn from, is an error and not a log
line.
"""

from quintain.environments.boundary import call_within, spec_of
from quintain.environments.catalog import find
from quintain.environments.protocol import Expert, Legal, Snapshot, StateKey
from quintain.errors import ConfigError
from quintain.methods.loops.method import Method
from quintain.training.job import Job
from quintain.training.policy import demonstrate
from quintain.training.work import Work
from quintain.types import Group

NUM_REHEARSED = 8
"""Episodes that turn rewards are looked for in."""


def refuse(job: Job, method: Method) -> None:
    """Raise a `ConfigError` when the environment of `job` has not what `method` needs."""
    make_environment = find(job.environment)
    environment = call_within(spec_of(make_environment), make_environment)
    try:
        if method.needs.state_keys and not isinstance(environment, StateKey):
            raise ConfigError(
                f"environment {job.environment}: got one without state keys, which this credit compares states by; "
                "give it a method state_key(), or use grpo"
            )
        if method.needs.expert and not isinstance(environment, Expert):
            raise ConfigError(
                f"environment {job.environment}: got one without an expert, whose actions this method compares with; "
                "give it expert_action(), or use grpo"
            )
        if method.needs.tools and not environment.tools():
            raise ConfigError(
                f"environment {job.environment}: got one without tools, whose calls this method counts; count turns "
                "(otc --count turns), leave the reward term out, or use grpo"
            )
        if method.needs.legal_actions and not isinstance(environment, Legal):
            raise ConfigError(
                f"environment {job.environment}: got one that does not list its legal actions, among which exploration "
                "chooses; give it legal_actions(), or leave tries_all and epsilon out"
            )
        if method.needs.snapshots and not isinstance(environment, Snapshot):
            raise ConfigError(
                f"environment {job.environment}: got one without snapshots, which step values are sampled from; "
                "give it snapshot() and restore(), or use ppo"
            )
    finally:
        environment.close()


def refuse_without_turn_rewards(work: Work, method: Method) -> None:
    """Raise a `ConfigError` when `method` needs turn rewards and a few episodes of the teacher have none.

    The rewards are those that the method's own terms leave.
    """
    if not method.needs.turn_rewards:
        return
    name, make_environment = work.job.environment, work.make_environment
    episodes = demonstrate(work.agent, make_environment, count=NUM_REHEARSED, seed=work.seed("rehearsal"))
    groups = method.reward([Group(task=episode.task, trajectories=(episode,)) for episode in episodes])
    if not any(turn.reward for group in groups for t in group.trajectories for turn in t.turns[:-1]):
        raise ConfigError(
            f"environment {name}: got {len(episodes)} episodes without a reward before their last turn, which this "
            "credit is made of; reward turns in its step(), add a reward term, or use grpo"
        )


def refuse_without_value_head(work: Work, method: Method) -> None:
    """Raise a `UsageError` when the credit of `method` asks a critic that it did not say it needs.

    Credit is assigned to no episodes at all, which costs nothing and which any credit must bear: a step whose
    episodes all failed is the same.
    """
    method.credit(work, ())
