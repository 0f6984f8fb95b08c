"""One recipe in one process, on Ray, and on Ray with a learner in ranks and vLLM: only the placement differs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.vllm.test_vllm import ARGUMENTS, PROGRAM

from quintain.eval.statistics import wilson
from quintain.store.run import Run

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]
EVALUATED = 128
RECIPE = f"""
environment = "guess?high=4&max_turns=3"
model = "tiny"
steps = 8
eval_every = 4
eval_episodes = {EVALUATED}
demonstrations = 32
imitation_epochs = 5
learning_rate = 5e-4
max_turn_tokens = 16
max_context = 512
"""
PLACEMENT = "start_timeout = 900\n[workers]\nmin = 2\nmax = 2\n[engines]\nreplicas = {}\n"
Rows = list[dict[str, Any]]


def trained(root: Path, name: str, *where: str) -> Rows:
    """Train by the recipe in `root` and return the metrics of each step."""
    command = [sys.executable, "-m", "quintain.cli", "train", "grpo", "--config", str(root / "recipe.toml")]
    done = subprocess.run(
        [*command, "--runs", str(root), "--run", name, *where], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (root / name / "metrics.jsonl").read_text().splitlines()]


def tokens(folder: Path) -> list[Any]:
    with Run.open(folder, writable=False) as run:
        return sorted(
            (step, t.group, t.index, [turn.completion.token_ids for turn in t.turns])
            for step in range(1, run.next_step)
            for t in run.trajectories(step=step, phase="train")
        )


def on_ray(root: Path, replicas: int) -> tuple[str, ...]:
    file = root / f"placement-{replicas}.toml"
    file.write_text(PLACEMENT.format(replicas))
    return "--cluster", "local", "--placement", str(file)


def test_one_recipe_learns_the_same_in_one_process_on_ray_and_on_ray_with_ranks_and_vllm(
    tmp_path: Path,
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    served = f"vllm?program={PROGRAM}&arguments={ARGUMENTS.replace(' ', '+')}&start_timeout=900"
    alone = trained(tmp_path, "alone")
    ray = trained(tmp_path, "ray", *on_ray(tmp_path, 2))
    all_three = trained(tmp_path, "all", *on_ray(tmp_path, 1), "--learner-ranks", "2", "--engine", served)
    assert tokens(tmp_path / "ray") == tokens(tmp_path / "alone")
    for one, other in zip(alone, ray, strict=True):
        names = [name for name in one if name.startswith(("train/", "eval/", "gap/"))]
        assert {name: other[name] for name in names} == {
            name: pytest.approx(one[name], rel=1e-4, abs=1e-6) for name in names
        }
    assert [row["step"] for row in all_three] == [row["step"] for row in alone]
    assert all(row.get("train/failures", 0.0) == 0.0 for row in all_three)
    assert max(row.get("gap/mean", 0.0) for row in all_three) < 1e-3
    curves = [[row["eval/success"] for row in rows if "eval/success" in row] for rows in (alone, all_three)]
    print(f"held-out success alone {curves[0]}, with Ray, FSDP2 and vLLM {curves[1]}")
    for rates in zip(*curves, strict=True):
        bounds = [wilson(round(rate * EVALUATED), EVALUATED, 0.99) for rate in rates]
        assert max(low for low, _ in bounds) <= min(high for _, high in bounds), curves
    assert all(curve[-1] > curve[0] for curve in curves), curves
