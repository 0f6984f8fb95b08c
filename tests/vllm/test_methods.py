"""Methods of each loop through the real vLLM while the machine is busy with something else (make test-vllm)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.vllm.test_vllm import ARGUMENTS, PROGRAM

import quintain

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]
SPEC = f"vllm?program={PROGRAM}&arguments={ARGUMENTS.replace(' ', '+')}&start_timeout=900"
FIELDS: dict[str, dict[str, Any]] = {
    "grpo": {"tasks": 4, "group_size": 4},
    "ppo": {"episodes": 8},
    "archer": {"tasks": 4, "group_size": 2, "critic_first": 0, "critic_explains": 0.0, "critic_updates": 2},
    "eto": {"tasks": 8},
}


@pytest.fixture(autouse=True)
def busy() -> Iterator[None]:
    """A process beside that does nothing but compute."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    other.kill()
    other.wait()


@pytest.mark.parametrize("method", list(FIELDS))
def test_a_method_trains_through_a_server_on_a_busy_machine(method: str, tmp_path: Path) -> None:
    run = quintain.train(
        method, run=method, root=tmp_path, model="tiny", environment="guess?high=4&max_turns=3", engine=SPEC, steps=2,
        eval_every=1, eval_episodes=8, demonstrations=32, imitation_epochs=4, max_turn_tokens=16, max_context=512,
        **FIELDS[method],
    )  # fmt: skip
    rows = run.metrics
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert all(row.get("train/failures", 0.0) == 0.0 for row in rows), "no episode was lost"
    gaps = [row["gap/mean"] for row in rows if "gap/mean" in row]
    assert all(gap < 1e-3 for gap in gaps)
    assert gaps or method not in ("grpo", "ppo"), "the start succeeds now and then, so that groups differ"
    assert rows[-1]["gap/canary"] < 1e-3
    print(f"{method}: gaps {gaps}, canary {rows[-1]['gap/canary']:.1e}")
