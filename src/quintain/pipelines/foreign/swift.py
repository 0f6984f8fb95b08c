"""Arguments of ms-swift 4 (``swift sft``, ``swift rlhf``), as flags or as YAML, as options of ours.

Most are those of TRL and of transformers, on which it stands; `tuner_type` was `train_type` before 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.errors import DataError
from quintain.pipelines.foreign.rules import (
    CHECKPOINTS,
    CRITIC,
    KERNELS,
    LOSS,
    PASSES,
    PROFILE,
    REFERENCE_POLICY,
    REWARDS,
    SAMPLES,
    SHARDS,
    TASKS,
    TOOLS,
    Rule,
    Settings,
    Trainer,
    as_option,
    explain,
    in_use,
    put_clip,
    when,
)
from quintain.pipelines.foreign.trl import LOSSES, NOT_TRL, TRL
from quintain.types.terminal import write_command

PROGRAM, PROCESSES = "cli", "NPROC_PER_NODE"
"""The keys that the reader puts the subcommand and the variable of that name under."""
PROGRAMS = ("rlhf", "sft")
GROUPS = ("train.", "rollout.")
"""Parts of a file for Ray whose keys are those of the whole."""
PREFERENCES = {"sigmoid": "dpo", "hinge": "hinge", "ipo": "ipo"}
"""its loss of DPO → loss of ours"""
TYPES = {
    "dpo": "dpo", "kto": "dpo", "simpo": "dpo", "orpo": "dpo", "ppo": "ppo", "rm": "reward_model", "grpo": "grpo",
}  # fmt: skip


def choose_method(settings: Settings, value: Any) -> str:
    """Choose the method of a subcommand, and of its `rlhf_type`, estimator and loss."""
    kind = "sft" if value == "sft" else str(settings.get("rlhf_type", "dpo"))
    method = "sft" if kind == "sft" else TYPES.get(kind, "")
    if kind == "grpo":
        estimator = settings.get("advantage_estimator", "grpo")
        loss = settings.get("loss_type", "grpo")
        method = {"rloo": "rloo", "reinforce_plus_plus": "reinforce_plus_plus"}.get(estimator, "")
        if estimator == "grpo":
            method = LOSSES.get(str(loss), "")
            if method == "grpo" and settings.get("importance_sampling_level") == "sequence":
                method = "gspo"
        kind = f"grpo with {estimator} and {loss}"
    if not method:
        raise DataError(
            f"rlhf_type: got {kind}; what is here is {', '.join(TYPES)}, of grpo the losses {', '.join(LOSSES)}: take "
            "another (quintain methods)"
        )
    settings.made.method = method
    loss = str(settings.get("loss_type", "sigmoid"))
    if kind in ("kto", "simpo", "orpo"):
        settings.put("loss", kind)
    elif kind == "dpo" and loss in PREFERENCES:
        settings.put("loss", PREFERENCES[loss])
    elif kind == "dpo":
        raise DataError(f"loss_type: got {loss}; what is here is {', '.join(PREFERENCES)}: take another")
    return write_command("quintain", "train", method)


def put_batch(settings: Settings, value: Any) -> str:
    """Count a step's tasks: completions, of which every prompt has `num_generations`; of data sets it is the batch."""
    updates = settings.get("gradient_accumulation_steps", 1) * settings.get(PROCESSES, 1)
    rounds = settings.get("steps_per_generation", settings.get("gradient_accumulation_steps", 1))
    completions = value * rounds * settings.get(PROCESSES, 1)
    return settings.put("batch_size", value * updates) or settings.put(
        "tasks", max(1, completions // settings.get("num_generations", 8))
    )


def put_minibatches(settings: Settings, value: Any) -> str:
    """Count the optimizer steps that what was sampled is cut into."""
    return settings.put("num_minibatches", max(1, value // settings.get("gradient_accumulation_steps", 1)))


def put_tuner(settings: Settings, value: Any) -> str | None:
    """Train LoRA layers, whose usual rank is 8 there, or all weights."""
    if value == "lora":
        return settings.put("lora_rank", settings.get("lora_rank", 8))
    return "as it is here" if value == "full" else None


def put_beta(settings: Settings, value: Any) -> str:
    """Weigh the pull to the start: β of a preference, the KL of a policy gradient."""
    return settings.put("beta", value) or (settings.put("kl_coef", value) if value else "as it is here")


def put_precision(settings: Settings, value: Any) -> str | None:
    """Compute in bfloat16; other types are not trained in."""
    return settings.put("precision", "bf16") if value == "bfloat16" else None


def has_lora(settings: Settings, _: Any) -> bool:
    """Return whether LoRA layers are trained."""
    return settings.get("tuner_type", settings.get("train_type")) == "lora"


SHARED = (
    "num_generations", "num_iterations", "learning_rate", "weight_decay", "max_grad_norm", "warmup_steps",
    "warmup_ratio", "lr_scheduler_type", "epsilon", "epsilon_high", "entropy_coef", "scale_rewards", "temperature",
    "max_completion_length", "max_steps", "eval_steps", "seed", "gradient_checkpointing", "bf16", "use_vllm",
    "report_to", "run_name",
)  # fmt: skip
"""Fields that mean what they mean in TRL."""
SWIFT: Mapping[str, Rule] = {
    PROGRAM: choose_method,
    "rlhf_type": lambda settings, _: write_command("quintain", "train", settings.made.method),
    "model": as_option("model", str),
    "tuner_type": put_tuner,
    "train_type": put_tuner,
    "lora_rank": when(as_option("lora_rank"), is_read=has_lora),
    "lora_alpha": when(as_option("lora_alpha"), is_read=has_lora),
    "torch_dtype": put_precision,
    "per_device_train_batch_size": put_batch,
    "steps_per_generation": put_minibatches,
    "beta": put_beta,
    "label_smoothing": when(as_option("label_smoothing"), is_read=in_use),
    "rpo_alpha": when(as_option("imitation_weight"), is_read=in_use),
    "num_ppo_epochs": as_option("num_epochs"),
    "num_mini_batches": as_option("num_minibatches"),
    "cliprange": put_clip,
    "vf_coef": as_option("vf_coef"),
    "gamma": as_option("discount"),
    "lam": as_option("gae_lambda"),
    "sequence_parallel_size": when(as_option("context_ranks"), is_read=lambda _, value: value > 1),
    PROCESSES: when(as_option("learner_ranks"), is_read=lambda _, value: value > 1),
    **{name: TRL[name] for name in SHARED},
}
"""its argument → rule, the method first"""
COLUMNS = "how a row is read is told by its keys (docs/data.md); nothing is cut or renamed"
TEMPLATE = (
    "the model's own template is followed, or refused (quintain check); another is --chat-template FILE"
)
TEACHER = "distillation from a teacher's distribution is not here; a teacher that shows is --agent http://…"
OTHERS = "other parts of weights than LoRA layers or all are not trained"
OWN: Mapping[str, str] = explain(
    ("config", "give that file instead"),
    (
        "dataset val_dataset val_dataset_shuffle cached_ split_dataset_ratio load_from_cache_file streaming "
        "interleave_prob stopping_strategy shuffle_buffer_size download_mode custom_ load_data_args "
        "train_dataloader_",
        TASKS,
    ),
    (
        "group_by_length padding_side lazy_tokenize local_rollout_forward_batch_size offload_ sleep_level "
        "move_model_batches enable_flattened_weight_sync acc_strategy generation_batch_size",
        PASSES,
    ),
    ("columns strict disable_auto_column_mapping model_name model_author decision_", COLUMNS),
    ("max_length truncation_strategy max_model_len", "nothing is cut: --max-context refuses what is longer"),
    ("model_type", "read from the model's folder"),
    (
        "model_ attn_impl experts_impl rope_scaling device_map max_memory init_strategy "
        "enable_npu_model_patch check_model use_logits_to_keep",
        KERNELS,
    ),
    ("task_type num_labels problem_type", "models write text"),
    ("local_repo_path", "give a folder"),
    (
        "new_special_tokens template template_backend use_chat_template response_prefix "
        "add_non_thinking_prefix disable_ignore_empty_think",
        TEMPLATE,
    ),
    ("use_hf", "give a folder or a hub id"),
    ("quant_ hqq_axis", "weights are not quantised in training"),
    ("system", "instructions are the environment's, or stand in a file's conversations"),
    ("agent_template", TOOLS),
    ("padding_free packing packing_", "nothing is padded here"),
    ("loss_scale", "answers are trained, or not, as each says (docs/data.md); spans of them are not weighed"),
    ("is_binary_loss_scale", "see loss_scale"),
    ("enable_thinking preserve_thinking", "--template-options"),
    ("norm_bbox max_pixels aligner_lr vit_ images", "models read text"),
    (
        "freeze_ trainable_ modules_to_save lorap_ init_weights fourier_ boft_ vera_ adapter_ adalora_ "
        "llamapro_ reft_ galore_ use_galore lisa_ tuner_backend use_swift_lora rank",
        OTHERS,
    ),
    ("target_", "--lora-targets: ends of names; every linear layer unless given"),
    ("adapters", "give a run or a folder as --model"),
    ("external_plugins", f"{REWARDS}; reward-function/FILE.py:NAME takes its reward functions"),
    (
        "custom_register_path reward_ cosine_ repetition_n_grams repetition_max_penalty soft_ "
        "missing_eos_penalty",
        REWARDS,
    ),
    ("use_gym_env gym_env", "--environment"),
    ("multi_turn_scheduler", "an environment plays the turns"),
    ("max_turns", "of the environment: E?max_turns="),
    ("completion_length_limit_scope", "--max-turn-tokens is of each turn"),
    ("dynamic_sample max_resample_times", "dapo draws until groups differ"),
    ("overlong_filter", "what a limit cut keeps the reward that it had"),
    ("log_entropy wandb_", "every step has a row of metrics"),
    (
        "tau_ advantage_reweight rlsd_ sdar_ real_tau fipo_ chord_ off_policy_ reference_free ld_alpha "
        "discopop_tau loss_weights cpo_alpha simpo_gamma desirable_weight undesirable_weight "
        "center_rewards_coefficient mrl_dims enable_dft_loss enable_channel_loss",
        LOSS,
    ),
    ("loss_type advantage_estimator", "see rlhf_type"),
    ("kl_in_reward", "the KL is in the loss or in the reward as the method has it"),
    ("kl_coef", "the KL to the start in the reward is in the methods of rlhf"),
    ("rollout_importance_sampling_", "async rollouts are corrected by the loss of asearcher"),
    ("whiten_rewards cliprange_value", CRITIC),
    ("num_sample_generations callbacks", PROFILE),
    ("response_length max_new_tokens", "--max-turn-tokens"),
    ("num_beams stream stop_words logprobs top_", SAMPLES),
    ("structured_outputs_regex", "--agent constrained"),
    ("async_generate", "--rollout async"),
    ("teacher_ gkd_ lmbda seq_kd sft_alpha", TEACHER),
    ("ref_", REFERENCE_POLICY),
    ("swanlab_", "--track has wandb, trackio, tensorboard and mlflow"),
    (
        "add_version create_checkpoint_symlink safe_serialization max_shard_size resume_only_model "
        "use_flash_ckpt",
        CHECKPOINTS,
    ),
    ("zero_hpz_partition_size deepspeed_ gpus", SHARDS),
    ("use_ray ray_exp_name device_groups colocate_groups", "where a cluster is, says --cluster"),
    ("load_args", "--config FILE"),
    ("ignore_args_error", "unknown keys are errors"),
    ("max_epochs", "--steps counts steps"),
    ("optimizer", "AdamW as it is"),
    ("early_stop_interval", "the best checkpoint is kept (RUN@best)"),
    ("extra_eval_args", "quintain eval"),
)  # fmt: skip
"""its argument, or what it begins with, ending in an underscore → why it is no option here; others are TRL's"""
TRAINER = Trainer("ms-swift", SWIFT, {**NOT_TRL, **OWN})
