"""The options of every method as types, for checkers and editors; made by docs/options.py."""

# fmt: off

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypedDict, Unpack, overload

from quintain.environments.protocol import Environment
from quintain.learning.sections import PolicySettings
from quintain.methods.method import Method
from quintain.trained import TrainedRun

class TrainOptions(TypedDict, total=False):
    environment: str | type[Environment] | None
    tasks: int | str | Path
    guard: str | Path
    run: str | None
    root: str | Path
    replace: bool
    config: Mapping[str, Any] | None
    trust_run: bool

class MachineSectionOptions(TypedDict, total=False):
    learner_ranks: int
    context_ranks: int
    cluster: str
    placement: str

class EvaluationSectionOptions(TypedDict, total=False):
    eval_every: int
    eval_episodes: int
    eval_start: bool
    eval_untrained: bool
    monitors: str
    track: str

class RolloutSectionOptions(TypedDict, total=False):
    rollout: Literal["lockstep", "async"]
    max_staleness: int
    max_stragglers: float
    concurrency: int
    max_broken: float
    max_env_steps: int | None
    max_sampled_tokens: int | None

class GroupFieldsOptions(RolloutSectionOptions, total=False):
    group_size: int

class UpdateSectionOptions(TypedDict, total=False):
    steps: int
    learning_rate: float
    lr_schedule: Literal["method", "constant", "linear", "cosine"]
    lr_warmup: int
    optimizer: Literal["adamw", "sgd", "adafactor"]
    weight_decay: float
    max_grad_norm: float
    gradient_checkpointing: bool

class PassesSectionOptions(UpdateSectionOptions, total=False):
    num_epochs: int
    num_minibatches: int

class WarmStartSectionOptions(TypedDict, total=False):
    imitation_lr: float | None
    imitation_epochs: int

class DataSectionOptions(TypedDict, total=False):
    eval_environment: str
    agent: str
    temperature: float
    max_turn_tokens: int
    seed: int
    task_offset: int
    demonstrations: int | str | None
    teacher: str
    expert_noise: float
    train_on: Literal["all", "last", "tagged"]
    overlong: Literal["error", "drop"]
    unusable: Literal["error", "drop"]

class PolicyFieldsOptions(TypedDict, total=False):
    lora_rank: int
    lora_alpha: float
    lora_targets: Sequence[str]
    device: str
    precision: Literal["fp32", "bf16"]
    engine: str
    max_context: int | None
    tokens_per_microbatch: int | None

class ModelSectionOptions(PolicyFieldsOptions, total=False):
    model: str
    chat_template: str
    template_options: str
    template_differs: Literal["refuse", "allow"]
    keeps_adapter: bool
    policies: Mapping[str, PolicySettings]
    seats: Mapping[str, str]

class TrainConfigOptions(
    TrainOptions,
    ModelSectionOptions,
    DataSectionOptions,
    WarmStartSectionOptions,
    UpdateSectionOptions,
    RolloutSectionOptions,
    EvaluationSectionOptions,
    MachineSectionOptions,
    total=False,
):
    pass

class SignalsOptions(TrainConfigOptions, total=False):
    records_signals: bool

class OnPolicyOptions(SignalsOptions, PassesSectionOptions, total=False):
    train_branches: Literal["used", "all", "last", "longest", "root"]
    whole_groups: bool
    normalise_by: Literal["none", "environment", "seat"]

class GroupOptions(OnPolicyOptions, GroupFieldsOptions, total=False):
    pass

class ClipHigherOptions(GroupOptions, total=False):
    clip_high: float

class ActMoreOptions(ClipHigherOptions, total=False):
    turn_tokens: int
    long_turn: float
    information: float

class AfmOptions(ClipHigherOptions, total=False):
    team: bool
    solver_noise: float
    checker_noise: float
    max_rounds: int
    min_interactions: int
    corrections: int
    reinforced: bool
    max_draws: int

class Agent0Options(GroupOptions, total=False):
    oversample_factor: int
    proposer_lr: float
    tool_weight: float
    max_calls: int
    repetition_weight: float
    low: float
    high: float
    min_scale: float
    clip: float
    proposer: str

