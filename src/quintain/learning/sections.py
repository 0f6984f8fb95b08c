"""The sections of a configuration: what a function reads of it is the section that it takes.

Each section is a small frozen dataclass, and the configuration of a method inherits from all of them
(`quintain.learning.train_config`), so that whoever has the whole hands it to a function that sees one section of it.
Flags, files and stored configurations stay flat. ``section`` and ``about`` are what the help calls it and says of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from quintain.agents.catalog import check as check_agent
from quintain.agents.catalog import is_outside
from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.data.records import Overlong, TrainOn, Unusable
from quintain.distributed.connection import check_address
from quintain.distributed.placement import load_placement
from quintain.engines.chat_client import is_endpoint
from quintain.engines.settings import read_engine
from quintain.errors import ConfigError
from quintain.learning.thresholds import thresholds
from quintain.models.precision import Precision

OptimizerName = Literal["adamw", "sgd", "adafactor"]
Schedule = Literal["method", "constant", "linear", "cosine"]
MICRO_TOKENS = 16_384
"""Tokens of a forward pass in training where nobody says how many, and nothing is measured."""
SHORTEST = 16
"""Tokens of a stream in which anything can be said, and the engine be compared with the learner."""


@dataclass(frozen=True, kw_only=True)
class PolicyFields:
    """How a policy computes: its layers of LoRA, its machine, what samples from it."""

    renamed: ClassVar[Mapping[str, str]] = {"micro_tokens": "tokens_per_microbatch"}
    """earlier names of options"""

    lora_rank: NonNegativeInt = 0
    """Rank of LoRA layers that are trained instead of all weights; 0 trains all. A pretrained model of 500M parameters
    or more takes 16, unless this is given."""
    lora_alpha: PositiveFloat = 16.0
    """Scale of the LoRA layers: alpha / rank."""
    lora_targets: tuple[str, ...] = ()
    """Ends of the names of the modules that get LoRA layers: q_proj,v_proj; none: every linear layer but the output
    head."""
    device: str = "auto"
    """Where the policy computes: auto, cpu, cuda, cuda:1 or mps."""
    precision: Precision = "fp32"
    """fp32, or bf16 for the linear layers in training and sampling; weights and optimizer stay in fp32."""
    engine: str = "local"
    """What samples from the policy: local (on the weights that are trained), process (a process of its own), or servers
    of vLLM or SGLang, started (vllm?replicas=2&program=…) or there already (vllm?url=http://…; docs/engines.md)."""
    max_context: Annotated[int, Ge(SHORTEST)] | None = None
    """Longest token stream of an episode; none: the model's own limit."""
    tokens_per_microbatch: PositiveInt | None = None
    """Tokens of a forward pass in training; a longer stream than this is refused. None: 16,384, and on a GPU as many
    as one measured pass shows to fit."""

    @property
    def tokens_per_pass(self) -> int:
        """Tokens of a forward pass in training, before anything is measured."""
        return self.tokens_per_microbatch or MICRO_TOKENS


@dataclass(frozen=True, kw_only=True)
class PolicySettings(PolicyFields):
    """How a policy beside the main one is loaded, run and trained: ``PolicySettings(shares="policy", lora_rank=8)``."""

    model: str = ""
    """Folder, run or a step of one (RUN@best), or hub id; empty: it begins as a copy, see the method."""
    shares: str = ""
    """Policy whose model it shares, as a LoRA adapter of its own."""
    is_trained: bool | None = None
    """Whether it learns; none: as the method says, and yes for the policy of a seat."""
    learning_rate: PositiveFloat | None = None
    """Learning rate of AdamW; none: that of the run."""
    past: NonNegativeInt = 0
    """Earlier versions of the policy that are kept, frozen; one of them plays in each group. 0: it is no past self."""
    every: PositiveInt = 10
    """Steps after which the policy as it is becomes the newest of its past selves."""
    drawn: Literal["recent", "even", "hard"] = "recent"
    """Which past self plays: recent (each half as often as the next newer one), even, or hard (one with which the
    policy succeeds seldom)."""
    swaps: bool = False
    """Whether the seat of a past self is drawn, too, among those of the policy."""


@dataclass(frozen=True, kw_only=True)
class ModelSection(PolicyFields):
    """The model, and how and where it computes."""

    section: ClassVar[str] = "model"
    about: ClassVar[str] = "the model, and how and where it computes"

    model: str = "auto"
    """A new one (micro, mini, tiny, small; mini?tokens=words; auto is tiny, or mini where a tool takes a text of the
    agent's own), smollm2, a run or a step of one (RUN@best, RUN@75), or a folder, GGUF file or hub id."""
    chat_template: str = ""
    """File with a chat template that takes the place of the model's own, for good: it is saved with the model."""
    template_options: str = ""
    """What the chat template is given: enable_thinking=false,reasoning_effort=low."""
    template_differs: Literal["refuse", "allow"] = "refuse"
    """Whether to train where the stream differs from what the model's template writes: refuse or allow."""
    keeps_adapter: bool = False
    """Whether the LoRA layers themselves are written at the end of a run, beside the merged model."""
    policies: Mapping[str, PolicySettings] = field(default_factory=dict[str, PolicySettings])
    """Policies beside the main one, by name: those that the method asks for, and those of other seats."""
    seats: Mapping[str, str] = field(default_factory=dict[str, str])
    """Seat of the environment, or role of a seat in its harness (agent/plan) → policy that plays it; seats that are not
    named are played by ``policy``."""

    def main_policy(self, *, is_copy: bool = False) -> PolicySettings:
        """Return the settings of the main policy; as a copy it has its machine, and no model or adapter of its own."""
        own: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(PolicyFields)}
        settings = PolicySettings(**own)
        return replace(settings, lora_rank=0) if is_copy else settings

    def check_model(self) -> None:
        """Raise a `ConfigError` for an engine that is none."""
        for engine in (self.engine, *(settings.engine for settings in self.policies.values())):
            read_engine(engine)


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """What is played, and what is shown of it."""

    section: ClassVar[str] = "data"
    about: ClassVar[str] = "environment, agent, and what is shown before training"

    environment: str = "babyai/GoToRedBallNoDists"
    """Name in the catalogue (with options: keydoor?rooms=3), or file.py:Class, or package.module:Class."""
    eval_environment: str = ""
    """Environment of the evaluations where it is another than that of training; empty for the same."""
    agent: str = "auto"
    """Harness the model acts through: tools, choice, react, text..., with wrappers in front: window+react; or an agent
    of your own that talks to a base_url: mine.py:run_agent?grade=grade (docs/your-agent.md)."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature of training rollouts; log-probs are of the same distribution."""
    max_turn_tokens: PositiveInt = 128
    """Tokens that the policy may sample in a turn, unless the agent says otherwise."""
    seed: int = 0
    """Seed of the run; everything random is derived from it."""
    task_offset: NonNegativeInt = 0
    """Number of the first task; runs whose numbers lie far apart train, imitate and are evaluated on other tasks."""
    demonstrations: NonNegativeInt | str | None = None
    """What is imitated before training: none for as much as it takes until enough tasks are solved (the expert's
    episodes, or the best of random play); N for N episodes of the expert (or of random valid actions), 0 for nothing;
    or a file, folder, run or data set of conversations (docs/data.md)."""
    teacher: str = ""
    """Chat endpoint whose solved episodes are imitated: http://…/v1?model=NAME (docs/your-agent.md). It plays as many
    as demonstrations says (48), which are first collected into the run NAME-teacher."""
    expert_noise: Share = 0.0
    """Share of the expert's turns in demonstrations in which it does something else; it errs as the world's do."""
    train_on: TrainOn = "all"
    """Answers of conversations that are trained: all (but those with weight 0), last, or tagged (weight 1)."""
    overlong: Overlong = "error"
    """What becomes of conversations longer than the context: error, or drop (left out and counted)."""
    unusable: Unusable = "error"
    """What becomes of a line of data that cannot be used: error, or drop (left out, counted and named)."""

    def check_data(self) -> None:
        """Raise a `ConfigError` for what nobody can show, or a `UsageError` for an agent that is none."""
        check_agent(self.agent)
        if self.expert_noise and isinstance(self.demonstrations, str):
            raise ConfigError(
                f"expert_noise: got {self.expert_noise} with the conversations {self.demonstrations}, in which no "
                "expert acts; leave it at 0"
            )
        if self.teacher:
            self._check_teacher()
        if self.expert_noise and self.demonstrations == 0:
            raise ConfigError(
                f"expert_noise: got {self.expert_noise} without demonstrations, where nobody could err; "
                "raise demonstrations"
            )

    def _check_teacher(self) -> None:
        asked = f"teacher: got {self.teacher!r}"
        if not is_endpoint(self.teacher):
            raise ConfigError(f"{asked}; give the URL of a chat endpoint, such as http://…/v1?model=NAME")
        if isinstance(self.demonstrations, str) or self.demonstrations == 0:
            raise ConfigError(
                f"{asked} with demonstrations {self.demonstrations!r}; give the number of its episodes, or no teacher"
            )
        if self.expert_noise:
            raise ConfigError(
                f"{asked} with expert_noise {self.expert_noise}, which are an expert's; leave them at 0"
            )
        if is_outside(self.agent):
            raise ConfigError(
                f"{asked} with the agent {self.agent}, which talks to a base_url itself; teach it by expert="
            )


