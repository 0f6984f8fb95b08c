"""What every method is asked for: environment, model, machine, warm start, budget, evaluation, other policies.

A method's `Config` adds its own fields. A value that is not given is the default that the method's page was measured
with, on models that are made from nothing; of a pretrained model some follow from it
(`quintain.warm_start.recommended`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from quintain.agents.catalog import is_outside
from quintain.config import check_ranges
from quintain.config.ranges import PositiveFloat, PositiveInt
from quintain.config.spec import split_list
from quintain.credit.whiten import NormaliseBy
from quintain.data.leaves import LeafRule
from quintain.errors import ConfigError, UsageError
from quintain.learning.sections import (
    DataSection,
    EvaluationSection,
    MachineSection,
    ModelSection,
    RolloutSection,
    UpdateSection,
    WarmStartSection,
)
from quintain.types import Trajectory

if TYPE_CHECKING:
    from quintain.data.pipeline import PipelineResult
    from quintain.environments.noisy import NoisyExpert

Wanted = TypeVar("Wanted", bound="TrainConfig")
MAIN = "policy"
"""The policy that a run is about."""
USUAL_DEMONSTRATIONS = 48
"""Of a method that needs some, or of an agent outside, where nobody says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """A policy beside the main one that a method asks for: ``PolicySpec()`` is a frozen copy, a reference.

    Examples: a critic with a body of its own ``PolicySpec(head="value", is_trained=True)``; its target network
    ``PolicySpec(copies="critic", head="value", follows="critic", polyak=0.01)``.
    """

    copies: str = MAIN
    """whose starting weights it begins with, where its configuration names no model of its own"""
    model: str = ""
    """folder or run whose model it begins with, where its configuration names none; empty: it copies"""
    head: Literal["tokens", "value"] = "tokens"
    """what it says of a position: a distribution over tokens, or a value as well"""
    head_seed: int = 0
    """of a fresh value head: members of an ensemble differ by it"""
    head_width: int = 0
    """units of a layer that a fresh value head has of its own; 0: it is linear"""
    head_scales: bool = False
    """whether a fresh value head reads what stands before turns and after them each on a scale of its own"""
    size: str = ""
    """tiny size (micro, mini…) of a new model with the tokenizer of the one that it copies, which it then is instead"""
    is_trained: bool = False
    follows: str = ""
    """a target network: after each update of this policy its weights move towards those of it"""
    acts: bool = False
    """whether it samples, without a seat of its own: episodes can be continued by it"""
    polyak: float = 1.0
    """τ of the Polyak average: θ ← (1 - τ)·θ + τ·θ of the policy that it follows; 0: only when its loop says so"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """What a method imitates before its first step in the place of demonstrations as they come.

    Example: ``ColdStart(choose=lambda shown, _: choose_trajectories(shown, pipeline, "…"))``.
    """

    choose: Callable[[Sequence[Trajectory], Callable[[Sequence[int]], str]], PipelineResult]
    """(what was shown, token ids → text) → what of it is imitated, with what every stage did"""
    teachers: Sequence[NoisyExpert] = ()
    """each of them shows all tasks; none: the configuration's own teacher"""
    texts: Sequence[str] = ()
    """what a new model's tokenizer learns beside what the environment writes, so that a mark is no row of letters"""


def rewrite_lora(text: str) -> dict[str, Any]:
    """Return what ``r=16,alpha=32,targets=q_proj+v_proj,out=adapter``, which runs have kept, says as options."""
    parts = dict(split_list(text, "lora", "r=16"))
    if not parts:
        return {}
    return {
        "lora_rank": int(parts["r"]),
        "lora_alpha": float(parts.get("alpha", 2 * int(parts["r"]))),
        "lora_targets": [each for each in parts.get("targets", "").split("+") if each],
        "keeps_adapter": parts.get("out") == "adapter",
    }


