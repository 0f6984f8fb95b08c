"""Flags of OpenRLHF 0.11 (``openrlhf.cli.train_ppo_ray``, ``train_sft``, ``train_dpo``) as options of ours.

Its flags have had dots since 0.11; those of earlier versions have none, and are refused as what they are: unknown.
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
    REFERENCE_POLICY,
    REWARDS,
    SAMPLES,
    SHARDS,
    TASKS,
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

COMMAND, PROGRAM, ESTIMATOR = "openrlhf.cli.", "cli", "algo.advantage.estimator"
"""What begins a program's name, the key that the reader puts it under, and the flag that says what is learned by."""
ESTIMATORS = {
    "gae": "ppo", "reinforce": "reinforce_plus_plus", "reinforce_baseline": "reinforce_plus_plus", "rloo": "rloo",
    "group_norm": "grpo", "dr_grpo": "dr_grpo",
}  # fmt: skip
"""its advantage → method"""
PROGRAMS = {"train_sft": "sft", "train_dpo": "dpo", "train_rm": "reward_model"}


def choose_method(settings: Settings, value: Any) -> str:
    """Choose the method of a program, and of the advantage where it is PPO's; that is gae where nothing is said."""
    method = PROGRAMS.get(str(value), "")
    if value == "train_ppo_ray":
        method = map_method(f"--{ESTIMATOR}", settings.get(ESTIMATOR, "gae"), ESTIMATORS)
        if method == "grpo" and settings.get("actor.policy_loss_type") == "gspo":
            method = "gspo"
    if not method:
        known = ", ".join(("train_ppo_ray", *PROGRAMS))
        raise DataError(f"{COMMAND}{value}: got a program that is not known here; give one of {known}")
    settings.made.method = method
    if method == "grpo" and settings.get("algo.advantage.no_std_norm"):
        settings.put("std", "none")
    return write_command("quintain", "train", method)


def put_tasks(settings: Settings, value: Any) -> str:
    """Take the prompts of a rollout as tasks, each of which has a group where the method compares groups."""
    samples = settings.get("rollout.n_samples_per_prompt", 1)
    return settings.put("tasks", value) or settings.put("episodes", value * samples)