class ImitationOptions(SignalsOptions, total=False):
    batch_size: int

class AgentBankOptions(ImitationOptions, total=False):
    teacher_noise: float
    group_size: int
    forced: bool

class AgentEvolOptions(SignalsOptions, PassesSectionOptions, total=False):
    group_size: int
    thresholds: str
    weights: Literal["filtered", "reward"]
    merges: bool
    starts_over: bool
    memory: int

class AgentFlanOptions(ImitationOptions, total=False):
    negatives: float
    capabilities: Mapping[str, str]

class AgentGenOptions(ImitationOptions, total=False):
    min_steps: int
    max_steps: int | None

class StepRoundsOptions(SignalsOptions, total=False):
    pass

class RoundsOptions(StepRoundsOptions, PassesSectionOptions, total=False):
    pass

class PreferenceRoundsOptions(RoundsOptions, total=False):
    pass

class AgentQOptions(PreferenceRoundsOptions, total=False):
    branches: int
    episodes: int
    exploration: float
    outcome_weight: float
    margin: float
    beta: float
    imitation_weight: float
    judge: str

class AgentROptions(RoundsOptions, total=False):
    branches: int
    expansions: int
    exploration: float
    good: Sequence[float]
    gap: float
    drop: float
    undo_turns: int
    keep: int

class AgentRftOptions(GroupOptions, total=False):
    probe_items: int
    probes: int
    token_budget: int
    call_budget: int
    token_penalty: float
    call_penalty: float

class AgentRlOptions(GroupOptions, total=False):
    sampling: Literal["progress", "even"]
    window: int
    floor: float
    oversample_factor: int
    clip_low: float
    clip_high: float

class AgentTuningOptions(ImitationOptions, total=False):
    general: Sequence[str]
    corpus: str
    agent_fraction: float
    count: Literal["samples", "tokens"]
    threshold: float | None
    thresholds: Mapping[str, str]
    tests: str
    overlap: int

class EpisodesOptions(OnPolicyOptions, total=False):
    episodes: int

class ActorCriticOptions(EpisodesOptions, total=False):
    discount: float
    gae_lambda: float
    clip: float
    vf_coef: float

class AgileOptions(ActorCriticOptions, total=False):
    pass

class AlignOptions(StepRoundsOptions, total=False):
    written: int

class AndroidgenOptions(RoundsOptions, total=False):
    group_size: int
    failures: bool
    memory: bool
    oversample_factor: int
    starts_over: bool

class ReplayOptions(TrainConfigOptions, PassesSectionOptions, total=False):
    pass

class ArcherOptions(ReplayOptions, total=False):
    group_size: int
    capacity: int
    batch_size: int
    critic_updates: int
    critic_lr_scale: float
    actor_updates: int
    critic_first: int
    critic_explains: float
    discount: float
    polyak: float
    candidates: int
    actor: Literal["sampled", "exact"]
    critics: Literal["td", "iql"]
    expectile: float
    awr_beta: float
    critic_size: str

class AsearcherOptions(GroupOptions, total=False):
    max_turns: int
    clip: float
    cap: float
    beyond: Literal["truncate", "drop"]

class AtlasOptions(ImitationOptions, total=False):
    ratio: float
    critical: Sequence[str]
    judge: str

class AutoFlowOptions(StepRoundsOptions, total=False):
    candidates: int
    shown: int

class AutoglmOptions(GroupOptions, total=False):
    wanderings: int
    low: float
    high: float
    oversample_factor: int
    neighbours: int
    kl_coef: float
    every: int
    updates: int
    batch_size: int

class BacktrackOptions(GroupOptions, total=False):
    error_rate: float
    judged_weight: float

class CispoOptions(GroupOptions, total=False):
    clip_high: float
    kl_coef: float
    entropy_coef: float

class CodeActOptions(ImitationOptions, total=False):
    error_rate: float
    turns: int
    corpus: str
    agent_fraction: float

class CosoOptions(ClipHigherOptions, total=False):
    entropy_coef: float
    is_causal: bool
    is_permuted: bool
    window: int
    actions: int

