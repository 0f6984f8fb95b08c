"""MEM1 (arXiv 2506.15841): keeps a state of bounded length in the place of the episode, and learns what is in it.

Every completion writes a state and acts; the next prompt holds the task, this state, the action, and what it showed.

So a prompt does not grow with the episode (``memory?form=one`` of `quintain.agents.context`). What is trained is what
was sampled: every turn is a row of its own, with the prompt that it was sampled from and positions of its own, in the
place of one row for the whole episode under a mask. The reward is the number of objectives that are met, 1 for each
right answer and nothing else; token by token a critic says what is to come, across turns, and PPO learns by it.

With λ = 1 this is unbiased whatever the critic says. With less, a state is paid by what the critic makes of the next
prompt, which says nothing of what was forgotten on the way to it (`evidence/studies/memory_credit.py`).

Differences to the paper: no KL to the start stands in the reward, and nothing is said of turns that are left. What
stands in front of the state, a thought, is gone a turn later, as in the paper; its released code keeps what stands
behind the thought, the state of which is then gone, encodes the text that it cut again, and under removed padding
leaves its mask out, so that training sees what sampling did not. Measured on `stream`; the paper has Wikipedia.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quintain.config.ranges import Share
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs
from quintain.methods.rl.parts.actor_critic import ActorCriticConfig, actor_critic
from quintain.types import Group, Score, Trajectory, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ActorCriticConfig):
    """Configuration of MEM1."""

    environment: str = "stream?questions=2&closed_book=0"
    agent: str = "memory?form=one+text"
    """Harness: state and action in one completion (memory?form=one), around one that writes; see the list of every
    method's."""
    gae_lambda: Share = 1.0
    """λ of generalised advantage estimation; below 1 credit over states is biased, whatever the critic knows."""


def method(config: Config) -> OnPolicy:
    """Return MEM1 as `config` describes it."""
    return replace(actor_critic(config), reward=count_matches, needs=Needs(critic=True, answers=True))


def count_matches(groups: Sequence[Group]) -> list[Group]:
    """Return `groups` with 1 as the reward of each turn whose answer was right, and 0 as that of all others."""

    def pay(turn: Turn) -> Turn:
        return replace(turn, reward=float(turn.is_answer and turn.reward_terms["answer"] > 0))

    def count(trajectory: Trajectory) -> Trajectory:
        turns = tuple(map(pay, trajectory.turns))
        if not isinstance(trajectory.outcome, Score):
            return trajectory
        value = sum(turn.reward for turn in turns)
        return replace(trajectory, turns=turns, outcome=replace(trajectory.outcome, value=value))

    return [replace(group, trajectories=tuple(map(count, group.trajectories))) for group in groups]