def put_batch(settings: Settings, value: Any) -> str:
    """Count a rollout's minibatches, whose size is in samples; of data sets it is the batch."""
    samples = settings.get("rollout.batch_size", 1024) * settings.get("rollout.n_samples_per_prompt", 1)
    return settings.put("batch_size", value) or settings.put("num_minibatches", max(1, samples // value))


def put_both_clips(settings: Settings, value: Any) -> str:
    """Bound the ratio below and above."""
    low, high = value
    both = [settings.put("clip_low", low), settings.put("clip_high", high)]
    return " ".join(filter(None, both))


def put_kl(settings: Settings, value: Any) -> str | None:
    """Weigh the KL where it stands in the loss, or in the reward of a method that has it there."""
    is_in_loss = settings.get("algo.kl.use_loss") or settings.made.method == "reinforce_plus_plus"
    return settings.put("kl_coef", value) if is_in_loss else None


def put_ranks(settings: Settings, value: Any) -> str:
    """Shard over all cards of all machines; one card needs no ranks."""
    ranks = value * settings.get("actor.num_nodes", 1)
    return settings.put("learner_ranks", ranks) if ranks > 1 else "one card: no ranks"


def track(name: str) -> Rule:
    """Return the rule that shows metrics in the tracker `name`, beside others."""
    return lambda settings, _: put_trackers(
        settings, [*filter(None, str(settings.made.options.get("track", "")).split(",")), name]
    )


def is_several(_: Settings, value: Any) -> bool:
    """Return whether there is more than one."""
    return value > 1


def is_above_zero(_: Settings, value: Any) -> bool:
    """Return whether a number that -1 switches off is on."""
    return value > 0


OPENRLHF: Mapping[str, Rule] = {
    PROGRAM: choose_method,
    ESTIMATOR: lambda settings, _: write_command("quintain", "train", settings.made.method),
    "actor.model_name_or_path": as_option("model", str),
    "model.model_name_or_path": as_option("model", str),
    "rollout.batch_size": put_tasks,
    "rollout.n_samples_per_prompt": when(as_option("group_size"), is_read=is_several),
    "train.batch_size": put_batch,
    "train.max_epochs": as_option("num_epochs"),
    "actor.eps_clip": put_clip,
    "actor.eps_clip_low_high": put_both_clips,
    "actor.entropy_coef": when(as_option("entropy_coef"), is_read=in_use),
    "algo.kl.init_coef": when(put_kl, is_read=in_use),
    "algo.advantage.gamma": as_option("discount"),
    "algo.advantage.lambd": as_option("gae_lambda"),
    "actor.adam.lr": as_option("learning_rate", float),
    "adam.lr": as_option("learning_rate", float),
    "actor.adam.weight_decay": as_option("weight_decay"),
    "adam.weight_decay": as_option("weight_decay"),
    "actor.max_norm": as_option("max_grad_norm"),
    "max_norm": as_option("max_grad_norm"),
    "actor.lr_scheduler": put_schedule,
    "lr_scheduler": put_schedule,
    "actor.lr_warmup_ratio": when(put_warmup, is_read=in_use),
    "lr_warmup_ratio": when(put_warmup, is_read=in_use),
    "model.beta": as_option("beta"),
    "model.label_smoothing": when(as_option("label_smoothing"), is_read=in_use),
    "model.nll_loss_coef": when(as_option("imitation_weight"), is_read=in_use),
    "model.ipo_enable": when(lambda settings, _: settings.put("loss", "ipo"), is_read=in_use),
    "ds.param_dtype": lambda settings, value: settings.put("precision", value) if value == "bf16" else None,
    "ds.lora.rank": when(as_option("lora_rank"), is_read=in_use),
    "ds.lora.alpha": when(
        as_option("lora_alpha"), is_read=lambda settings, _: bool(settings.get("ds.lora.rank"))
    ),
    "ds.ring_attn_size": when(as_option("context_ranks"), is_read=is_several),
    "actor.gradient_checkpointing_enable": when(as_option("gradient_checkpointing"), is_read=in_use),
    "model.gradient_checkpointing_enable": when(as_option("gradient_checkpointing"), is_read=in_use),
    "actor.num_gpus_per_node": put_ranks,
    "vllm.num_engines": when(lambda settings, _: settings.put("engine", "vllm"), is_read=in_use),
    "rollout.temperature": as_option("temperature"),
    "rollout.max_new_tokens": as_option("max_turn_tokens"),
    "train.async_enable": when(lambda settings, _: settings.put("rollout", "async"), is_read=in_use),
    "train.seed": as_option("seed"),
    "eval.steps": when(as_option("eval_every"), is_read=is_above_zero),
    "logger.wandb.key": track("wandb"),
    "logger.tensorboard_dir": track("tensorboard"),
    "logger.wandb.run_name": put_run,
}
"""its flag → rule"""
NAMES = "what --track shows is named after the run"
PLACED = "engine and learner take turns on one machine unless --placement says otherwise"
NOT_OPENRLHF: Mapping[str, str] = {
    "ckpt.": CHECKPOINTS, "critic.": CRITIC, "ref.": REFERENCE_POLICY, "reward.": REWARDS, "vllm.": SAMPLES,
    "ds.": SHARDS, "logger.": NAMES, "eval.": "evaluations play held-out tasks: --eval-episodes",
    "data.prompt_dataset": TASKS, "data.dataset": "a data set is --demonstrations FILE, or --preferences FILE of pairs",
    "data.": "how a row is read is told by its keys (docs/data.md); --max-context refuses what is longer",
    "train.agent_func_path": "an agent of your own is --agent FILE.py:run_agent (docs/your-agent.md)",
    "train.colocate_actor_ref": PLACED, "train.colocate_critic_reward": PLACED, "train.colocate_all": PLACED,
    "train.micro_batch_size": PASSES, "train.max_tokens_per_gpu": PASSES, "train.dynamic_batch_enable": PASSES,
    "rollout.micro_batch_size": PASSES, "rollout.max_tokens_per_gpu": PASSES, "rollout.top_p": SAMPLES,
    "rollout.vllm_generate_batch_size": SAMPLES, "train.num_episodes": "--steps counts steps",
    "train.async_queue_size": "--max-staleness says how old weights may be",
    "train.partial_rollout_enable": "--rollout async goes on in the middle of a turn",
    "train.enable_ema": "there is no average of weights", "train.ema_beta": "there is no average of weights",
    "train.full_determinism_enable": "--rollout lockstep is the same bit for bit",
    "algo.kl.": "the KL is in the loss or in the reward as the method has it: --kl-coef",
    "algo.advantage.no_std_norm": "see algo.advantage.estimator: --std none leaves it out",
    "algo.advantage.is_correction_": "async rollouts are corrected by the loss of asearcher",
    "algo.dynamic_filtering_": "dapo draws until groups differ",
    "actor.loss_agg_mode": "the mean over tokens, or the method's: dr_grpo has a constant divisor",
    "actor.dual_clip": LOSS, "actor.policy_loss_type": LOSS,
    "actor.aux_loss_coef": "there are no experts with a router", "model.aux_loss_coef":
    "there are no experts with a router", "actor.freeze_visual_encoder": "models read text",
    "actor.num_nodes": "see actor.num_gpus_per_node", "actor.gradient_checkpointing_reentrant": KERNELS,
    "model.gradient_checkpointing_reentrant": KERNELS, "model.pretrain_mode_enable": "all of a text is never trained: "
    "answers are", "model.loss_type": LOSS, "model.margin_loss_enable": LOSS, "model.compute_fp32_loss_enable": KERNELS,
    **{
        f"{prefix}{name}": "AdamW with the rate that --lr-schedule gives (--help-section update)"
        for prefix in ("", "actor.")
        for name in ("optim", "muon.", "adam.", "min_lr_ratio")
    },
    "local_rank": SHARDS, "use_ms": "nothing is fetched: give a folder or a file",
}  # fmt: skip
"""its flag, or what it begins with, ending in a dot or underscore → why it is no option here"""
TRAINER = Trainer("OpenRLHF", OPENRLHF, NOT_OPENRLHF)