class DapoOptions(ClipHigherOptions, total=False):
    max_draws: int
    overlong_tokens: int
    overlong_weight: float
    kl_coef: float
    entropy_coef: float

class DareOptions(TrainConfigOptions, total=False):
    pairs: str
    batch_size: int
    hard: int
    contrast_temperature: float
    embedding_size: int
    ranks: Literal["trained", "untrained", "bm25"]

class DeepResearchOptions(ClipHigherOptions, total=False):
    look_cost: float

class DigiQOptions(ReplayOptions, total=False):
    log: str
    capacity: int
    batch_size: int
    feature_steps: int
    critic_steps: int
    critic_updates: int
    critic_lr_scale: float
    head_width: int
    actor_updates: int
    discount: float
    polyak: float
    candidates: int
    threshold: float
    combine: Literal["min", "max"]
    bootstrap: Literal["policy", "log"]

class DigiRlOptions(ReplayOptions, total=False):
    group_size: int
    offline_tasks: int
    offline_steps: int
    log: str
    capacity: int
    keep_fraction: float
    outcome_decay: float
    variant: Literal["paper", "code"]
    by_task: bool
    by_step: bool
    critic_updates: int
    critic_batch: int
    critic_lr_scale: float
    critic_size: str

class DitsOptions(PreferenceRoundsOptions, total=False):
    branches: int
    episodes: int
    exploration: float
    margin: float
    block: int
    validation: int
    influence: float
    keep_fraction: float
    beta: float
    imitation_weight: float

class DmpoOptions(SignalsOptions, total=False):
    beta: float
    discount: float
    imitation_weight: float
    group_size: int
    batch_size: int

class DpoOptions(SignalsOptions, total=False):
    preferences: str
    held_out: float
    beta: float
    imitation_weight: float
    loss: Literal["dpo", "hinge", "ipo", "simpo", "orpo", "kto"]
    label_smoothing: float
    by_length: bool
    compares_ends: bool
    group_size: int
    batch_size: int

class DrGrpoOptions(GroupOptions, total=False):
    clip: float
    constant: float
    kl_coef: float
    entropy_coef: float
    denominator: Literal["kept", "sampled"]

class DrMasOptions(GroupOptions, total=False):
    statistics: Literal["agent", "all"]
    unit: Literal["call", "episode"]
    invalid_penalty: float
    clip: float

class DynasaurOptions(StepRoundsOptions, total=False):
    functions: int

class ExploringOptions(StepRoundsOptions, total=False):
    updates: int

class E2clOptions(ExploringOptions, total=False):
    onward: int
    batch_size: int

class EnvGenOptions(GroupOptions, total=False):
    cycles: int
    configurations: int
    generated_steps: int
    original_steps: int
    generator: str

class EpoOptions(EpisodesOptions, total=False):
    discount: float
    is_weighted: bool

class EtoOptions(PreferenceRoundsOptions, total=False):
    group_size: int
    beta: float
    later_beta: float
    margin: float
    extra_turns: int | None
    counts_turn_limit: bool
    imitation_weight: float

class ExifOptions(RoundsOptions, total=False):
    has_feedback: bool
    asks: float
    max_hindsight_tasks: int | None
    keeps: Literal["reached", "solved"]
    longest: int | None
    starts_over: bool

class FireactOptions(ImitationOptions, total=False):
    strategies: Sequence[str]
    longest: int

class GenerationOptions(StepRoundsOptions, total=False):
    description: str
    writer: str
    candidates: int

class GigpoOptions(GroupOptions, total=False):
    step_weight: float
    discount: float
    std: Literal["unbiased", "biased", "none"]
    invalid_penalty: float
    kl_coef: float

class GlamOptions(EpisodesOptions, total=False):
    discount: float
    gae_lambda: float
    reward_scale: float

class GoatOptions(ImitationOptions, total=False):
    hops: int
    min_similarity: float
    probes: int
    links: Literal["graph", "random"]
    retriever: str
    unseen_goals: float

class GreedyOptions(EpisodesOptions, total=False):
    bonus: float
    penalty: float
    discount: float
    kl_coef: float
    tries_all: bool
    epsilon: float

