"""Agent-FLAN (arXiv 2403.12881): imitates capabilities in given shares, refusals among them.

L = -Σ log π(a_t | h_t).

Three things are done to agents' data, the first of them to conversations, before they are demonstrations. What calls a
tool in JSON or ReAct is said as chat (`quintain data --stage as_chat`), so that the form is not what is learned. Each
capability, an environment of a mixture, has its share of the samples. And there are negatives: episodes without a
single call, whose reply says that there is none to be made, in the share `negatives`, against made-up actions; of
conversations, `quintain data --stage refusals` makes them. `quintain eval --hallucination` gives the score of that.

Differences to the paper: capabilities are environments, and their shares are given, where the paper reads them off
learning curves; negatives are tasks in which the environment's expert refuses, or what the stage makes of conversations
without a writer: a request whose tools are taken off the list, answered by one fixed sentence, and plain chat beside
tools, where the paper has GPT-4 write both; chat form says call and result in sentences of one turn, where the paper
asks for each part of an action in a turn of its own; what a model is trained on in an environment keeps the form of its
harness. The score is of all replies in which the expert calls nothing. Measured on arithmetic with tools, some of which
are withheld.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from quintain.config.ranges import Share
from quintain.data import stages
from quintain.data.mixtures import measure_shares, odds
from quintain.data.pipeline import Pipeline, PipelineResult, check_stage
from quintain.errors import DataError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data, numbers_of
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.methods.rl.parts.contexts import ExpertLabels, ask_expert
from quintain.types import Example, Trajectory, Turn

NEGATIVE = "negative"
"""The part of the data that holds refusals."""
FORM = re.compile(r"<tool_call>|\"(?:name|arguments)\"\s*:|^I call \w+", re.MULTILINE)
"""What looks like a call, read or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of Agent-FLAN."""

    environment: str = "calc?steps=1&names=0&checks=0&withheld=0.5"
    negatives: Share = 0.2
    """Share of samples that are refusals; 0 leaves them out."""
    capabilities: Mapping[str, str] = field(default_factory=dict[str, str])
    """Shares of the environments of a mixture among all other samples: calc=0.7; none: as many as there are of each."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationConfig.check(self)
        weights(self)


def method(config: Config) -> Offline:
    """Return Agent-FLAN as `config` describes it."""

    def data(collector: Collector) -> PipelineResult:
        return choose_trajectories(
            collector.demonstrations(), pipeline(config.negatives), "imitating agents and refusals"
        )

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        odds=lambda examples: mixture(examples, config.negatives, weights(config)),
        metrics=lambda data: shares([e for e in data if isinstance(e, Example)], config),
    )


def pipeline(negatives: float) -> Pipeline:
    """Return solved → refusals only where they are asked for."""
    acting = check_stage("acting", "makes no call", lambda example: not is_negative(example.trajectory))
    return Pipeline(stages.keep_solved()) if negatives else Pipeline(stages.keep_solved(), acting)


def mixture(examples: Sequence[Example], negatives: float, capabilities: Mapping[str, float]) -> list[float]:
    """Return how likely each example is to be drawn: `negatives` of the samples refuse, the others as `capabilities`.

    Without capabilities each environment has as much of the rest as there is of it.

    Raises:
        DataError: nothing makes a call, or refusals are asked for and nothing refuses.
    """
    parts = [part_of(example) for example in examples]
    if parts and set(parts) == {NEGATIVE}:
        raise DataError(
            f"refusals: got {len(parts)} examples, none of which makes a call, so that there is nothing to hold "
            "refusals against; take an environment or conversations in which tools are called, or use sft"
        )
    own = capabilities or {part: float(parts.count(part)) for part in sorted(set(parts)) if part != NEGATIVE}
    total = sum(own.values())
    rest = {part: (1 - negatives) * share / total for part, share in own.items()} if total else {}
    return odds(examples, part_of, {NEGATIVE: negatives, **rest})


def part_of(example: Example) -> str:
    """Return the capability that `example` is of: its environment, or that of refusing."""
    trajectory = example.trajectory
    return NEGATIVE if is_negative(trajectory) else trajectory.task.environment.partition("?")[0]


def is_negative(trajectory: Trajectory) -> bool:
    """Return whether no turn of `trajectory` makes a call or has the form of one."""
    return not any(has_form(turn) for turn in trajectory.turns)


def has_form(turn: Turn) -> bool:
    """Return whether `turn` makes a call or has the form of one."""
    return bool(turn.action.tool_calls) or FORM.search(turn.action.text) is not None


def find_uncalled(environment: str, trajectories: Sequence[Trajectory]) -> list[Turn]:
    """Return the replies in `trajectories` of `environment` in whose place its expert, asked there, calls nothing."""
    labels = ExpertLabels(environment, ask_expert)
    return [
        turn
        for trajectory in trajectories
        for turn, right in zip(trajectory.turns, labels.labels(trajectory), strict=True)
        if right is not None and not right.tool_calls
    ]


def weights(config: Config) -> dict[str, float]:
    """Return the shares of capabilities.

    Raises:
        ConfigError: one is no number.
    """
    return numbers_of("capabilities", config.capabilities, "calc=0.7")


def shares(examples: Sequence[Example], config: Config) -> dict[str, float]:
    """Return the share of samples of each capability, as they are drawn."""
    drawn = mixture(examples, config.negatives, weights(config))
    return {
        f"agent_flan/{part}": samples
        for part, (samples, _) in measure_shares(examples, part_of, drawn).items()
    }


def hallucination_score(forms: Sequence[bool], acts: Sequence[bool]) -> float:
    """Return H = ((1 - H_format) + (1 - H_action)) / 2 over replies that should make no call.

    Args:
        forms: of each reply, whether it has the form of a call.
        acts: whether it makes one.

    Raises:
        DataError: there is no reply.
    """
    if not forms or len(forms) != len(acts):
        raise DataError(
            f"replies to score: got {len(forms)} and {len(acts)}; give both numbers of one or more"
        )
    return fmean((1 - fmean(map(float, forms)), 1 - fmean(map(float, acts))))
