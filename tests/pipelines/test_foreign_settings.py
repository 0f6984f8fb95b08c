"""Settings of verl, TRL, OpenRLHF and ms-swift: what they become, what they do not, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from quintain.cli.main import main
from quintain.errors import DataError
from quintain.methods.find import find_method
from quintain.pipelines.foreign_settings import Reading, read_overrides, read_settings, resolve

SCRIPT = """set -x
MODEL=Qwen/Qwen3-8B
project_name='GRPO-Qwen3'
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/data/gsm8k/train.parquet \\
    data.train_batch_size=1024 \\
    data.max_response_length=1024 \\
    data.truncation='error' \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.kl_loss_coef=0.001 \\
    actor_rollout_ref.actor.entropy_coeff=0 \\
    actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.n=${N:-5} \\
    actor_rollout_ref.rollout.gpu_memory_utilization=$SHARE \\
    trainer.logger='["console","wandb"]' \\
    trainer.experiment_name='qwen3 8b' \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=2 \\
    trainer.test_freq=5 $@
"""


def options_of(method: str) -> frozenset[str]:
    return frozenset(find_method(method).config_class.__dataclass_fields__)


def read(folder: Path, text: str) -> Reading:
    (folder / "settings").write_text(text)
    return read_settings(folder / "settings", options_of)


def test_a_script_of_verl_is_a_configuration_of_grpo(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT)
    assert found.method == "grpo" and found.run == "qwen3-8b"
    assert found.options == {
        "model": "Qwen/Qwen3-8B", "tasks": 1024, "group_size": 5, "num_minibatches": 4, "kl_coef": 0.001,
        "learning_rate": 1e-6, "engine": "vllm", "max_turn_tokens": 1024, "eval_every": 5, "learner_ranks": 16,
        "track": "wandb",
    }  # fmt: skip
    find_method("grpo").config_class(**found.options)
    reasons = {line.key: line.reason for line in found.lines if not line.became}
    assert reasons["data.truncation"].startswith("tasks are a file")
    assert (
        reasons["actor_rollout_ref.rollout.gpu_memory_utilization"]
        == "a variable that the file does not give"
    )
    assert len(found.lines) == 20, "every key that is set has a line"


def test_a_whole_configuration_is_resolved_and_chooses_the_method(tmp_path: Path) -> None:
    text = """
algorithm: {adv_estimator: gae, gamma: 1.0, lam: 0.95, _target_: verl.AlgoConfig}
data: {train_batch_size: 64}
actor_rollout_ref:
  actor: {clip_ratio: 0.3, ppo_epochs: 2, policy_loss: {loss_mode: vanilla}, fsdp_config: {}}
  rollout: {n: 4, name: "???", temperature: "${oc.select:trainer.nothing,0.7}"}