class GrpoOptions(GroupOptions, total=False):
    std: Literal["unbiased", "biased", "none"]
    clip_low: float
    clip_high: float
    kl_coef: float
    entropy_coef: float

class GrpoTcrOptions(ClipHigherOptions, total=False):
    overlong_tokens: int
    lowest: float
    highest: float

class GspoOptions(GroupOptions, total=False):
    unit: Literal["sequence", "turn"]
    clip_low: float
    clip_high: float
    kl_coef: float
    entropy_coef: float
    bound_tokens: int

class HumanPreferencesOptions(ActorCriticOptions, total=False):
    num_labels: int
    first_labels: int
    labels: str
    label_hours: float
    segment: int
    members: int
    candidates: int
    sees_history: bool
    label_errors: float
    reward_lr: float
    reward_epochs: int
    labeller_errors: float
    labeller_temperature: float

class ScoredOptions(EpisodesOptions, total=False):
    reward_model: str
    kl_coef: float
    kl_target: float | None
    gae_lambda: float
    clip: float
    value_clip: float

class InstructGptOptions(ScoredOptions, total=False):
    ptx_coef: float
    ptx_batch: int
    corpus: str

class IprOptions(PreferenceRoundsOptions, total=False):
    rollouts: int
    margin: float
    is_action_only: bool
    beta: float
    likelihood: Literal["sum", "mean", "none"]

class IreVlaOptions(EpisodesOptions, total=False):
    head_layers: int
    every: int
    updates: int
    batch_size: int
    rehearsal_lr_scale: float
    gae_lambda: float
    clip: float
    vf_coef: float
    known: int

class GroupRoundsOptions(RoundsOptions, GroupFieldsOptions, total=False):
    pass

class LamSimulatorOptions(GroupRoundsOptions, total=False):
    filters: bool
    beta: float
    preference_lr_scale: float

class LearningToSummarizeOptions(ScoredOptions, total=False):
    pass

class LietOptions(StepRoundsOptions, total=False):
    explored: int
    noise: float
    group_size: int
    notes: int
    edits: int

class LitePpoOptions(GroupOptions, total=False):
    mean: Literal["group", "batch", "none"]
    std: Literal["group", "batch", "none"]
    clip: float

class LoopOptions(GroupOptions, total=False):
    clip: float
    ratio: Literal["token", "trajectory"]
    min_advantage: float
    target_kl: float

class M3hfOptions(ActorCriticOptions, total=False):
    remarks: str
    reader: str
    pauses: int
    phase_steps: int
    test_tasks: int
    decay: float
    bonus: float
    cut: float
    script_errors: float
    remark_hours: float

class MDpoOptions(GroupRoundsOptions, total=False):
    pairs: int
    loss: Literal["dpo", "kto"]
    beta: float
    reference: Literal["previous", "first"]
    desirable: float
    undesirable: float
    imitation_weight: float
    max_turns: int | None

class MarftOptions(EpisodesOptions, total=False):
    level: Literal["action", "token"]
    pays: Literal["last", "each", "own"]
    discount: float
    agent_discount: float
    token_discount: float
    gae_lambda: float
    clip: float
    entropy_coef: float
    target_kl: float | None
    huber_delta: float
    one_at_a_time: int

class MartiOptions(GroupOptions, total=False):
    process: Literal["answers", "implicit"]
    shape: Literal["margin", "quality"]
    history: Literal["own", "all"]
    alpha: float
    beta: float
    clip: float
    kl_coef: float

class Mem1Options(ActorCriticOptions, total=False):
    pass

class MemAgentOptions(GroupOptions, total=False):
    clip: float
    dual_clip: float
    kl_coef: float

class MementoOptions(StepRoundsOptions, total=False):
    count: int
    reads: Literal["value", "kernel", "likeness"]
    spread: float
    cases: int

class MetaspatialOptions(GroupOptions, total=False):
    attempts: int
    discount: float
    kl_coef: float

class MoeDialogueOptions(TrainConfigOptions, total=False):
    expert_steps: int
    offline_after: int
    capacity: int
    batch_size: int
    num_updates: int
    manager_updates: int
    manager_lr_scale: float
    discount: float
    td_lambda: float
    softness: float
    conservatism: float
    polyak: float
    tether: float

