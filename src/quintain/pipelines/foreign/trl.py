"""The fields of TRL's ``GRPOConfig`` as options of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.pipelines.foreign.rules import (
    CHECKPOINTS,
    KERNELS,
    LOSS,
    PASSES,
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
    map_method,
    put_run,
    put_schedule,
    put_trackers,
    put_warmup,
    when,
)
from quintain.types.terminal import write_command

LOSSES = {"grpo": "grpo", "bnpo": "grpo", "dapo": "grpo", "dr_grpo": "dr_grpo", "cispo": "cispo"}
"""its loss of GRPO → method"""


def choose_trl(settings: Settings, value: Any) -> str | None:
    """Choose the method of TRL's loss."""
    settings.made.method = map_method("loss_type", value, LOSSES)
    return write_command("quintain", "train", settings.made.method)


def put_trl_tasks(settings: Settings, value: Any) -> str:
    """Count a step's tasks: TRL counts completions, of which every prompt has `num_generations`."""
    completions = value * settings.get("gradient_accumulation_steps", 1) * settings.get("world_size", 1)
    return settings.put("tasks", max(1, completions // settings.get("num_generations", 8)))


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

NOT_TRL: Mapping[str, str] = explain(
    (
        "vllm_ use_transformers_ transformers_ generation_ cache_implementation top_p top_k min_p "
        "repetition_penalty",
        SAMPLES,
    ),
    ("ds3_ fsdp deepspeed ddp_ accelerator_config parallelism_config fsdp_config local_rank", SHARDS),
    (
        "sapo_ vespo_ delta off_policy_mask_threshold use_bias_correction_kl top_entropy_quantile "
        "use_adaptive_entropy entropy_coef_ entropy_target lr_scheduler_kwargs label_smoothing_factor "
        "neftune_noise_alpha prediction_loss_only",
        LOSS,
    ),
    ("importance_sampling_level", "gspo has one ratio for a sequence"),
    ("reward_weights multi_objective_aggregation", REWARDS),
    ("mask_truncated_completions", "what a limit cut keeps the reward that it had"),
    ("sync_ref_model ref_model_", REFERENCE_POLICY),
    ("log_", "every episode is in the journal (quintain view)"),
    ("num_completions_to_print", "quintain view"),
    ("logging_", "every step has a row of metrics"),
    (
        "model_init_kwargs cast_lm_head_to_fp32 attn_implementation use_liger_kernel torch_ "
        "gradient_checkpointing_kwargs tf32 bf16_full_eval fp16_full_eval activation_checkpointing "
        "activation_checkpointing_kwargs use_cache liger_kernel_config use_cpu enable_jit_checkpoint debug "
        "skip_memory_metrics",
        KERNELS,
    ),
    ("trust_remote_code", "code of a model is never run"),
    ("disable_dropout", "models are read without dropout"),
    ("router_aux_loss_coef", "there are no experts with a router"),
    (
        "remove_unused_columns shuffle_dataset dataset_ dataloader_ data_seed train_sampling_strategy "
        "sortish_sampler label_names",
        TASKS,
    ),
    ("max_prompt_length", "prompts are never cut: --max-context refuses what is longer"),
    ("num_generations_eval", "evaluations play one episode of each held-out task"),
    ("steps_per_generation", "--num-minibatches: optimizer steps of an epoch"),
    (
        "pad_to_multiple_of per_device_eval_batch_size average_tokens_across_devices auto_find_batch_size "
        "include_num_input_tokens_seen length_column_name",
        PASSES,
    ),
    ("gradient_accumulation_steps world_size", "see per_device_train_batch_size"),
    ("chat_template_kwargs", "--template-options"),
    ("max_tool_calling_iterations", TOOLS),
    ("lora_", "LoRA has --lora-rank, --lora-alpha and --lora-targets"),
    ("use_rslora use_dora", "LoRA as it is"),
    ("load_in_ bnb_", "weights are not quantised in training"),
    ("model_revision", "--model FOLDER"),
    ("dtype", "--precision"),
    (
        "save_ output_dir overwrite_output_dir resume_from_checkpoint ignore_data_skip "
        "restore_callback_states_from_checkpoint",
        CHECKPOINTS,
    ),
    ("push_to_hub hub_", "nothing is uploaded"),
    ("num_train_epochs", "--steps counts steps"),
    ("eval_", "--eval-every and --eval-episodes"),
    ("fp16", "--precision is fp32 or bf16"),
    ("optim", "--optimizer"),
    ("adam_ optim_args optim_target_modules", "AdamW as it is"),
    ("do_", "quintain train and quintain eval"),
    ("disable_tqdm", "--help"),
    ("project trackio_", "what --track shows is named after the run"),
    ("include_for_metrics batch_eval_metrics predict_with_generate", "evaluations play held-out tasks"),
    ("load_best_model_at_end metric_for_best_model greater_is_better", "the best checkpoint is kept (RUN@best)"),
    ("full_determinism", "--rollout lockstep is the same bit for bit"),
)  # fmt: skip
"""Field of TRL, or what it begins with, ending in an underscore → why it is no option here."""


TRAINER = Trainer("TRL", TRL, NOT_TRL)