trainer: {n_gpus_per_node: "${trainer.cards}", cards: 1}
"""
    with pytest.raises(
        DataError, match=r"got trainer.cards, which no verl that is known here has; take them out"
    ):
        read(tmp_path, text)
    found = read(tmp_path, text.replace(", cards: 1", "").replace("${trainer.cards}", "${trainer.nnodes}"))
    assert found.method == "ppo" and found.options == {
        "episodes": 256, "num_epochs": 2, "clip": 0.3, "discount": 1.0, "gae_lambda": 0.95, "temperature": 0.7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("estimator", "more", "method", "options"),
    [
        ("grpo", "actor_rollout_ref.actor.policy_loss.loss_mode=gspo", "gspo", {}),
        ("grpo", "algorithm.norm_adv_by_std_in_grpo=False", "grpo", {"std": "none"}),
        ("rloo", "data.train_batch_size=8", "rloo", {"tasks": 8}),
        ("reinforce_plus_plus", "data.max_response_length=9", "reinforce_plus_plus", {"max_turn_tokens": 9}),
    ],
)
def test_the_advantage_decides_the_method(
    tmp_path: Path, estimator: str, more: str, method: str, options: dict[str, Any]
) -> None:
    found = read(tmp_path, f"algorithm.adv_estimator={estimator} \\\n {more}\n")
    assert (found.method, found.options) == (method, options)


def test_fields_of_trl(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "loss_type: dr_grpo\nnum_generations: 8\nper_device_train_batch_size: 16\ngradient_accumulation_steps: 4\n"
        "learning_rate: 1e-5\nmax_steps: 200\nwarmup_ratio: 0.1\nepsilon: 0.2\nepsilon_high: 0.28\nbeta: 0.04\n"
        "use_peft: true\nlora_r: 8\nlora_alpha: 32\nbf16: true\nuse_vllm: false\nvllm_mode: colocate\n"
        "report_to: none\nsave_steps: 50\nscale_rewards: group\n",
    )
    assert found.method == "dr_grpo"
    assert found.options == {
        "group_size": 8, "tasks": 8, "learning_rate": 1e-5, "steps": 200, "lr_warmup": 20, "lr_schedule": "constant",
        "clip": 0.2, "kl_coef": 0.04, "lora_rank": 8, "lora_alpha": 32, "precision": "bf16",
    }  # fmt: skip
    became = {line.key: line.became for line in found.lines}
    assert became["use_vllm"] == "as it is here" and not became["epsilon_high"], "dr_grpo has one bound"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "got a file that is no YAML"),
        ("beta: &a {b: {c: *a}}\n", r"settings: got beta.b.c, which holds itself \(a YAML alias\)"),
        ("", "got NoneType, no keys; give a ppo_trainer.yaml, the fields of a GRPOConfig, or a script"),
        ("lr: 3\nbatch: 2\n", "got lr, batch, which neither verl nor TRL nor ms-swift has"),
        ("beta: 0.1\nnew_trick: 2\n", "got new_trick, which no TRL that is known here has"),
        ("algorithm: {adv_estimator: remax}\n", "got remax; what is here is gae, grpo, rloo"),
        ("loss_type: luspo\n", "got luspo; what is here is grpo, bnpo"),
        (
            "python -m openrlhf.cli.train_ppo_ray --pretrain m\n",
            "got pretrain, which no OpenRLHF that is known here has",
        ),
        (
            "openrlhf.cli.train_knn --train.seed 1\n",
            "openrlhf.cli.train_knn: got a program that is not known here",
        ),
        (
            "openrlhf.cli.train_ppo_ray --algo.advantage.estimator max\n",
            "estimator: got max; what is here is gae, rein",
        ),
        (
            "swift rlhf --rlhf_type grpo --model m --newer 1\n",
            "got newer, which no ms-swift that is known here has",
        ),
        ("swift rlhf --rlhf_type gkd --model m\n", "rlhf_type: got gkd; what is here is dpo, kto"),
        (
            "swift rlhf --rlhf_type grpo --loss_type sapo\n",
            "got grpo with grpo and sapo; what is here is dpo",
        ),
        ("swift rlhf --model m --loss_type bco_pair\n", "loss_type: got bco_pair; what is here is sigmoid"),
        ("megatron sft --model m\n", "got megatron sft, which is no training that is known here; give swift"),
        ("swift infer --model m\n", "got swift infer, which is no training that is known here; give swift"),
    ],
)
def test_what_cannot_be_told_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)
    with pytest.raises(DataError, match="is no YAML"):
        read_settings(tmp_path / "nothing.yaml", options_of)


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("verl", "algorithm.adv_estimator=grpo \\\n trainer.newer=1\n"),
        ("TRL", "beta: 0.1\nnewer: 2\n"),
        ("OpenRLHF", "python -m openrlhf.cli.train_ppo_ray --newer 1\n"),
        ("ms-swift", "swift rlhf --rlhf_type grpo --newer 1\n"),
    ],
)
def test_a_configuration_of_a_newer_version_ends_in_a_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str, text: str
) -> None:
    script, out = tmp_path / "newer", tmp_path / "ours.toml"
    script.write_text(text)
    assert main(["import", str(script), "--out", str(out)]) == DataError.exit_code
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.out == "" and not out.exists()
    assert (
        f"newer, which no {tool} that is known here has; take them out, or what they would do is lost"
        in said.err
    )


def test_references_that_lead_nowhere_are_nothing() -> None:
    assert resolve({"a": "${b}", "b": "${a}"}, "${a}") is None
    assert read_overrides("just words, a=1\n") == {}


def test_the_command_writes_a_configuration_that_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, out = tmp_path / "run.sh", tmp_path / "grpo.toml"
    script.write_text(SCRIPT)
    assert main(["import", str(script), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "actor_rollout_ref.rollout.n = 5  →  --group-size 5" in said
    assert "6 more keys of verl are no option here: --all says why" in said
    assert f"train: quintain train grpo --config {out} --run qwen3-8b --environment E" in said
    assert 'engine = "vllm"\n' in out.read_text() and "learning_rate = 1e-06\n" in out.read_text()
    assert main(["import", str(script), "--all"]) == 0
    assert "data.truncation = error  ·  tasks are a file" in capsys.readouterr().out
    assert main(["import", str(script), "--out", str(out)]) == 2
    assert "give a new file that ends in .toml" in capsys.readouterr().err


ENGINE = """#!/bin/bash
NAME=Qwen/Qwen3-4B
ROLL=(
   --actor.model_name_or_path ${NAME}
   # --reward.model_name_or_path ${REWARD}
   --rollout.batch_size 128
   --rollout.n_samples_per_prompt 8
   --train.batch_size 256
   --algo.dynamic_filtering_enable
   --algo.dynamic_filtering_range 0.0 1.0
   --actor.eps_clip_low_high 0.2 0.3
   --actor.num_gpus_per_node 4
   --actor.num_nodes 2
   --vllm.num_engines 4
   --algo.advantage.estimator group_norm
   --algo.kl.init_coef 1e-3
   --algo.kl.use_loss
   --logger.wandb.run_name "a b"
   --logger.wandb.key ${KEY}
   --logger.tensorboard_dir logs
   --eval.steps -1
)
ray job submit --address="http://127.0.0.1:8265" \\
   --runtime-env-json='{"working_dir": "/openrlhf"}' \\
   -- python3 -m openrlhf.cli.train_ppo_ray \\
   ${ROLL[@]} --actor.adam.lr 5e-7