class MpoOptions(PreferenceRoundsOptions, total=False):
    plans: int
    executions: int
    margin: float
    beta: float

class MtGrpoOptions(GroupOptions, total=False):
    turn_weight: float
    executed: float

class MuaRlOptions(GroupOptions, total=False):
    clip: float
    kl_coef: float

class MucodeOptions(GroupOptions, total=False):
    relabel: int
    has_verifier: bool

class NatOptions(ImitationOptions, total=False):
    levels: Literal[2, 3]
    failures: float

class OpenmanusOptions(GroupOptions, total=False):
    max_draws: int
    step_weight: float
    invalid_penalty: float
    kl_coef: float

class OptimaOptions(PreferenceRoundsOptions, total=False):
    group_size: int
    learn: Literal["sft", "dpo", "hybrid"]
    token_weight: float
    loss_weight: float
    min_loss: float
    threshold: float
    keep_fraction: float
    min_value: float
    min_gap: float
    beta: float

class OtcOptions(ClipHigherOptions, total=False):
    count: Literal["calls", "turns"]
    smoothing: float

class OwlOptions(PreferenceRoundsOptions, total=False):
    group_size: int
    margin: float
    beta: float

class PaeOptions(RoundsOptions, total=False):
    group_size: int
    shortest: float
    memory: int
    judge: str
    evaluator_noise: float
    proposer: str

class PagOptions(EpisodesOptions, total=False):
    by_role: bool
    gae_lambda: float

class PaprikaOptions(GroupRoundsOptions, total=False):
    oversample_factor: int
    pairs: int
    beta: float
    imitation_weight: float
    prefers_short: bool
    compares_ends: bool

class PgpoOptions(PreferenceRoundsOptions, total=False):
    group_size: int
    rollouts: int
    margin: float
    beta: float
    likelihood: Literal["sum", "mean", "none"]

class PilotRlOptions(GroupOptions, total=False):
    follow_steps: int
    plan_steps: int
    adherence_weight: float
    quality_weight: float
    form_weight: float

class DemonstrationsOptions(ImitationOptions, total=False):
    examples: int | None
    failures: bool
    held_out: float

class PlanAndActOptions(DemonstrationsOptions, total=False):
    pass

class PolicyGradientOptions(OnPolicyOptions, total=False):
    group_size: int
    credit: str
    loss: str
    decoupled: bool
    normaliser: str
    aggregation: Literal["token_mean", "sequence_mean", "turn_mean", "constant"]
    constant: float | None
    denominator: Literal["kept", "sampled"]
    std: Literal["unbiased", "biased", "none"] | None
    discount: float | None
    gae_lambda: float | None
    adaptive: float | None
    kl_coef: float
    kl_place: Literal["loss", "reward"]
    kl_target: float | None
    entropy_coef: float
    rewards: str
    constraints: str
    multiplier_rate: float | None
    judge: str

class PpoOptions(ActorCriticOptions, total=False):
    pass

class PracticeOptions(StepRoundsOptions, total=False):
    group_size: int
    experiences: int
    edits: int

class QuickstartOptions(GrpoOptions, total=False):
    pass

class QuickstartRealOptions(GrpoOptions, total=False):
    dealt_out: bool

class SearchOptions(GroupOptions, total=False):
    pass

class R1SearcherOptions(SearchOptions, total=False):
    first_steps: int
    pays_answers: bool
    penalty: float

class ReinforceOptions(EpisodesOptions, total=False):
    discount: float
    baseline: Literal["others", "none"]

class ReinforcePlusPlusOptions(OnPolicyOptions, total=False):
    group_size: int
    discount: float
    kl_coef: float

class ResearchOptions(SearchOptions, total=False):
    floor: float
    is_monotone: bool
    kl_coef: float
    clip: float

class RestOptions(RoundsOptions, total=False):
    group_size: int
    thresholds: Sequence[float]
    lr_decay: float
    with_demonstrations: bool

class RestMctsOptions(RoundsOptions, total=False):
    branches: int
    rollout_turns: int | None
    expansions: int
    exploration: float
    rollout_weight: float
    gate: float
    keep: int
    has_values: bool

