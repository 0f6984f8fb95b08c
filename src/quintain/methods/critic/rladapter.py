"""RLAdapter (arXiv 2309.17176): learns messages to a frozen adviser by what its advice brings.

L = -Σ r_i log π(m_i | s_i) over messages m, r its interval's outcome.

A frozen agent is told sub-goals by a frozen adviser, who knows only what an adapter writes to it
(`quintain.agents.adviser`). The adapter is a language model and is all that learns: every round it plays, and imitates
those of its messages whose sub-goal was reached in their own interval by a step that the environment pays for. What
the adapter is shown says what is done and how well the last advice was understood, the cosine of the words of advice
and behaviour. The adviser is asked at most `queries` times an episode, every `every` steps or when a sub-goal is
reached.

Adapter and agent begin as one model that imitated both, the adapter to write any two facts that it sees: the form, and
nothing of what helps. The policy ``reference``, that start, plays the agent and never learns (`seats`); a trained agent
of another run is named by ``policies.reference.model``.

Differences to the paper: the agent rests, where the paper trains it by PPO in turn with the adapter; the adviser is a
script that reads two facts, or a policy (``agent="advised?adviser=policy"``); the sub-goal is told in words and not as
an embedding; outcomes are sub-goals reached and paid for, and what failed is left out, not imitated as a bad example.
The understanding score is shown and measured, and decides nothing: advice that names everything is understood by all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from quintain.agents.adviser import ADAPTER, ADVISER, AGENT, REACHED, UNDERSTOOD
from quintain.agents.catalog import check as parts_of
from quintain.config.ranges import PositiveInt
from quintain.data.pipeline import Pipeline, check_stage, weigh_stage
from quintain.errors import ConfigError
from quintain.learning.train_config import MAIN, RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Needs, sample_groups
from quintain.types import ALONE, Group, Trajectory, flatten_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of RLAdapter."""

    environment: str = "craft?recipes=drawn&depth=2&reward=dense"
    """An environment with an adviser, which pays on the way."""
    agent: str = "advised"
    """Harness with an adapter, an adviser and an agent: advised, and options of it."""
    seats: Mapping[str, str] = field(default_factory=lambda: {AGENT: "reference"})
    """Who plays the agent and, where it is a policy, the adviser: policies that rest."""
    demonstrations: int | str | None = 200
    steps: int = 6
    """Rounds."""
    eval_every: int = 2
    num_epochs: PositiveInt = 2
    num_minibatches: PositiveInt = 4
    tasks: PositiveInt = 32
    """Tasks of a round."""
    group_size: PositiveInt = 2
    """Episodes of a task."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        RoundsConfig.check(self)
        part = parts_of(self.agent)[-1]
        if part.name != "advised" or part.options.get("adapter", "policy") != "policy":
            raise ConfigError(f"agent: got {self.agent!r}, in which no adapter writes; give advised")
        is_played = part.options.get("actor", "policy") == "policy"
        if not is_played and self.seats.get(AGENT, MAIN) != MAIN:
            raise ConfigError(
                f"seats: got {dict(self.seats)} with a script that acts, where the adapter plays alone and "
                f"has the seat {AGENT!r}; give seats.{AGENT} = {MAIN!r}"
            )
        resting = [
            *([AGENT] if is_played else []),
            *([ADVISER] if part.options.get("adviser", "scripted") == "policy" else []),
        ]
        learning = [seat for seat in resting if not self._rests(self.seats.get(seat, MAIN))]
        if learning or self.seats.get(ADAPTER, MAIN) != MAIN:
            raise ConfigError(
                f"seats: got {dict(self.seats)}; let {MAIN!r} be the {ADAPTER}, and a policy that rests each of "
                f"{', '.join(resting) or 'the others'}: 'reference', or one with is_trained = false"
            )

    def _rests(self, policy: str) -> bool:
        """Whether `policy` is not trained."""
        own = self.policies.get(policy)
        return policy == "reference" or (own is not None and own.is_trained is False)


def method(config: Config) -> Rounds:
    """Return RLAdapter as `config` describes it."""
    return Rounds(
        collect=sample_groups(config.tasks, config.group_size),
        build=messages(),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        needs=Needs(reference=True),
        measure=lambda groups, _: measure_advice(groups),
    )


def messages() -> Pipeline:
    """Return the adapter's episodes → the messages whose own interval came to what was advised, by what it was paid."""
    return Pipeline(
        check_stage("adapter", "is not the adapter's", lambda e: is_adapters(e.trajectory)),
        weigh_stage(
            "reached",
            "has no message whose sub-goal was reached",
            lambda t: [turn.rewards.get(ADAPTER, turn.reward) for turn in t.turns],
        ),
    )


def is_adapters(episode: Trajectory) -> bool:
    """Return whether all of `episode` was said by the adapter: as its seat, or alone, where scripts play the others."""
    return all(turn.speaker == ADAPTER for turn in episode.turns) or all(
        ADAPTER in turn.rewards and turn.speaker == ALONE for turn in episode.turns
    )


def measure_advice(groups: Sequence[Group]) -> dict[str, float]:
    """Return queries an episode, the share of sub-goals that were reached, and how well advice was understood."""
    episodes = flatten_scored(groups)
    turns = [turn for t in episodes for turn in t.turns]
    ended = [turn.reward_terms for turn in turns if REACHED in turn.reward_terms]
    asked = sum(
        len(t.turns) if is_adapters(t) else sum(turn.speaker == ADAPTER for turn in t.turns) for t in episodes
    )
    found = {"rladapter/queries": asked / max(len(episodes), 1)}
    if ended:
        found["rladapter/reached"] = fmean(terms[REACHED] for terms in ended)
        found["rladapter/understood"] = fmean(terms[UNDERSTOOD] for terms in ended)
    return found