@dataclass(frozen=True, kw_only=True)
class WarmStartSection:
    """How demonstrations are imitated before the first step."""

    section: ClassVar[str] = "warm-start"
    about: ClassVar[str] = "how demonstrations are imitated before the first step"

    imitation_lr: PositiveFloat | None = None
    """Learning rate at which demonstrations are imitated before training; it falls to 0. None: of a new model
    0.256 divided by its width (0.002 for tiny), and a quarter of that where tokens are runs (0.001 for mini); of a
    pretrained model what suits its size (docs/pretrained.md)."""
    imitation_epochs: PositiveInt = 12
    """Times that demonstrations of which N are given are gone through before training; fewer leave a policy that still
    explores. A pretrained model takes 3, unless this is given."""


@dataclass(frozen=True, kw_only=True)
class UpdateSection:
    """How long and how the weights learn."""

    section: ClassVar[str] = "update"
    about: ClassVar[str] = "how long and how the weights learn"

    steps: PositiveInt = 100
    """Steps of training; the evaluation before the first is step 0."""
    learning_rate: PositiveFloat = 3e-4
    """Learning rate of AdamW in training; of a pretrained model it follows from its size and the method, unless it is
    given (docs/pretrained.md)."""
    lr_schedule: Schedule = "method"
    """How the learning rate goes over the steps: as the method says, constant, linear or cosine (both fall to 0)."""
    lr_warmup: NonNegativeInt = 0
    """First steps, over which the learning rate rises; counts where lr_schedule is not that of the method."""
    optimizer: OptimizerName = "adamw"
    """Optimizer: adamw, adafactor (less memory), or sgd (with momentum 0.9)."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of the optimizer."""
    max_grad_norm: PositiveFloat = 1.0
    """Norm that gradients are clipped to."""
    gradient_checkpointing: bool = False
    """Keep only what each layer begins with for the backward pass, and compute the rest anew: less memory."""

    @property
    def passes(self) -> int:
        """How often the episodes of a step are gone through."""
        return 1

    @property
    def parts(self) -> int:
        """How many optimizer steps each time has."""
        return 1