class RestReactOptions(RoundsOptions, total=False):
    samples: int
    ranker: Literal["grounding", "perplexity"]
    starts_over: bool

class RetoolOptions(ActorCriticOptions, total=False):
    error_rate: float
    rewrites: bool

class RewardModelOptions(SignalsOptions, total=False):
    preferences: str
    kind: Literal["ranking", "classifier"]
    bar: float
    held_out: float
    group_size: int
    answers: int
    batch_size: int
    labeller_temperature: float
    labeller_errors: float
    tie_band: float

class RftOptions(RoundsOptions, total=False):
    group_size: int
    keep: int
    starts_over: bool

class RladapterOptions(RoundsOptions, total=False):
    group_size: int

class RlooOptions(GroupOptions, total=False):
    kl_coef: float

class RlotOptions(StepRoundsOptions, total=False):
    discount: float
    updates: int
    transitions: int
    memory: int
    navigator_rate: float
    polyak: float
    explored_steps: int
    least_explored: float

class RlspOptions(EpisodesOptions, total=False):
    outcome_fraction: float
    base: float
    has_gate: bool
    kl_coef: float

class RouterOptions(GroupOptions, total=False):
    step_cost: float
    max_cost: float

class RroOptions(PreferenceRoundsOptions, total=False):
    rollouts: int
    cap: int
    is_strict: bool
    stops: bool
    beta: float
    imitation_weight: float

class ScalingInterOptions(ClipHigherOptions, total=False):
    turns: Sequence[int]
    stage_steps: int
    cut: Literal["scored", "left_out"]

class SearchR1Options(SearchOptions, total=False):
    algorithm: Literal["grpo", "ppo"]
    kl_coef: float
    clip: float
    gae_lambda: float
    vf_coef: float

class SelfRewardingOptions(RoundsOptions, total=False):
    group_size: int
    judgements: int
    beta: float

class SftOptions(DemonstrationsOptions, total=False):
    pass

class SpaRlOptions(EpisodesOptions, total=False):
    progress: float
    grounding: float
    gae_lambda: float

class StarOptions(StepRoundsOptions, total=False):
    rationalises: bool
    first_updates: int
    growth: float
    batch_size: int

class StarpoOptions(GroupOptions, total=False):
    keep: float
    format_penalty: float
    turn_discount: float
    entropy_coef: float

class StecaOptions(ExploringOptions, total=False):
    episodes: int
    samples: int
    alike: float
    batch_size: int

class StepAgentOptions(PreferenceRoundsOptions, total=False):
    reward: Literal["implicit", "inverse"]
    group_size: int
    beta: float
    imitation_weight: float

class SweetRlOptions(PreferenceRoundsOptions, total=False):
    group_size: int
    states: int
    candidates: int
    pairs: int
    margin: float
    reference: Literal["previous", "first"]
    beta: float
    imitation_weight: float
    critic_margin: float
    critic_beta: float
    critic_epochs: int
    critic_lr_scale: float
    is_told: bool

class SwirlOptions(GroupOptions, total=False):
    keep: Literal["process", "outcome", "both", "all"]

class ToolrlOptions(GroupOptions, total=False):
    turns: int
    contexts: bool
    is_fine: bool
    format_weight: float

class TorlOptions(GroupOptions, total=False):
    code_penalty: float

class TtiOptions(ReplayOptions, total=False):
    group_size: int
    min_turns: int
    max_turns: int
    turns: Sequence[int]
    stage_steps: int
    sampler: Literal["recent", "balanced"]
    rejected: Sequence[str]
    capacity: int
    batch_size: int

class TwosomeOptions(EpisodesOptions, total=False):
    discount: float
    gae_lambda: float
    target_kl: float

class UiR1Options(GroupOptions, total=False):
    pool: int
    chosen: int
    tolerance: float
    kl_coef: float

class UiTars2Options(EpisodesOptions, total=False):
    critic_steps: int
    adaptive: float
    clip_high: float

class VineOptions(GroupOptions, total=False):
    rollouts: int

class WebDancerOptions(ClipHigherOptions, total=False):
    teacher_noise: float
    teacher_episodes: int
    longest: int
    max_draws: int
    format_weight: float