@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    ModelSection,
    DataSection,
    WarmStartSection,
    UpdateSection,
    RolloutSection,
    EvaluationSection,
    MachineSection,
):
    """What every method is asked for; a loop or a method adds what it reads besides."""

    renamed: ClassVar[Mapping[str, str]] = {
        "most_turns": "max_env_steps",
        "most_tokens": "max_sampled_tokens",
        "most_broken": "max_broken",
        "updates": "num_epochs",
        "decay": "gae_lambda",
        "kl": "kl_coef",
        "entropy": "entropy_coef",
        "value_weight": "vf_coef",
        "most_kl": "target_kl",
        "least": "min_advantage",
        "lora": "lora_rank",
        "first_task": "task_offset",
        "imitation_rate": "imitation_lr",
        "mistakes": "expert_noise",
        "leaves": "train_branches",
    }
    """earlier names of options"""
    rewritten: ClassVar[Mapping[str, Callable[[str], Mapping[str, Any]]]] = {"lora": rewrite_lora}
    forgotten: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "whole_groups", "train_branches", "num_epochs", "num_minibatches", "records_signals",
        ),
        "methods whose loop does not read it had it",
    )  # fmt: skip

    @property
    def plays_apart(self) -> bool:
        """Whether episodes end, and are recorded, one by one: asynchronous ones, and those of agents outside."""
        return self.rollout == "async" or is_outside(self.agent)

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        check_ranges(self)
        self.check_data()
        self.check_rollout()
        self.check_machine()
        self.check_model()
        self.check_evaluation()
        if self.cluster and is_outside(self.agent):
            raise ConfigError(
                f"cluster: got {self.cluster!r} with the agent {self.agent}, which talks to an endpoint here; "
                "leave the cluster out"
            )


@dataclass(frozen=True, kw_only=True)
class SignalsConfig(TrainConfig):
    """A configuration that writes down what tokens are trained with."""

    records_signals: bool = True
    """Write advantages, returns and weights of every trained token into the journal."""


@dataclass(frozen=True, kw_only=True)
class GroupFields(RolloutSection):
    """Of methods that compare the episodes of a task."""

    tasks: PositiveInt = 8
    """Tasks of a step."""
    group_size: int = 8
    """Episodes of a task."""

    @property
    def episodes_of_step(self) -> int:
        """How many episodes a step plays."""
        return self.tasks * self.group_size

    def check_groups(self) -> None:
        """Raise a `ConfigError` for a group of one, which has nothing to compare."""
        if self.group_size < 2:
            raise ConfigError(
                f"group_size: got {self.group_size}, and an episode alone has nothing to be compared with; "
                "give 2 or more, or use ppo or reinforce_plus_plus"
            )


@dataclass(frozen=True, kw_only=True)
class PassesSection(UpdateSection):
    """How the weights learn where a step's data is gone through in epochs of minibatches."""

    num_epochs: PositiveInt = 1
    """Times that the episodes of a step are gone through."""
    num_minibatches: PositiveInt = 1
    """Optimizer steps of an epoch, each on its share of the episodes, drawn anew."""

    @property
    def passes(self) -> int:
        """How often the episodes of a step are gone through."""
        return self.num_epochs

    @property
    def parts(self) -> int:
        """How many optimizer steps each time has."""
        return self.num_minibatches


@dataclass(frozen=True, kw_only=True)
class ImitationConfig(SignalsConfig):
    """A configuration that imitates what is there before it begins."""

    steps: PositiveInt = 200
    learning_rate: PositiveFloat = 1e-3
    batch_size: PositiveInt = 32
    """Episodes of a step."""
    demonstrations: int | str | None = 400
    """What is imitated: N episodes of the expert, or a file, folder, run or data set of conversations."""


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(SignalsConfig, PassesSection):
    """A configuration whose steps learn from episodes that the policy has just sampled."""

    train_branches: LeafRule = "used"
    """Streams of an episode to train, where its history was rewritten: used (all but calls of an agent outside that it
    did not read or go on from), all, last, longest, or root (the first)."""
    whole_groups: bool = False
    """Learn only from groups of which every episode has an outcome: where one failed, was cut or became too old, the
    others of its group are left out, too."""
    normalise_by: NormaliseBy = "none"
    """Whiten advantages over the tokens of each environment of a mixture, or of each seat, apart (AgentRL, arXiv
    2510.04206), after any credit: none, environment or seat."""


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(TrainConfig, PassesSection):
    """A configuration whose steps learn from a buffer of episodes."""