@dataclass(frozen=True, kw_only=True)
class RolloutSection:
    """How episodes are played."""

    section: ClassVar[str] = "rollout"
    about: ClassVar[str] = "how episodes are played, and how many at most"

    rollout: Literal["lockstep", "async"] = "lockstep"
    """How episodes are played: lockstep (repeats bit for bit), or async (a slow environment holds up only itself)."""
    max_staleness: NonNegativeInt = 0
    """Versions that an episode may be behind the weights that learn from it; with 1 or more, async plays ahead."""
    max_stragglers: Share = 0.0
    """Share of a step's episodes that it does not wait for, with max_staleness: the last to end are left out, which
    favours short episodes."""
    concurrency: PositiveInt = 256
    """Episodes alive at once."""
    max_broken: Share = 0.01
    """Share of attempts at an episode that environment, tools or judge may break; above it the run is refused."""
    max_env_steps: PositiveInt | None = None
    """Environment steps of training episodes after which the run ends; none for no limit."""
    max_sampled_tokens: PositiveInt | None = None
    """Sampled tokens of training episodes after which the run ends; none for no limit."""

    @property
    def episodes_of_step(self) -> int | None:
        """How many episodes a step plays; None where that is not fixed."""
        return None

    def check_rollout(self) -> None:
        """Raise a `ConfigError` for what is played ahead where nothing is."""
        if self.max_staleness and self.rollout == "lockstep":
            raise ConfigError(
                f"max_staleness: got {self.max_staleness} in lockstep, where weights never move on while an episode is "
                "played; use rollout=async, or leave it at 0"
            )
        if self.max_stragglers and not self.max_staleness:
            raise ConfigError(
                f"max_stragglers: got {self.max_stragglers} without max_staleness, where every episode is waited for; "
                "give rollout=async and a max_staleness of 1 or more, or leave it at 0"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluationSection:
    """What is measured, and who is told."""

    section: ClassVar[str] = "evaluation"
    about: ClassVar[str] = "what is measured, and who is told"

    eval_every: PositiveInt = 25
    """Steps between evaluations; each also saves a checkpoint."""
    eval_episodes: PositiveInt = 128
    """Held-out tasks of an evaluation, one episode each."""
    eval_start: bool = True
    """Whether the policy is evaluated before its first step of training."""
    eval_untrained: bool = False
    """Whether the model is also evaluated before it imitates demonstrations; step 0 is after that."""
    monitors: str = ""
    """Thresholds of alarms that differ from the defaults: entropy=0.5,window=10 (docs/reliability.md)."""
    track: str = ""
    """Where metrics are shown as well: wandb, trackio, tensorboard, mlflow, or several: wandb,tensorboard."""

    def check_evaluation(self) -> None:
        """Raise a `ConfigError` for a threshold that is none."""
        thresholds(self.monitors)


@dataclass(frozen=True, kw_only=True)
class MachineSection:
    """On how many machines it computes."""

    section: ClassVar[str] = "machine"
    about: ClassVar[str] = "on how many processes and machines it computes"

    learner_ranks: NonNegativeInt = 0
    """Processes over which weights, gradients and optimizer of what is trained are sharded (FSDP2); 0: in this one."""
    context_ranks: PositiveInt = 1
    """Ranks of the learner that share the tokens of a batch (context parallelism), for streams too long for one of
    them; learner_ranks is a multiple of it."""
    cluster: str = ""
    """Ray cluster on which engines sample and workers play the episodes: local, auto, ray://HOST:10001 or HOST:6379
    (docs/scale.md); empty: this process does."""
    placement: str = ""
    """File that says what each part needs on the cluster; empty: one engine, and one to eight workers of a core."""

    def check_machine(self) -> None:
        """Raise a `ConfigError` for ranks that cannot share their work, or a placement on no cluster."""
        if self.context_ranks > 1 and (not self.learner_ranks or self.learner_ranks % self.context_ranks):
            raise ConfigError(
                f"context_ranks: got {self.context_ranks} with learner_ranks {self.learner_ranks}; give a multiple "
                "of it as learner_ranks, or 1"
            )
        if self.cluster:
            check_address(self.cluster)
            load_placement(self.placement)
        elif self.placement:
            raise ConfigError(
                f"placement: got {self.placement!r} without a cluster; name one, as cluster=local, or leave it out"
            )