class WebGptOptions(ScoredOptions, total=False):
    answers: int

class WebRlOptions(ReplayOptions, total=False):
    group_size: int
    phase: int
    oversample_factor: int
    low: float
    high: float
    beta: float
    value_mix: float
    shape: Literal["square", "huber"]
    replay: float
    min_probability: float
    max_probability: float
    capacity: int
    critic_updates: int
    critic_batch: int
    critic_lr_scale: float

class WebcotOptions(ImitationOptions, total=False):
    search: str
    by: str

class WorldOfBitsOptions(EpisodesOptions, total=False):
    max_turns: int
    entropy_coef: float
    vf_coef: float

class X1Options(OnPolicyOptions, total=False):
    branches: int
    expansions: int
    rollout_turns: int | None
    value_steps: int
    discount: float
    backup_rate: float
    simulation_weight: float
    clip: float
    kl_coef: float
    entropy_coef: float

class XlamOptions(DemonstrationsOptions, total=False):
    semantic: bool

@overload
def train(method: Literal["act_more"], **options: Unpack[ActMoreOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["afm"], **options: Unpack[AfmOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent0"], **options: Unpack[Agent0Options]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_bank"], **options: Unpack[AgentBankOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_evol"], **options: Unpack[AgentEvolOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_flan"], **options: Unpack[AgentFlanOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_gen"], **options: Unpack[AgentGenOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_q"], **options: Unpack[AgentQOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_r"], **options: Unpack[AgentROptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_rft"], **options: Unpack[AgentRftOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_rl"], **options: Unpack[AgentRlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agent_tuning"], **options: Unpack[AgentTuningOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["agile"], **options: Unpack[AgileOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["align"], **options: Unpack[AlignOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["androidgen"], **options: Unpack[AndroidgenOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["archer"], **options: Unpack[ArcherOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["asearcher"], **options: Unpack[AsearcherOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["atlas"], **options: Unpack[AtlasOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["auto_flow"], **options: Unpack[AutoFlowOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["autoglm"], **options: Unpack[AutoglmOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["backtrack"], **options: Unpack[BacktrackOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["cispo"], **options: Unpack[CispoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["code_act"], **options: Unpack[CodeActOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["coso"], **options: Unpack[CosoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dapo"], **options: Unpack[DapoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dare"], **options: Unpack[DareOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["deep_research"], **options: Unpack[DeepResearchOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["digi_q"], **options: Unpack[DigiQOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["digi_rl"], **options: Unpack[DigiRlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dits"], **options: Unpack[DitsOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dmpo"], **options: Unpack[DmpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dpo"], **options: Unpack[DpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dr_grpo"], **options: Unpack[DrGrpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dr_mas"], **options: Unpack[DrMasOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["dynasaur"], **options: Unpack[DynasaurOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["e2cl"], **options: Unpack[E2clOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["env_gen"], **options: Unpack[EnvGenOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["epo"], **options: Unpack[EpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["eto"], **options: Unpack[EtoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["exif"], **options: Unpack[ExifOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["fireact"], **options: Unpack[FireactOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["generation"], **options: Unpack[GenerationOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["gigpo"], **options: Unpack[GigpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["glam"], **options: Unpack[GlamOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["goat"], **options: Unpack[GoatOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["greedy"], **options: Unpack[GreedyOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["grpo"], **options: Unpack[GrpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["grpo_tcr"], **options: Unpack[GrpoTcrOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["gspo"], **options: Unpack[GspoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["human_preferences"], **options: Unpack[HumanPreferencesOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["instruct_gpt"], **options: Unpack[InstructGptOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["ipr"], **options: Unpack[IprOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["ire_vla"], **options: Unpack[IreVlaOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["lam_simulator"], **options: Unpack[LamSimulatorOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["learning_to_summarize"], **options: Unpack[LearningToSummarizeOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["liet"], **options: Unpack[LietOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["lite_ppo"], **options: Unpack[LitePpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["loop"], **options: Unpack[LoopOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["m3hf"], **options: Unpack[M3hfOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["m_dpo"], **options: Unpack[MDpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["marft"], **options: Unpack[MarftOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["marti"], **options: Unpack[MartiOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["mem1"], **options: Unpack[Mem1Options]) -> TrainedRun: ...
@overload
def train(method: Literal["mem_agent"], **options: Unpack[MemAgentOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["memento"], **options: Unpack[MementoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["metaspatial"], **options: Unpack[MetaspatialOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["moe_dialogue"], **options: Unpack[MoeDialogueOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["mpo"], **options: Unpack[MpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["mt_grpo"], **options: Unpack[MtGrpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["mua_rl"], **options: Unpack[MuaRlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["mucode"], **options: Unpack[MucodeOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["nat"], **options: Unpack[NatOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["openmanus"], **options: Unpack[OpenmanusOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["optima"], **options: Unpack[OptimaOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["otc"], **options: Unpack[OtcOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["owl"], **options: Unpack[OwlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["pae"], **options: Unpack[PaeOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["pag"], **options: Unpack[PagOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["paprika"], **options: Unpack[PaprikaOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["pgpo"], **options: Unpack[PgpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["pilot_rl"], **options: Unpack[PilotRlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["plan_and_act"], **options: Unpack[PlanAndActOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["policy_gradient"], **options: Unpack[PolicyGradientOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["ppo"], **options: Unpack[PpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["practice"], **options: Unpack[PracticeOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["quickstart"], **options: Unpack[QuickstartOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["quickstart-real"], **options: Unpack[QuickstartRealOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["r1_searcher"], **options: Unpack[R1SearcherOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["reinforce"], **options: Unpack[ReinforceOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["reinforce_plus_plus"], **options: Unpack[ReinforcePlusPlusOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["research"], **options: Unpack[ResearchOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rest"], **options: Unpack[RestOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rest_mcts"], **options: Unpack[RestMctsOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rest_react"], **options: Unpack[RestReactOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["retool"], **options: Unpack[RetoolOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["reward_model"], **options: Unpack[RewardModelOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rft"], **options: Unpack[RftOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rladapter"], **options: Unpack[RladapterOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rloo"], **options: Unpack[RlooOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rlot"], **options: Unpack[RlotOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rlsp"], **options: Unpack[RlspOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["router"], **options: Unpack[RouterOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["rro"], **options: Unpack[RroOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["scaling_inter"], **options: Unpack[ScalingInterOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["search_r1"], **options: Unpack[SearchR1Options]) -> TrainedRun: ...
@overload
def train(method: Literal["self_rewarding"], **options: Unpack[SelfRewardingOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["sft"], **options: Unpack[SftOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["spa_rl"], **options: Unpack[SpaRlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["star"], **options: Unpack[StarOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["starpo"], **options: Unpack[StarpoOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["steca"], **options: Unpack[StecaOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["step_agent"], **options: Unpack[StepAgentOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["sweet_rl"], **options: Unpack[SweetRlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["swirl"], **options: Unpack[SwirlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["toolrl"], **options: Unpack[ToolrlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["torl"], **options: Unpack[TorlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["tti"], **options: Unpack[TtiOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["twosome"], **options: Unpack[TwosomeOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["ui_r1"], **options: Unpack[UiR1Options]) -> TrainedRun: ...
@overload
def train(method: Literal["ui_tars2"], **options: Unpack[UiTars2Options]) -> TrainedRun: ...
@overload
def train(method: Literal["vine"], **options: Unpack[VineOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["web_dancer"], **options: Unpack[WebDancerOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["web_gpt"], **options: Unpack[WebGptOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["web_rl"], **options: Unpack[WebRlOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["webcot"], **options: Unpack[WebcotOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["world_of_bits"], **options: Unpack[WorldOfBitsOptions]) -> TrainedRun: ...
@overload
def train(method: Literal["x1"], **options: Unpack[X1Options]) -> TrainedRun: ...
@overload
def train(method: Literal["xlam"], **options: Unpack[XlamOptions]) -> TrainedRun: ...
@overload
def train(method: str | ModuleType | Callable[[Any], Method], **options: Unpack[TrainConfigOptions]) -> TrainedRun: ...
