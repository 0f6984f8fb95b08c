"""Settings of verl and TRL: what they become, what they do not, and what is refused."""

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
        ("", "got NoneType, no keys; give verl's or TRL's settings"),
        ("lr: 3\nbatch: 2\n", "got lr, batch, which neither verl nor TRL has"),
        ("beta: 0.1\nnew_trick: 2\n", "got new_trick, which no TRL that is known here has"),
        ("algorithm: {adv_estimator: remax}\n", "got remax; what is here is gae, grpo, rloo"),
        ("loss_type: luspo\n", "got luspo; what is here is grpo, bnpo"),
    ],
)
def test_what_cannot_be_told_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)
    with pytest.raises(DataError, match="is no YAML"):
        read_settings(tmp_path / "nothing.yaml", options_of)


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
