"""verl's configuration (``ppo_trainer.yaml``) as options of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    in_use,
    map_method,
    put_clip,
    put_run,
    put_schedule,
    put_trackers,
    put_warmup,
    when,
)
from quintain.types.terminal import write_command

ESTIMATORS = {
    "gae": "ppo", "grpo": "grpo", "rloo": "rloo", "reinforce_plus_plus": "reinforce_plus_plus",
    "reinforce_plus_plus_baseline": "reinforce_plus_plus",
}  # fmt: skip
"""verl's advantage → method"""


def choose_verl(settings: Settings, value: Any) -> str | None:
    """Choose the method of verl's advantage and loss."""
    method = map_method("algorithm.adv_estimator", value, ESTIMATORS)
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


def put_engine(settings: Settings, value: Any) -> str | None:
    """Choose what samples."""
    return settings.put("engine", value) if value in ("vllm", "sglang") else None


def put_ranks(settings: Settings, value: Any) -> str:
    """Shard over all cards of all machines; one card needs no ranks."""
    ranks = value * settings.get("trainer.nnodes", 1)
    return settings.put("learner_ranks", ranks) if ranks > 1 else "one card: no ranks"


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
VERL: Mapping[str, Rule] = {
    "algorithm.adv_estimator": choose_verl,
    "actor_rollout_ref.model.path": as_option("model", str),
    "actor_rollout_ref.model.lora_rank": when(as_option("lora_rank"), is_read=in_use),
    "actor_rollout_ref.model.lora_alpha": when(
        as_option("lora_alpha"),
        is_read=lambda settings, _: bool(settings.get("actor_rollout_ref.model.lora_rank")),
    ),
    "actor_rollout_ref.model.lora.rank": when(as_option("lora_rank"), is_read=in_use),
    "actor_rollout_ref.model.lora.alpha": when(
        as_option("lora_alpha"),
        is_read=lambda settings, _: bool(settings.get("actor_rollout_ref.model.lora.rank")),
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
    "actor_rollout_ref.model.lora.": "LoRA has --lora-rank, --lora-alpha and --lora-targets",
    f"{ACTOR}.entropy_from_logits_chunk_size": PASSES, f"{ACTOR}.pad_to_length": "nothing is padded here",
    f"{ACTOR}.qat.": "weights are not quantised in training", f"{ROLLOUT}.qat": "weights are not quantised in training",
    "actor_rollout_ref.model.torch_dtype": "--precision",
    f"{ROLLOUT}.disaggregation.": SAMPLES, f"{ROLLOUT}.full_determinism": "--rollout lockstep is the same bit for bit",
    f"{ROLLOUT}.moe_load_balance_metrics_interval": "there are no experts with a router",
    f"{ROLLOUT}.n_gpus_per_node": "--placement says what samples where", f"{ROLLOUT}.nnodes": "--placement says what "
    "samples where", f"{ROLLOUT}.router_config_path": SAMPLES, f"{ROLLOUT}.seed": "see data.seed",
    "distillation.": "distillation from a teacher's distribution is not here; a teacher that shows is --agent http://…",
    "sandbox_fusion.": "code runs in the sandbox of this machine (docs/sandbox.md)",
    "skip.": "a run goes on where it was (quintain resume), and quintain replay makes its steps again",
    "trainer.use_v1": SHARDS, "trainer.v1.": "--rollout async, --max-staleness and --placement (docs/scale.md)",
    "trainer.checkpoint_callback_class": CHECKPOINTS,
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
TRAINER = Trainer("verl", VERL, NOT_VERL)
