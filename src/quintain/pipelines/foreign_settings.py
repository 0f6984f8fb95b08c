"""Settings of other trainers as ours: what maps, what means something else here, what is not here.

verl's configuration (`ppo_trainer.yaml`, whole or what is set over its defaults) and TRL's `GRPOConfig` are read as
YAML. Every key that is set has a line in the end: it became an option, or it says why it did not. A key that nobody
here knows is of another version, and refused: what it would have done cannot be said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from quintain.errors import DataError
from quintain.types.terminal import write_command

OVERRIDE = re.compile(
    r"^\s*(?:\w+=\S+\s+)*[+]{0,2}(?P<key>[a-z_]+(?:\.\w+)+)=(?P<value>.*?)\s*\\?\s*$", re.MULTILINE
)
"""A setting in a shell script: ``algorithm.adv_estimator=grpo \\``."""
ASSIGNED = re.compile(r"^\s*(?:export\s+)?(?P<name>\w+)=(?P<value>[^\s;]+)\s*$", re.MULTILINE)
VARIABLE = re.compile(r"\$\{?(?P<name>\w+)(?::-(?P<usual>[^}]*))?\}?")
REFERENCE = re.compile(r"^\$\{(?:oc\.select:)?(?P<key>[\w.]+)(?:,(?P<usual>.*))?\}$")
DEPTH = 8
"""References that may follow each other."""


@dataclass(frozen=True, slots=True)
class Line:
    """What became of a key: ``Line("algorithm.lam", 0.95, "--gae-lambda 0.95")``; nothing where there is a reason."""

    key: str
    value: Any
    became: str = ""
    reason: str = ""


@dataclass(slots=True)
class Reading:
    """Settings as they are read: a method, its options, and what became of every key."""

    tool: str
    method: str = "grpo"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    lines: list[Line] = field(default_factory=list[Line])
    run: str = ""


Rule = Callable[["Settings", Any], str | None]
"""(all settings, value of a key) → what became of it, having put options; None: nothing, as `NOT_HERE` says"""


@dataclass(slots=True)
class Settings:
    """The keys of a file, flat, and what is made of them."""

    flat: Mapping[str, Any]
    made: Reading
    options_of: Callable[[str], Collection[str]]
    """method → its options"""

    def get(self, key: str, usual: Any = None) -> Any:
        """Return the value of `key`, or `usual` where it is not set."""
        found = self.flat.get(key)
        return usual if found is None else found

    def put(self, option: str, value: Any) -> str:
        """Give `option` a `value`; return the flag, nothing where the method has no such option."""
        if option not in self.options_of(self.made.method):
            return ""
        self.made.options[option] = value
        return f"--{option.replace('_', '-')} {value}"


def as_option(option: str, kind: Callable[[Any], Any] = lambda value: value) -> Rule:
    """Return the rule that gives `option` the value as it is."""
    return lambda settings, value: settings.put(option, kind(value))


def when(rule: Rule, *, is_read: Callable[[Settings, Any], bool]) -> Rule:
    """Return `rule` where the value `is_read`; elsewhere the value says what happens here anyway."""
    return lambda settings, value: rule(settings, value) if is_read(settings, value) else "as it is here"


def in_use(settings: Settings, value: Any) -> bool:
    """Return whether a number or switch is on."""
    return bool(value) and value not in (-1, "null")


ESTIMATORS = {
    "gae": "ppo", "grpo": "grpo", "rloo": "rloo", "reinforce_plus_plus": "reinforce_plus_plus",
}  # fmt: skip
"""verl's advantage → method"""


def choose_verl(settings: Settings, value: Any) -> str | None:
    """Choose the method of verl's advantage and loss."""
    if value not in ESTIMATORS:
        raise DataError(
            f"algorithm.adv_estimator: got {value}; what is here is {', '.join(ESTIMATORS)}: take another method "
            "(quintain methods)"
        )
    method = ESTIMATORS[value]
    loss = settings.get("actor_rollout_ref.actor.policy_loss.loss_mode", "vanilla")
    if method == "grpo":
        method = {"gspo": "gspo"}.get(loss, method)
        if settings.get("algorithm.norm_adv_by_std_in_grpo") is False and method == "grpo":
            settings.put("std", "none")
    settings.made.method = method
    return write_command("quintain", "train", method)


