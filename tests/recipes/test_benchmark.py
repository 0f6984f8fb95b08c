"""Benchmarks: two arms from one policy, paired by seed, continued and stored."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.cli.main import main
from quintain.environments.catalog import find
from quintain.errors import DataError, UsageError
from quintain.recipes import rl_benchmarks as rl
from quintain.recipes.benchmark import Arm, Benchmark, area, row, run_arm
from quintain.recipes.configure import build
from quintain.recipes.names import recipe_module
from quintain.recipes.rl_benchmarks import BENCHMARKS

SMALL: dict[str, Any] = {
    "model": "micro", "demonstrations": 2, "imitation_epochs": 1, "steps": 8, "eval_every": 4, "eval_episodes": 2,
    "tasks": 1, "group_size": 2, "most_turns": 3, "most_tokens": None,
}  # fmt: skip
WORLD = "guess?max_turns=1&high=3"


def tiny(name: str = "one", **fields: Any) -> Benchmark:
    given: dict[str, Any] = {
        "recipe": "rloo", "baseline": "grpo", "environment": WORLD, "claim": "It is.", "shared": SMALL,
        "settings": {"kl": 0.0}, **fields,
    }  # fmt: skip
    return Benchmark(name=name, **given)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.recipes.corpus.NUM_EPISODES", 2)


def arm(value: float, *, share: float = 0.0) -> Arm:
    return Arm(value=value, area=value + share, turns=10, tokens=20, seconds=1.5, run="r")


def test_the_area_is_the_mean_height() -> None:
    assert area([(0, 0), (1, 1), (3, 1)]) == pytest.approx(5 / 6)
    assert area([(2, 0.5)]) == 0.5


def test_a_row_pairs_by_seed_and_turns_the_sign() -> None:
    seeds = {
        1: {"method": arm(0.9), "baseline": arm(0.5, share=0.5)},
        0: {"method": arm(0.6), "baseline": arm(0.5)},
        2: {"method": arm(0.3), "baseline": arm(0.4)},
    }
    found = row(tiny(), seeds, "command")
    assert found["seeds"] == [0, 1, 2]
    assert found["method_result"]["mean"] == pytest.approx(0.6)
    assert [part["value"] for part in found["method_result"]["by_seed"]] == [0.6, 0.9, 0.3]
    assert found["gain"]["mean"] == pytest.approx(0.4 / 3)
    assert found["gain"]["low"] == pytest.approx(-0.1) and found["gain"]["high"] == pytest.approx(0.4)
    assert (found["gain"]["wins"], found["is_better"], found["seconds"]) == (2, True, 9.0)
    assert found["gain_in_area"]["mean"] == pytest.approx((0.4 - 0.5) / 3)
    lower = row(tiny(is_lower_better=True), seeds, "command")
    assert lower["gain"]["mean"] == pytest.approx(-0.4 / 3)
    assert (lower["gain"]["wins"], lower["is_better"]) == (1, False)


def test_both_arms_start_alike_stop_at_the_budget_and_are_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_arm(tiny(), "method", seed=0, root=tmp_path)
    second = run_arm(tiny(), "baseline", seed=0, root=tmp_path)
    assert first.turns == second.turns == 4
    start = [(Path(found.run) / "start" / "model.safetensors").read_bytes() for found in (first, second)]
    assert start[0] == start[1]
    curve = [json.loads(line) for line in (Path(first.run) / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in curve] == [0, 1, 2]
    assert [r["total/turns"] for r in curve] == [0, 2, 4]
    assert curve[-1]["eval/success"] == first.value

    def never(*_: Any) -> None:
        raise AssertionError("a finished run is read")

    monkeypatch.setattr(recipe_module("rloo"), "train", never)
    assert run_arm(tiny(), "method", seed=0, root=tmp_path) == first
    with pytest.raises(DataError, match="got one with other settings; delete it"):
        run_arm(tiny(), "method", seed=0, root=tmp_path, overrides={"steps": 9})
    with pytest.raises(DataError, match="got no eval/beauty; name a metric"):
        run_arm(tiny(measure="eval/beauty"), "method", seed=0, root=tmp_path)


def test_the_command_writes_results_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rl, "BENCHMARKS", (tiny(), tiny("two", measure="eval/turns", is_lower_better=True)))
    output = tmp_path / "results" / "rl.json"
    flags = ["--runs", str(tmp_path / "runs"), "--output", str(output), "--seeds", "1"]
    settings = ["--set", '{"most_turns": 1}']
    assert main(["bench", "methods", "--family", "rl", "--only", "two", *flags, *settings]) == 0
    told = capsys.readouterr()
    assert "two seed 0:" in told.err and "1/1 done" in told.err
    assert told.out.splitlines()[1].startswith(f"two\t{WORLD}\t")
    assert main(["bench", "methods", *flags, *settings, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["one", "two"]
    stored = json.loads(output.read_text())
    assert list(stored) == ["one", "two"]
    assert stored["one"]["command"].startswith("quintain bench methods --runs ")
    assert stored["one"]["command"].endswith("--json --only one")
    assert stored["two"]["measure"] == "eval/turns"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["method"], "what to benchmark: got 'method'; did you mean 'methods'?"),
        (["methods", "--family", "lr"], "--family: got 'lr'; choose from rl"),
        (["methods", "--only", "gipo"], "--only: got 'gipo'; did you mean 'gigpo'?"),
        (["methods", "--set", "x"], "--set: got 'x', which is no JSON"),
        (["methods", "--set", "[]"], "--set: got '[]'; write a JSON object"),
        (["methods", "--seeds", "0"], "--seeds"),
    ],
)
def test_what_is_wrong_is_one_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *argv]) == UsageError.exit_code
    assert message in capsys.readouterr().err


def test_help_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    assert main(["bench"]) == UsageError.exit_code
    assert capsys.readouterr().out.count("usage: quintain bench methods") == 2


def test_every_benchmark_can_be_configured() -> None:
    assert len({benchmark.name for benchmark in BENCHMARKS}) == len(BENCHMARKS)
    for benchmark in BENCHMARKS:
        for side in ("method", "baseline"):
            recipe, values = benchmark.arm(side, 0, {})
            build(recipe_module(recipe).Config, values, benchmark.name)
            find(benchmark.environment)