"""


def test_a_script_of_openrlhf_is_a_configuration_of_grpo(tmp_path: Path) -> None:
    found = read(tmp_path, ENGINE)
    assert (found.tool, found.method, found.run) == ("OpenRLHF", "grpo", "a-b")
    assert found.options == {
        "model": "Qwen/Qwen3-4B", "tasks": 128, "group_size": 8, "num_minibatches": 4, "clip_low": 0.2,
        "clip_high": 0.3, "learner_ranks": 8, "engine": "vllm",
        "kl_coef": 1e-3, "learning_rate": 5e-7, "track": "tensorboard",
    }  # fmt: skip
    find_method("grpo").config_class(**found.options)
    reasons = {line.key: line.reason for line in found.lines if not line.became}
    assert reasons == {
        "algo.dynamic_filtering_enable": "dapo draws until groups differ",
        "algo.dynamic_filtering_range": "dapo draws until groups differ",
        "actor.num_nodes": "see actor.num_gpus_per_node",
        "algo.kl.use_loss": "the KL is in the loss or in the reward as the method has it: --kl-coef",
        "logger.wandb.key": "a variable that the file does not give",
    }
    values = {line.key: line.value for line in found.lines}
    assert values["cli"] == "train_ppo_ray" and "reward.model_name_or_path" not in values


@pytest.mark.parametrize(
    ("flags", "method", "options"),
    [
        ("train_ppo_ray --rollout.batch_size 64 --rollout.n_samples_per_prompt 2", "ppo", {"episodes": 128}),
        ("train_ppo_ray --algo.advantage.estimator reinforce --algo.kl.init_coef 0.1", "reinforce_plus_plus",
         {"kl_coef": 0.1}),
        ("train_ppo_ray --algo.advantage.estimator group_norm --algo.kl.init_coef 0.1", "grpo", {}),
        ("train_ppo_ray --algo.advantage.estimator group_norm --algo.advantage.no_std_norm", "grpo", {"std": "none"}),
        ("train_ppo_ray --algo.advantage.estimator group_norm --actor.policy_loss_type gspo", "gspo", {}),
        ("train_ppo_ray --algo.advantage.estimator dr_grpo --actor.eps_clip 0.3", "dr_grpo", {"clip": 0.3}),
        ("train_ppo_ray --algo.advantage.estimator rloo --train.async_enable", "rloo", {"rollout": "async"}),
        ("train_sft --train.batch_size 16 --adam.lr 5e-6 --ds.lora.rank 8", "sft",
         {"batch_size": 16, "learning_rate": 5e-6, "lora_rank": 8}),
        ("train_dpo --model.beta 0.2 --model.ipo_enable --lr_scheduler linear", "dpo",
         {"beta": 0.2, "loss": "ipo", "lr_schedule": "linear"}),
    ],
)  # fmt: skip
def test_programs_and_estimators_of_openrlhf_decide_the_method(
    tmp_path: Path, flags: str, method: str, options: dict[str, Any]
) -> None:
    found = read(tmp_path, f"deepspeed --module openrlhf.cli.{flags}\n".replace("deepspeed --module ", ""))
    assert (found.method, found.options) == (method, options)


def test_a_command_of_ms_swift_is_a_configuration_of_gspo(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'SYSTEM="be brief and\nright"\nCUDA_VISIBLE_DEVICES=0,1 \\\nNPROC_PER_NODE=2 \\\nswift rlhf \\\n'
        "    --rlhf_type grpo \\\n    --model Qwen/Qwen2.5-7B-Instruct \\\n    --torch_dtype bfloat16 \\\n"
        "    --beta 0.0 --epsilon 3e-4 --epsilon_high 4e-4 --steps_per_generation 32 \\\n"
        "    --importance_sampling_level sequence --per_device_train_batch_size 2 \\\n"
        "    --gradient_accumulation_steps 8 --num_generations 16 --tuner_type lora --lora_alpha 64 \\\n"
        "    --reward_funcs accuracy format --use_vllm true --vllm_mode colocate --report_to swanlab tensorboard \\\n"
        '    --system "$SYSTEM" --warmup_ratio 0.05 --max_steps 200 --dataset a#100 b\nswift infer --stream true\n',
    )
    assert (found.tool, found.method) == ("ms-swift", "gspo")
    assert found.options == {
        "model": "Qwen/Qwen2.5-7B-Instruct", "precision": "bf16", "clip_low": 3e-4, "clip_high": 4e-4,
        "num_minibatches": 4, "tasks": 8, "group_size": 16, "lora_rank": 8, "lora_alpha": 64, "engine": "vllm",
        "track": "tensorboard", "lr_schedule": "constant", "lr_warmup": 10, "steps": 200, "learner_ranks": 2,
    }  # fmt: skip
    lines = {line.key: line for line in found.lines}
    assert lines["beta"].became == "as it is here" and lines["system"].reason.startswith("a variable")
    assert (
        lines["reward_funcs"].value == ["accuracy", "format"]
        and "reward-function" not in lines["dataset"].reason
    )
    assert "stream" not in lines, "another command's"


@pytest.mark.parametrize(
    ("text", "method", "options"),
    [
        ("model: m\ntuner_type: full\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n", "sft",
         {"model": "m", "batch_size": 16}),
        ("rlhf_type: grpo\nmodel: m\ntrain:\n  gpus: 4\n  tuner_type: lora\n  lora_rank: 4\n", "grpo",
         {"model": "m", "lora_rank": 4}),
        ("swift rlhf --rlhf_type kto --model m --beta 0.3\n", "dpo", {"loss": "kto", "model": "m", "beta": 0.3}),
        ("swift rlhf --model m --loss_type hinge --rpo_alpha 0.1\n", "dpo",
         {"loss": "hinge", "model": "m", "imitation_weight": 0.1}),
        ("swift rlhf --rlhf_type grpo --advantage_estimator rloo --beta 0.1\n", "rloo", {"kl_coef": 0.1}),
        ("python swift/cli/rlhf.py --rlhf_type ppo --gamma 0.9 --gradient_accumulation_steps $(expr 16 / 2)\n", "ppo",
         {"discount": 0.9}),
    ],
)  # fmt: skip
def test_arguments_of_ms_swift_decide_the_method(
    tmp_path: Path, text: str, method: str, options: dict[str, Any]
) -> None:
    found = read(tmp_path, text)
    assert (found.tool, found.method, found.options) == ("ms-swift", method, options)


def test_a_variable_that_is_not_given_is_no_number(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "a.b \\\n algorithm.adv_estimator=gae \\\n data.train_batch_size=8 \\\n actor_rollout_ref.rollout.n=$N\n",
    )
    assert found.options == {"episodes": 8}
