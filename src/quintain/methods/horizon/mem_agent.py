"""MemAgent (arXiv 2507.02259): reads a long text page by page into a memory, and learns what to keep of the answer.

A_i = R_i - mean of the group, on every token of every turn of episode i.

An episode is several conversations (`quintain.agents.reading`): question, memory and page give the next memory, which
replaces the one before; question and memory alone give the answer. The answer's reward trains all of them alike, so
that a page is read for what it is worth many pages later. Episodes are compared with others of the same question: the
mean is over episodes, whatever number of conversations each has, and a group of one has advantages of 0. The loss is
the clipped surrogate, by its dual bound where an advantage is negative, averaged over all tokens of the step, and a KL.

Differences to the paper: the reward is the environment's, less what pages cost there; answers to a question are 8, not
16; no learning rate is warmed up. Its released code takes the mean over the rows of all conversations if it is told
nothing else, and the raw reward for a group of one: not here. Measured on `stream` and a table; the paper has RULER.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.group import group_relative
from quintain.errors import ConfigError
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy, hold
from quintain.methods.method import sample_groups
from quintain.types import Group, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of MemAgent."""

    environment: str = "stream?closed_book=0"
    agent: str = "chunks+text"
    """Harness: pages come by themselves (chunks), or are asked for (memory); see the list of every method's."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    dual_clip: PositiveFloat = 3.0
    """The loss of a token with a negative advantage is at most this times the advantage's size."""
    kl_coef: NonNegativeFloat = 0.001
    """Weight of the KL (k3) to the starting policy in the loss."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        GroupConfig.check(self)
        if self.dual_clip <= 1:
            raise ConfigError(f"dual_clip: got {self.dual_clip:g}; give more than 1")


def method(config: Config) -> OnPolicy:
    """Return MemAgent as `config` describes it."""
    plain = OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        credit=lambda groups, _: group_relative(groups, std="none"),
        update=Update(
            loss=clip_ratio(config.clip, config.clip, dual=config.dual_clip), aggregation="token_mean"
        ),
        measure=measure_memory,
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=0.0)


def measure_memory(groups: Sequence[Group], _: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Return the conversations of an episode, the tokens of a memory, and those of the longest conversation.

    A conversation is what begins with a turn that starts a segment; its length is prompts and completions together.
    """
    episodes = flatten_scored(groups)
    lengths: list[list[int]] = []
    memories: list[int] = []
    for trajectory in episodes:
        own: list[int] = []
        for turn in trajectory.turns:
            if turn.starts_segment:
                own.append(0)
            own[-1] += len(turn.prompt_ids) + len(turn.completion.token_ids)
        lengths.append(own)
        memories += [len(turn.completion.token_ids) for turn in trajectory.turns[:-1]]
    if not any(lengths):
        return {}
    return {
        "memory/conversations": fmean(map(len, lengths)),
        "memory/tokens": fmean(memories) if memories else 0.0,
        "memory/peak": fmean(max(own, default=0) for own in lengths),
    }
