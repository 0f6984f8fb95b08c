"""What every method is asked for: environment, model, machine, warm start, budget, evaluation, other policies.

A method's `Config` adds its own fields. A value that is not given is the default that the method's page was measured
with, on models that are made from nothing; of a pretrained model some follow from it
(`quintain.warm_start.recommended`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge

from quintain.agents.catalog import check as check_agent
from quintain.agents.catalog import is_outside
from quintain.config import check_ranges
from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.data.leaves import LeafRule
from quintain.data.records import Overlong, TrainOn, Unusable
from quintain.distributed.connection import check_address
from quintain.distributed.placement import load_placement
from quintain.engines.chat_client import is_endpoint
from quintain.engines.settings import read_engine
from quintain.errors import ConfigError
from quintain.learning.thresholds import thresholds
from quintain.models.adapters import read_lora
from quintain.models.precision import Precision
from quintain.types import Trajectory

if TYPE_CHECKING:
    from quintain.data.pipeline import PipelineResult
    from quintain.environments.noisy import NoisyExpert

OptimizerName = Literal["adamw", "sgd", "adafactor"]
Schedule = Literal["method", "constant", "linear", "cosine"]
MICRO_TOKENS = 16_384
"""Tokens of a forward pass in training where nobody says how many, and nothing is measured."""
MAIN = "policy"
"""The policy that a run is about."""
SHORTEST = 16
"""Tokens of a stream in which anything can be said, and the engine be compared with the learner."""
USUAL_DEMONSTRATIONS = 48
"""Of a method that needs some, or of an agent outside, where nobody says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """A policy beside the main one that a method asks for: ``PolicySpec()`` is a frozen copy, a reference.

    Examples: a critic with a body of its own ``PolicySpec(head="value", is_trained=True)``; its target network
    ``PolicySpec(copies="critic", head="value", follows="critic", rate=0.01)``.
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
    rate: float = 1.0
    """share of the way that it moves: θ ← (1 - rate)·θ + rate·θ of the policy that it follows; 0: only when its loop
    says so"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """What a method imitates before its first step in the place of demonstrations as they come.

    Example: ``ColdStart(choose=lambda shown, _: choose_trajectories(shown, pipeline, "…"))``.
    """

    choose: Callable[[Sequence[Trajectory], Callable[[Sequence[int]], str]], PipelineResult]
    """(what was shown, token ids → text) → what of it is imitated, with what every stage did"""
    teachers: Sequence[NoisyExpert] = ()
    """each of them shows all tasks; none: the job's own teacher"""
    texts: Sequence[str] = ()
    """what a new model's tokenizer learns beside what the environment writes, so that a mark is no row of letters"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """How a policy beside the main one is loaded, run and trained: ``PolicySettings(shares="policy", lora_rank=8)``."""

    model: str = ""
    """Folder, run or a step of one (RUN@best), or hub id; empty: it begins as a copy, see the method."""
    shares: str = ""
    """Policy whose model it shares, as a LoRA adapter of its own."""
    lora_targets: tuple[str, ...] = ()
    """Ends of the names of the modules that get LoRA layers; none: every linear layer but the output head."""
    lora_rank: NonNegativeInt = 0
    """Rank of its LoRA layers; 0 trains all weights."""
    lora_alpha: PositiveFloat = 16.0
    """Scale of its LoRA layers: alpha / rank."""
    is_trained: bool | None = None
    """Whether it learns; none: as the method says, and yes for the policy of a seat."""
    learning_rate: PositiveFloat | None = None
    """Learning rate of AdamW; none: that of the run."""
    device: str = "auto"
    """Where it computes: auto, cpu, cuda, cuda:1 or mps."""
    precision: Precision = "fp32"
    """fp32, or bf16 for the linear layers in training and sampling; weights and optimizer stay in fp32."""
    engine: str = "local"
    """What samples from it, where it acts: local, process (a process of its own), or servers, as for the run."""
    max_context: Annotated[int, Ge(SHORTEST)] | None = None
    """Longest token stream it acts in; none: the model's own limit."""
    micro_tokens: PositiveInt | None = None
    """Tokens of a forward pass in training; none: as for the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The part of a configuration that all methods share."""

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
    }
    """earlier names of options, which stored configurations may have"""

    environment: str = "babyai/GoToRedBallNoDists"
    """Name in the catalogue (with options: keydoor?rooms=3), or file.py:Class, or package.module:Class."""
    model: str = "auto"
    """A new one (micro, mini, tiny, small; mini?tokens=words; auto is tiny, or mini where a tool takes a text of the
    agent's own), smollm2, a run or a step of one (RUN@best, RUN@75), or a folder, GGUF file or hub id."""
    chat_template: str = ""
    """File with a chat template that takes the place of the model's own, for good: it is saved with the model."""
    template_options: str = ""
    """What the chat template is given: enable_thinking=false,reasoning_effort=low."""
    template_differs: Literal["refuse", "allow"] = "refuse"
    """Whether to train where the stream differs from what the model's template writes: refuse or allow."""
    agent: str = "auto"
    """Harness the model acts through: tools, choice, react, text..., with wrappers in front: window+react; or an agent
    of your own that talks to a base_url: mine.py:run_agent?grade=grade (docs/your-agent.md)."""
    seed: int = 0
    """Seed of the run; everything random is derived from it."""
    first_task: NonNegativeInt = 0
    """Number of the first task; runs whose numbers lie far apart train, imitate and are evaluated on other tasks."""
    steps: PositiveInt = 100
    """Steps of training; the evaluation before the first is step 0."""
    demonstrations: NonNegativeInt | str | None = None
    """What is imitated before training: none for as much as it takes until enough tasks are solved (the expert's
    episodes, or the best of random play); N for N episodes of the expert (or of random valid actions), 0 for nothing;
    or a file, folder, run or data set of conversations (docs/data.md)."""
    teacher: str = ""
    """Chat endpoint whose solved episodes are imitated: http://…/v1?model=NAME (docs/your-agent.md). It plays as many
    as demonstrations says (48), which are first collected into the run NAME-teacher."""
    train_on: TrainOn = "all"
    """Answers of conversations that are trained: all (but those with weight 0), last, or tagged (weight 1)."""
    overlong: Overlong = "error"
    """What becomes of conversations longer than the context: error, or drop (left out and counted)."""
    unusable: Unusable = "error"
    """What becomes of a line of data that cannot be used: error, or drop (left out, counted and named)."""
    mistakes: Share = 0.0
    """Share of the expert's turns in demonstrations in which it does something else; it errs as the world's do."""
    imitation_rate: PositiveFloat | None = None
    """Learning rate at which demonstrations are imitated before training; it falls to 0. None: 0.256 / width of the
    model, 0.002 for tiny; a quarter of that, 0.001 for mini, where heads begin with what copying is made of; of a
    pretrained model what its size bears (docs/pretrained.md)."""
    imitation_epochs: PositiveInt = 12
    """Times that demonstrations of which N are given are gone through before training; fewer leave a policy that still
    explores. A pretrained model takes 3, unless this is given."""
    learning_rate: PositiveFloat = 3e-4
    """Learning rate of AdamW in training; of a pretrained model it follows from its size and the method, unless it is
    given (docs/pretrained.md)."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature of training rollouts; log-probs are of the same distribution."""
    eval_every: PositiveInt = 25
    """Steps between evaluations; each also saves a checkpoint."""
    eval_episodes: PositiveInt = 128
    """Held-out tasks of an evaluation, one episode each."""
    eval_start: bool = True
    """Whether the policy is evaluated before its first step of training."""
    eval_untrained: bool = False
    """Whether the model is also evaluated before it imitates demonstrations; step 0 is after that."""
    eval_environment: str = ""
    """Environment of the evaluations where it is another than that of training; empty for the same."""
    max_env_steps: PositiveInt | None = None
    """Environment steps of training episodes after which the run ends; none for no limit."""
    max_sampled_tokens: PositiveInt | None = None
    """Sampled tokens of training episodes after which the run ends; none for no limit."""
    max_broken: Share = 0.01
    """Share of attempts at an episode that environment, tools or judge may break; above it the run is refused."""
    monitors: str = ""
    """Thresholds of alarms that differ from the defaults: entropy=0.5,window=10 (docs/reliability.md)."""
    track: str = ""
    """Where metrics are shown as well: wandb, trackio, tensorboard, mlflow, or several: wandb,tensorboard."""
    device: str = "auto"
    """Where the policy computes: auto, cpu, cuda, cuda:1 or mps."""
    precision: Precision = "fp32"
    """fp32, or bf16 for the linear layers in training and sampling; weights and optimizer stay in fp32."""
    optimizer: OptimizerName = "adamw"
    """Optimizer: adamw, adafactor (less memory), or sgd (with momentum 0.9)."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of the optimizer."""
    max_grad_norm: PositiveFloat = 1.0
    """Norm that gradients are clipped to."""
    lr_schedule: Schedule = "method"
    """How the learning rate goes over the steps: as the method says, constant, linear or cosine (both fall to 0)."""
    lr_warmup: NonNegativeInt = 0
    """First steps, over which the learning rate rises; counts where lr_schedule is not that of the method."""
    gradient_checkpointing: bool = False
    """Keep only what each layer begins with for the backward pass, and compute the rest anew: less memory."""
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
    lora: str = ""
    """LoRA in one line: r=16,alpha=32,targets=q_proj+v_proj,out=adapter (kept beside the merged model)."""
    lora_rank: NonNegativeInt = 0
    """Rank of LoRA layers that are trained instead of all weights; 0 trains all. A pretrained model of 500M parameters
    or more takes 16, unless this is given."""
    lora_alpha: PositiveFloat = 16.0
    """Scale of the LoRA layers: alpha / rank."""
    engine: str = "local"
    """What samples from the policy: local (on the weights that are trained), process (a process of its own), or servers
    of vLLM or SGLang, started (vllm?replicas=2&program=…) or there already (vllm?url=http://…; docs/engines.md)."""
    max_turn_tokens: PositiveInt = 128
    """Tokens that the policy may sample in a turn, unless the agent says otherwise."""
    max_context: Annotated[int, Ge(SHORTEST)] | None = None
    """Longest token stream of an episode; none: the model's own limit."""
    micro_tokens: PositiveInt | None = None
    """Tokens of a forward pass in training; a longer stream than this is refused. None: 16,384, and on a GPU as many
    as one measured pass shows to fit."""
    rollout: Literal["lockstep", "async"] = "lockstep"
    """How episodes are played: lockstep (repeats bit for bit), or async (a slow environment holds up only itself)."""
    max_staleness: NonNegativeInt = 0
    """Versions that an episode may be behind the weights that learn from it; with 1 or more, async plays ahead."""
    max_stragglers: Share = 0.0
    """Share of a step's episodes that it does not wait for, with max_staleness: the last to end are left out, which
    favours short episodes."""
    concurrency: PositiveInt = 256
    """Episodes alive at once."""
    records_signals: bool = True
    """Write advantages, returns and weights of every trained token into the journal."""
    policies: Mapping[str, PolicySettings] = field(default_factory=dict[str, PolicySettings])
    """Policies beside the main one, by name: those that the method asks for, and those of other seats."""
    seats: Mapping[str, str] = field(default_factory=dict[str, str])
    """Seat of the environment, or role of a seat in its harness (agent/plan) → policy that plays it; seats that are not
    named are played by ``policy``."""

    @property
    def tokens_per_pass(self) -> int:
        """Tokens of a forward pass in training, before anything is measured."""
        return self.micro_tokens or MICRO_TOKENS

    @property
    def plays_apart(self) -> bool:
        """Whether episodes end, and are recorded, one by one: asynchronous ones, and those of agents outside."""
        return self.rollout == "async" or is_outside(self.agent)

    def main_policy(self, *, is_copy: bool = False) -> PolicySettings:
        """Return the settings of the main policy; as a copy it has its machine, and no model or adapter of its own."""
        lora = read_lora(self.lora)
        return PolicySettings(
            lora_rank=0 if is_copy else lora.rank if lora else self.lora_rank,
            lora_alpha=lora.alpha if lora else self.lora_alpha,
            lora_targets=lora.targets if lora else (),
            device=self.device,
            precision=self.precision,
            engine=self.engine,
            max_context=self.max_context,
            micro_tokens=self.micro_tokens,
        )

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        check_ranges(self)
        if self.mistakes and isinstance(self.demonstrations, str):
            raise ConfigError(
                f"mistakes: got {self.mistakes} with the conversations {self.demonstrations}, in which no expert acts; "
                "leave it at 0"
            )
        if self.teacher:
            self._check_teacher()
        if self.mistakes and self.demonstrations == 0:
            raise ConfigError(
                f"mistakes: got {self.mistakes} without demonstrations, where nobody could err; raise demonstrations"
            )
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
        if self.cluster and is_outside(self.agent):
            raise ConfigError(
                f"cluster: got {self.cluster!r} with the agent {self.agent}, which talks to an endpoint here; "
                "leave the cluster out"
            )
        if read_lora(self.lora) is not None and self.lora_rank:
            raise ConfigError(f"lora: got {self.lora!r} with lora_rank {self.lora_rank}; give one of the two")
        check_agent(self.agent)
        for engine in (self.engine, *(settings.engine for settings in self.policies.values())):
            read_engine(engine)
        thresholds(self.monitors)

    def _check_teacher(self) -> None:
        asked = f"teacher: got {self.teacher!r}"
        if not is_endpoint(self.teacher):
            raise ConfigError(f"{asked}; give the URL of a chat endpoint, such as http://…/v1?model=NAME")
        if isinstance(self.demonstrations, str) or self.demonstrations == 0:
            raise ConfigError(
                f"{asked} with demonstrations {self.demonstrations!r}; give the number of its episodes, or no teacher"
            )
        if self.mistakes:
            raise ConfigError(
                f"{asked} with mistakes {self.mistakes}, which are an expert's; leave them at 0"
            )
        if is_outside(self.agent):
            raise ConfigError(
                f"{asked} with the agent {self.agent}, which talks to a base_url itself; teach it by expert="
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitationJob(Job):
    """A job that imitates what is there before it begins."""

    steps: PositiveInt = 200
    learning_rate: PositiveFloat = 1e-3
    batch_size: PositiveInt = 32
    """Episodes of a step."""
    demonstrations: int | str | None = 400
    """What is imitated: N episodes of the expert, or a file, folder, run or data set of conversations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicyJob(Job):
    """A job whose steps learn from episodes that the policy has just sampled."""

    num_epochs: PositiveInt = 1
    """Times that the episodes of a step are gone through."""
    num_minibatches: PositiveInt = 1
    """Optimizer steps of an epoch, each on its share of the episodes, drawn anew."""
    leaves: LeafRule = "used"
    """Streams of an episode to train, where its history was rewritten: used (all but calls of an agent outside that it
    did not read or go on from), all, last, longest, or root (the first)."""
    whole_groups: bool = False
    """Learn only from groups of which every episode has an outcome: where one failed, was cut or became too old, the
    others of its group are left out, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsJob(OnPolicyJob):
    """A job of few rounds, each of which makes data of many tasks and goes through them several times."""

    steps: PositiveInt = 3
    """Rounds."""
    learning_rate: PositiveFloat = 1e-4
    eval_every: PositiveInt = 1
    num_epochs: PositiveInt = 3
    num_minibatches: PositiveInt = 4
    tasks: PositiveInt = 32
    """Tasks of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesJob(OnPolicyJob):
    """A job whose steps are episodes of tasks that all differ."""

    episodes: PositiveInt = 64
    """Episodes of a step, each of another task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploringJob(OnPolicyJob):
    """A job of few rounds that explore what the expert showed, and train on what came of it."""

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
        OnPolicyJob.check(self)
        if not self.demonstrations:
            raise ConfigError(
                f"demonstrations: got {self.demonstrations!r}, and the expert's episodes are what is explored; give a "
                "number of 1 or more, or a file of recorded ones"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJob(OnPolicyJob):
    """A job whose steps are groups of episodes that are compared with each other."""

    tasks: PositiveInt = 8
    """Tasks of a step."""
    group_size: int = 8
    """Episodes of a task."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have; a group of one has nothing to compare."""
        OnPolicyJob.check(self)
        if self.group_size < 2:
            raise ConfigError(
                f"group_size: got {self.group_size}, and an episode alone has nothing to be compared with; "
                "give 2 or more, or use ppo or reinforce_plus_plus"
            )


def check_ratios(job: OnPolicyJob) -> None:
    """Raise a `ConfigError` where a step has one update, in which nothing has moved that could be clipped."""
    if job.num_epochs * job.num_minibatches < 2:
        raise ConfigError(
            f"num_epochs: got {job.num_epochs} with one minibatch, so that every ratio is 1, never clipped; "
            "give 2 or more, or use grpo"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipHigherJob(GroupJob):
    """A job on groups whose ratio may rise further than it may fall."""

    clip_high: PositiveFloat = 0.28
    """The ratio is clipped to 0.8 … 1 + this."""