def put_tasks(settings: Settings, value: Any) -> str:
    """Take a step's prompts as its tasks, each of which has a group where the method compares groups."""
    return settings.put("tasks", value) or settings.put(
        "episodes", value * settings.get("actor_rollout_ref.rollout.n", 1)
    )


def put_minibatches(settings: Settings, value: Any) -> str:
    """Count a step's minibatches, whose size verl gives in prompts."""
    return settings.put("num_minibatches", max(1, settings.get("data.train_batch_size", 1024) // value))


def put_clip(settings: Settings, value: Any) -> str:
    """Bound the ratio on both sides alike; PPO has one bound."""
    both = [settings.put(option, value) for option in ("clip", "clip_low", "clip_high")]
    return " ".join(filter(None, both))


def put_run(settings: Settings, value: Any) -> str:
    """Name the run."""
    settings.made.run = re.sub(r"[^\w.-]+", "-", str(value))
    return f"--run {settings.made.run}"


def put_engine(settings: Settings, value: Any) -> str | None:
    """Choose what samples."""
    return settings.put("engine", value) if value in ("vllm", "sglang") else None


def put_ranks(settings: Settings, value: Any) -> str:
    """Shard over all cards of all machines; one card needs no ranks."""
    ranks = value * settings.get("trainer.nnodes", 1)
    return settings.put("learner_ranks", ranks) if ranks > 1 else "one card: no ranks"


def put_trackers(settings: Settings, value: Any) -> str:
    """Show metrics where they were shown; the console has them anyway."""
    named = [value] if isinstance(value, str) else [str(each) for each in value]
    kept = [each for each in named if each in ("wandb", "trackio", "tensorboard", "mlflow")]
    return settings.put("track", ",".join(kept)) if kept else "as it is here"


def put_warmup(settings: Settings, value: Any) -> str:
    """Let the rate rise over so many steps, or over a share of all of them."""
    steps = settings.get("trainer.total_training_steps", settings.get("max_steps", 100))
    settings.put("lr_schedule", settings.made.options.get("lr_schedule", "constant"))
    return settings.put("lr_warmup", round(value * steps) if 0 < value < 1 else int(value))


def put_schedule(settings: Settings, value: Any) -> str | None:
    """Choose how the rate goes."""
    return settings.put("lr_schedule", value) if value in ("constant", "linear", "cosine") else None


def choose_trl(settings: Settings, value: Any) -> str | None:
    """Choose the method of TRL's loss."""
    methods = {"grpo": "grpo", "bnpo": "grpo", "dapo": "grpo", "dr_grpo": "dr_grpo", "cispo": "cispo"}
    if value not in methods:
        raise DataError(
            f"loss_type: got {value}; what is here is {', '.join(methods)}: take another (quintain methods)"
        )
    settings.made.method = methods[value]
    return write_command("quintain", "train", methods[value])


def put_trl_tasks(settings: Settings, value: Any) -> str:
    """Count a step's tasks: TRL counts completions, of which every prompt has `num_generations`."""
    completions = value * settings.get("gradient_accumulation_steps", 1) * settings.get("world_size", 1)
    return settings.put("tasks", max(1, completions // settings.get("num_generations", 8)))


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
VERL: Mapping[str, Rule] = {
    "algorithm.adv_estimator": choose_verl,
    "actor_rollout_ref.model.path": as_option("model", str),
    "actor_rollout_ref.model.lora_rank": when(as_option("lora_rank"), is_read=in_use),
    "actor_rollout_ref.model.lora_alpha": when(
        as_option("lora_alpha"),
        is_read=lambda settings, _: bool(settings.get("actor_rollout_ref.model.lora_rank")),
    ),
    "actor_rollout_ref.model.enable_gradient_checkpointing": when(
        as_option("gradient_checkpointing"), is_read=in_use
    ),
    "data.train_batch_size": put_tasks,
    f"{ROLLOUT}.n": as_option("group_size"),
    f"{ACTOR}.ppo_mini_batch_size": put_minibatches,
    f"{ACTOR}.ppo_epochs": as_option("num_epochs"),
    f"{ACTOR}.clip_ratio": put_clip,
    f"{ACTOR}.clip_ratio_low": as_option("clip_low"),
    f"{ACTOR}.clip_ratio_high": as_option("clip_high"),
    f"{ACTOR}.entropy_coeff": when(as_option("entropy_coef"), is_read=in_use),
    f"{ACTOR}.kl_loss_coef": when(
        as_option("kl_coef"), is_read=lambda settings, _: bool(settings.get(f"{ACTOR}.use_kl_loss"))
    ),
    f"{ACTOR}.optim.lr": as_option("learning_rate", float),
    f"{ACTOR}.optim.weight_decay": as_option("weight_decay"),
    f"{ACTOR}.optim.lr_warmup_steps": when(put_warmup, is_read=lambda _, value: value > 0),
    f"{ACTOR}.optim.lr_warmup_steps_ratio": when(put_warmup, is_read=in_use),
    f"{ACTOR}.optim.warmup_style": put_schedule,
    f"{ACTOR}.optim.lr_scheduler_type": put_schedule,
    f"{ACTOR}.grad_clip": as_option("max_grad_norm"),
    f"{ACTOR}.ulysses_sequence_parallel_size": when(
        as_option("context_ranks"), is_read=lambda _, value: value > 1
    ),
    f"{ROLLOUT}.temperature": as_option("temperature"),
    f"{ROLLOUT}.name": put_engine,
    "data.max_response_length": as_option("max_turn_tokens"),
    "algorithm.gamma": as_option("discount"),
    "algorithm.lam": as_option("gae_lambda"),
    "trainer.total_training_steps": as_option("steps"),
    "trainer.test_freq": when(as_option("eval_every"), is_read=lambda _, value: value > 0),
    "trainer.val_before_train": as_option("eval_start"),
    "trainer.experiment_name": put_run,
    "trainer.n_gpus_per_node": put_ranks,
    "trainer.logger": put_trackers,
    "data.seed": as_option("seed"),
}
"""verl's key → its rule, the method first: others ask for it"""
TRL: Mapping[str, Rule] = {
    "loss_type": choose_trl,
    "model_name_or_path": as_option("model", str),
    "per_device_train_batch_size": put_trl_tasks,
    "num_generations": as_option("group_size"),
    "num_iterations": as_option("num_epochs"),
    "learning_rate": as_option("learning_rate", float),
    "weight_decay": as_option("weight_decay"),
    "max_grad_norm": as_option("max_grad_norm"),
    "warmup_steps": when(put_warmup, is_read=in_use),
    "warmup_ratio": when(put_warmup, is_read=in_use),
    "lr_scheduler_type": put_schedule,
    "epsilon": lambda settings, value: settings.put("clip_low", value) or settings.put("clip", value),
    "epsilon_high": when(as_option("clip_high"), is_read=in_use),
    "beta": when(as_option("kl_coef"), is_read=in_use),
    "entropy_coef": when(as_option("entropy_coef"), is_read=in_use),
    "scale_rewards": lambda settings, value: settings.put("std", "unbiased") if value in ("group", True)
    else settings.put("std", "none") if value in ("none", False) else None,
    "temperature": as_option("temperature"),
    "max_completion_length": as_option("max_turn_tokens"),
    "max_steps": when(as_option("steps"), is_read=lambda _, value: value > 0),
    "eval_steps": when(as_option("eval_every"), is_read=in_use),
    "seed": as_option("seed"),
    "gradient_checkpointing": as_option("gradient_checkpointing"),
    "bf16": when(lambda settings, _: settings.put("precision", "bf16"), is_read=in_use),
    "use_peft": lambda settings, value: settings.put("lora_rank", settings.get("lora_r", 16)) if value
    else "as it is here",
    "lora_alpha": when(as_option("lora_alpha"), is_read=lambda settings, _: bool(settings.get("use_peft"))),
    "use_vllm": when(lambda settings, _: settings.put("engine", "vllm"), is_read=in_use),
    "report_to": put_trackers,
    "run_name": put_run,
}  # fmt: skip
"""TRL's field → its rule"""

SAMPLES = "of the engine itself: give it to the engine, vllm?program=… (docs/engines.md)"
PASSES = "what a pass holds is measured, or --tokens-per-microbatch"
CHECKPOINTS = "checkpoints are written at every evaluation and a run goes on where it was (quintain resume)"
TASKS = "tasks are a file, --tasks FILE, or come from the environment, --environment (docs/your-agent.md)"
REWARDS = "what pays is the environment (docs/own-environment.md) or a grader (docs/your-agent.md)"
SHARDS = "ranks shard with FSDP2, as it is (docs/scale.md)"
CRITIC = "the critic of ppo is a head on the policy, trained with it by --vf-coef"
TOOLS = "an environment has the tools, and the harness their form: --agent tools?calls=hermes"
KERNELS = "kernels are chosen by what the machine has (quintain doctor)"
REFERENCE_POLICY = "the reference is the policy that the run began with"
PROFILE = "nothing is profiled; where time went is in the metrics of every step"
LOSS = "not an option here: the loss is the method's (quintain methods)"
NOT_VERL: Mapping[str, str] = {
    "data.": TASKS, "custom_reward_function.": REWARDS, "reward_model.": REWARDS, "reward.": REWARDS,
    "critic.": CRITIC, "actor_rollout_ref.ref.": REFERENCE_POLICY, "global_profiler.": PROFILE,
    "ray_kwargs.": "where a cluster is, says --cluster",
    "actor_rollout_ref.hybrid_engine": "engine and learner take turns on one machine unless --placement says otherwise",
    "actor_rollout_ref.nccl_timeout": SHARDS,
    f"{ACTOR}.strategy": SHARDS, f"{ACTOR}.fsdp_config.": SHARDS, f"{ACTOR}.megatron.": "there is no Megatron here",
    f"{ACTOR}.ppo_micro_batch_size": PASSES, f"{ACTOR}.ppo_micro_batch_size_per_gpu": PASSES,
    f"{ACTOR}.use_dynamic_bsz": PASSES, f"{ACTOR}.ppo_max_token_len_per_gpu": PASSES,
    f"{ACTOR}.policy_loss.": LOSS, f"{ACTOR}.clip_ratio_c": LOSS,
    f"{ACTOR}.loss_agg_mode": "the mean over tokens, or the method's: dr_grpo has a constant divisor",
    f"{ACTOR}.use_kl_loss": "--kl-coef above 0 is the KL in the loss",
    f"{ACTOR}.kl_loss_type": "the KL is estimated by k3 (low_var_kl)",
    f"{ACTOR}.use_torch_compile": KERNELS, f"{ACTOR}.use_fused_kernels": KERNELS,
    f"{ACTOR}.use_remove_padding": "nothing is padded here",
    f"{ACTOR}.shuffle": "minibatches are drawn anew in every epoch",
    f"{ACTOR}.checkpoint.": CHECKPOINTS, f"{ACTOR}.profiler.": PROFILE,
    f"{ACTOR}.optim.": "AdamW as --help-section update has it",
    f"{ACTOR}.entropy_from_logits_with_chunking": PASSES, f"{ACTOR}.entropy_checkpointing": PASSES,
    f"{ROLLOUT}.multi_turn.": TOOLS, f"{ROLLOUT}.agent.": TOOLS, f"{ROLLOUT}.custom.": TOOLS,
    f"{ROLLOUT}.val_kwargs.": "evaluations sample as training does, one episode of each held-out task",
    f"{ROLLOUT}.log_prob_micro_batch_size": PASSES, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": PASSES,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": PASSES, f"{ROLLOUT}.log_prob_max_token_len_per_gpu": PASSES,
    f"{ROLLOUT}.calculate_log_probs": "the engine's log-probs are always kept, and the gap is measured",
    f"{ROLLOUT}.mode": "episodes are played side by side; --rollout async does not wait for the slowest",
    f"{ROLLOUT}.top_k": "all tokens can be sampled: what is learned is the whole distribution",
    f"{ROLLOUT}.top_p": "all tokens can be sampled: what is learned is the whole distribution",
    f"{ROLLOUT}.do_sample": "training samples",
    f"{ROLLOUT}.prompt_length": TASKS, f"{ROLLOUT}.response_length": "see data.max_response_length",
    f"{ACTOR}.rollout_n": f"see {ROLLOUT}.n", f"{ACTOR}.tau_pos": LOSS, f"{ACTOR}.tau_neg": LOSS,
    f"{ACTOR}.freeze_vision_tower": "models that read pictures are not trained here",
    f"{ACTOR}.loss_scale_factor": "dr_grpo divides by a constant", f"{ACTOR}.data_loader_seed": "--seed is of the run",
    f"{ACTOR}.calculate_entropy": "the entropy is in the metrics of every step",
    f"{ACTOR}.use_prefix_grouper": "prefixes that a group shares are computed once, as it is",
    f"{ACTOR}.router_replay.": "there are no experts with a router", f"{ACTOR}.calculate_sum_pi_squared": LOSS,
    f"{ACTOR}.sum_pi_squared_checkpointing": LOSS,
    "reward_manager.": REWARDS, "transfer_queue.": "batches stay in the learner's process",
    f"{ROLLOUT}.profiler.": PROFILE, f"{ROLLOUT}.trace.": "every call is in the journal (quintain view)",
    **{
        f"{ROLLOUT}.{name}": SAMPLES
        for name in (
            "dtype", "gpu_memory_utilization", "ignore_eos", "enforce_eager", "cudagraph_capture_sizes",
            "free_cache_engine", "tensor_model_parallel_size", "max_num_batched_tokens", "max_model_len",
            "max_num_seqs", "disable_log_stats", "over_sample_rate", "multi_stage_wake_up", "engine_kwargs.",
            "update_weights_bucket_megabytes", "skip_rollout", "skip_dump_dir", "enable_chunked_prefill",
            "load_format", "layered_summon", "data_parallel_size", "expert_parallel_size",
            "pipeline_model_parallel_size", "enable_prefix_caching", "logprobs_mode", "scheduling_policy",
            "checkpoint_engine.", "skip_tokenizer_init", "enable_rollout_routing_replay", "prometheus.", "quantization",
            "quantization_config_file", "mtp",
        )
    },
    "actor_rollout_ref.model.target_modules": "--lora-targets: ends of names; every linear layer unless given",
    "actor_rollout_ref.model.exclude_modules": "--lora-targets: ends of names; every linear layer unless given",
    "actor_rollout_ref.model.custom_chat_template": "--chat-template FILE",
    "actor_rollout_ref.model.trust_remote_code": "code of a model is never run",
    **{
        f"actor_rollout_ref.model.{name}": KERNELS
        for name in (
            "use_shm", "external_lib", "override_config.", "enable_activation_offload", "use_remove_padding",
            "use_liger", "use_fused_kernels", "fused_kernel_options.", "hf_config_path", "tokenizer_path",
            "lora_adapter_path", "tiled_mlp.", "mtp.",
        )
    },
    "algorithm.norm_adv_by_std_in_grpo": "see algorithm.adv_estimator: --std none leaves it out",
    "algorithm.use_kl_in_reward": "the KL is in the loss (--kl-coef); in the reward it is in the methods of rlhf",
    "algorithm.kl_penalty": "the KL is in the loss (--kl-coef)", "algorithm.kl_ctrl.": "the KL is in the loss",
    "algorithm.use_pf_ppo": LOSS, "algorithm.pf_ppo.": LOSS,
    "algorithm.rollout_correction.": "async rollouts are corrected by the loss of asearcher",
    "algorithm.filter_groups.": "dapo draws until groups differ",
    "trainer.balance_batch": PASSES, "trainer.total_epochs": "--steps counts steps: see total_training_steps",
    "trainer.project_name": "what --track shows is named after the run",
    "trainer.log_val_generations": "every episode of an evaluation is in the journal (quintain view)",
    "trainer.rollout_data_dir": "every episode is in the journal", "trainer.validation_data_dir": "see the journal",
    "trainer.nnodes": "see trainer.n_gpus_per_node", "trainer.device": "--device",
    "trainer.val_only": "quintain eval", "trainer.critic_warmup": "ui_tars2 has a critic that learns first",
    "trainer.use_legacy_worker_impl": SHARDS, "trainer.ray_wait_register_center_timeout": SHARDS,
    **{
        f"trainer.{name}": CHECKPOINTS
        for name in (
            "save_freq", "esi_redundant_time", "resume_mode", "resume_from_path", "default_hdfs_dir",
            "del_local_ckpt_after_load", "default_local_dir", "max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep",
        )
    },
}  # fmt: skip
"""Key of verl, or what it begins with, ending in a dot → why it is no option here."""
NOT_TRL: Mapping[str, str] = {
    "vllm_": SAMPLES, "use_transformers_": SAMPLES, "transformers_": SAMPLES, "generation_": SAMPLES,
    "cache_implementation": SAMPLES, "top_p": SAMPLES, "top_k": SAMPLES, "min_p": SAMPLES,
    "repetition_penalty": SAMPLES, "ds3_": SHARDS, "fsdp": SHARDS, "deepspeed": SHARDS,
    "sapo_": LOSS, "vespo_": LOSS, "delta": LOSS, "importance_sampling_level": "gspo has one ratio for a sequence",
    "off_policy_mask_threshold": LOSS, "use_bias_correction_kl": LOSS, "top_entropy_quantile": LOSS,
    "use_adaptive_entropy": LOSS, "entropy_coef_": LOSS, "entropy_target": LOSS,
    "reward_weights": REWARDS, "multi_objective_aggregation": REWARDS,
    "mask_truncated_completions": "what a limit cut keeps the reward that it had",
    "sync_ref_model": REFERENCE_POLICY, "ref_model_": REFERENCE_POLICY,
    "log_": "every episode is in the journal (quintain view)", "num_completions_to_print": "quintain view",
    "logging_": "every step has a row of metrics", "model_init_kwargs": KERNELS, "trust_remote_code": "code of a "
    "model is never run", "disable_dropout": "models are read without dropout", "cast_lm_head_to_fp32": KERNELS,
    "router_aux_loss_coef": "there are no experts with a router", "remove_unused_columns": TASKS,
    "shuffle_dataset": TASKS, "max_prompt_length": "prompts are never cut: --max-context refuses what is longer",
    "num_generations_eval": "evaluations play one episode of each held-out task",
    "steps_per_generation": "--num-minibatches: optimizer steps of an epoch", "pad_to_multiple_of": PASSES,
    "gradient_accumulation_steps": "see per_device_train_batch_size", "world_size": "see per_device_train_batch_size",
    "chat_template_kwargs": "--template-options", "max_tool_calling_iterations": TOOLS,
    "lora_": "LoRA has --lora-rank, --lora-alpha and --lora-targets", "use_rslora": "LoRA as it is",
    "use_dora": "LoRA as it is", "load_in_": "weights are not quantised in training", "bnb_": "weights are not "
    "quantised in training", "model_revision": "--model FOLDER", "dtype": "--precision",
    "attn_implementation": KERNELS, "use_liger_kernel": KERNELS, "torch_": KERNELS, "lr_scheduler_kwargs": LOSS,
    "save_": CHECKPOINTS, "output_dir": CHECKPOINTS, "overwrite_output_dir": CHECKPOINTS, "resume_from_checkpoint":
    CHECKPOINTS, "push_to_hub": "nothing is uploaded", "hub_": "nothing is uploaded",
    "num_train_epochs": "--steps counts steps", "eval_": "--eval-every and --eval-episodes",
    "per_device_eval_batch_size": PASSES, "gradient_checkpointing_kwargs": KERNELS, "dataset_": TASKS,
    "fp16": "--precision is fp32 or bf16", "tf32": KERNELS, "optim": "--optimizer", "adam_": "AdamW as it is",
    "dataloader_": TASKS, "ddp_": SHARDS, "do_": "quintain train and quintain eval", "disable_tqdm": "--help",
}  # fmt: skip
"""Field of TRL, or what it begins with, ending in an underscore → why it is no option here."""


def read_settings(path: Path, options_of: Callable[[str], Collection[str]]) -> Reading:
    """Return the settings of another trainer in the file at `path`; `options_of` a method, what it can be given.

    Raises:
        DataError: it cannot be read, is of no trainer that is known here, or has keys of another version.
    """
    try:
        text = path.read_text(encoding="utf-8")
        row: object = read_overrides(text) or yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise DataError(
            f"settings {path}: got a file that is no YAML ({said:.120}); give verl's or TRL's"
        ) from error
    if not isinstance(row, dict) or not row:
        raise DataError(f"settings {path}: got {type(row).__name__}, no keys; give verl's or TRL's settings")
    flat = dict(flatten(cast("dict[Any, Any]", row)))
    is_verl = any(key.startswith(("actor_rollout_ref.", "algorithm.", "trainer.")) for key in flat)
    if not is_verl and not set(TRL) & set(flat):
        raise DataError(
            f"settings {path}: got {', '.join(list(flat)[:4])}, which neither verl nor TRL has; give a "
            "ppo_trainer.yaml or the fields of a GRPOConfig"
        )
    tool, rules, reasons = ("verl", VERL, NOT_VERL) if is_verl else ("TRL", TRL, NOT_TRL)
    flat = {key: resolve(flat, value) for key, value in flat.items() if not key.endswith("_target_")}
    refuse_unknown(path, tool, flat, rules, reasons)
    settings = Settings(flat, Reading(tool=tool), options_of)
    said = {key: rule(settings, flat[key]) for key, rule in rules.items() if is_known(flat.get(key))}
    for key, value in flat.items():
        became = said.get(key)
        reason = ""
        if not became and not is_known(value):
            reason = "a variable that the file does not give"
        elif not became:
            reason = reason_of(key, reasons) or f"no option of {settings.made.method}, or not this value"
        if value is not None:
            settings.made.lines.append(Line(key, value, became or "", reason))
    return settings.made


def read_overrides(text: str) -> dict[str, Any]:
    """Return the settings that a shell script gives on the command line, by their keys; none where it is no script.

    What the script itself gives its variables is put in their place; a value that needs another one stays as it is
    written, and becomes nothing.
    """
    known = {match["name"]: match["value"].strip("\"'") for match in ASSIGNED.finditer(text)}

    def put(match: re.Match[str]) -> str:
        own = match["usual"] if match["usual"] is not None else known.get(match["name"])
        return match[0] if own is None else own

    found: dict[str, Any] = {}
    for match in OVERRIDE.finditer(text):
        value = match["value"].removesuffix('"$@"').removesuffix("$@").strip(" \"'")
        for _ in range(DEPTH):
            value = VARIABLE.sub(put, value)
        found[match["key"]] = value if "$" in value else yaml.safe_load(value)
    return found


def refuse_unknown(
    path: Path, tool: str, flat: Mapping[str, Any], rules: Mapping[str, Rule], reasons: Mapping[str, str]
) -> None:
    """Raise where a key is of another version of `tool`.

    Raises:
        DataError: there is such a key.
    """
    unknown = [key for key in flat if key not in rules and not reason_of(key, reasons)]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise DataError(
            f"settings {path}: got {', '.join(unknown[:3])}{more}, which no {tool} that is known here has; take them "
            "out, or what they would do is lost"
        )


def is_known(value: Any) -> bool:
    """Return whether a key has a value, and not the name of one."""
    return value is not None and not (isinstance(value, str) and "$" in value)


def reason_of(key: str, reasons: Mapping[str, str]) -> str:
    """Return why `key` is no option here; empty where nobody knows it."""
    if key in reasons:
        return reasons[key]
    fitting = [name for name in reasons if name[-1] in "._" and key.startswith(name)]
    return reasons[max(fitting, key=len)] if fitting else ""


def flatten(row: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of `row` with dots, and their values; an empty part is a key with nothing."""
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flatten(cast("dict[Any, Any]", value), f"{name}.")
        else:
            yield (f"{name}.", None) if isinstance(value, dict) else (name, value)


def resolve(flat: Mapping[str, Any], value: Any) -> Any:
    """Return `value`, where it names another key what that says, or what is there if it says nothing."""
    for _ in range(DEPTH):
        match = REFERENCE.match(value) if isinstance(value, str) else None
        if match is None:
            return None if value == "???" else value
        found = flat.get(match["key"])
        value = yaml.safe_load(match["usual"] or "null") if found is None else found
    return None