@dataclass(frozen=True, kw_only=True)
class StepRoundsConfig(SignalsConfig):
    """A configuration of rounds, each of which makes data and trains on it for so many optimizer steps."""


@dataclass(frozen=True, kw_only=True)
class RoundsConfig(StepRoundsConfig, PassesSection):
    """A configuration of rounds, each of which makes data and goes through it in epochs of minibatches."""


@dataclass(frozen=True, kw_only=True)
class PreferenceRoundsConfig(RoundsConfig):
    """A configuration of few rounds, each of which makes data of many tasks and goes through them several times."""

    steps: PositiveInt = 3
    """Rounds."""
    learning_rate: PositiveFloat = 1e-4
    eval_every: PositiveInt = 1
    num_epochs: PositiveInt = 3
    num_minibatches: PositiveInt = 4
    tasks: PositiveInt = 32
    """Tasks of a round."""


@dataclass(frozen=True, kw_only=True)
class ExploringConfig(StepRoundsConfig):
    """A configuration of few rounds that explore what the expert showed, and train on what came of it."""

    steps: PositiveInt = 1
    """Rounds: explore, build data, train on it; the paper has one."""
    demonstrations: int | str | None = 128
    """The expert's episodes, which are imitated first, then explored: N of them, or a file, folder or run of recorded
    ones."""
    learning_rate: PositiveFloat = 1e-3
    eval_every: PositiveInt = 1
    updates: PositiveInt = 60
    """Optimizer steps of a round."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have; without episodes there is nothing to explore."""
        super().check()
        if not self.demonstrations:
            raise ConfigError(
                f"demonstrations: got {self.demonstrations!r}, and the expert's episodes are what is explored; give a "
                "number of 1 or more, or a file of recorded ones"
            )


@dataclass(frozen=True, kw_only=True)
class EpisodesConfig(OnPolicyConfig):
    """A configuration whose steps are episodes of tasks that all differ."""

    episodes: PositiveInt = 64
    """Episodes of a step, each of another task."""

    @property
    def episodes_of_step(self) -> int:
        """How many episodes a step plays."""
        return self.episodes


@dataclass(frozen=True, kw_only=True)
class GroupConfig(OnPolicyConfig, GroupFields):
    """A configuration whose steps are groups of episodes that are compared with each other."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have; a group of one has nothing to compare."""
        super().check()
        self.check_groups()


@dataclass(frozen=True, kw_only=True)
class ClipHigherConfig(GroupConfig):
    """A configuration on groups whose ratio may rise further than it may fall."""

    clip_high: PositiveFloat = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""


@dataclass(frozen=True, kw_only=True)
class GroupRoundsConfig(RoundsConfig, GroupFields):
    """A configuration of rounds, the data of which are groups of episodes that are compared with each other."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have; a group of one has nothing to compare."""
        super().check()
        self.check_groups()


LOOP_OPTIONS = frozenset(
    name for kind in (OnPolicyConfig, RoundsConfig, ReplayConfig) for name in kind.__dataclass_fields__
) - frozenset(TrainConfig.__dataclass_fields__)
"""options that loops read, and not all of them"""


def list_unread_options(read: type[TrainConfig]) -> frozenset[str]:
    """Return the options of loops that a loop which takes a configuration of the class `read` does not read."""
    return LOOP_OPTIONS - frozenset(read.__dataclass_fields__)


def require_config(config: TrainConfig, wanted: type[Wanted], base: str) -> Wanted:
    """Return `config`, which is to have the options that a loop reads; `base` of `quintain.methods` has them.

    Raises:
        UsageError: it has them not.
    """
    if isinstance(config, wanted):
        return config
    raise UsageError(
        f"Config of the method: got {type(config).__qualname__}, a class without the options that its loop reads; "
        f"derive it from quintain.methods.{base}"
    )


def check_ratios(passes: PassesSection) -> None:
    """Raise a `ConfigError` where a step has one update, in which nothing has moved that could be clipped."""
    if passes.num_epochs * passes.num_minibatches < 2:
        raise ConfigError(
            f"num_epochs: got {passes.num_epochs} with one minibatch, so that every ratio is 1, never clipped; "
            "give 2 or more, or use grpo"
        )
