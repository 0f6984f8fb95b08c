"""Benchmarks: two arms from one policy, paired by seed, continued and stored."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.benchmarks.comparisons import rl
from quintain.benchmarks.comparisons.rl import BENCHMARKS
from quintain.benchmarks.trials import (
    ARMS,
    TUNING,
    Arm,
    Benchmark,
    area,
    arm_of,
    best_rate,
    is_done,
    perform,
    probes,
    row,
    trial,
    warm,
)
from quintain.cli.main import main
from quintain.environments.catalog import find
from quintain.errors import ConfigError, DataError, UsageError
from quintain.store.run import Run

SMALL: dict[str, Any] = {
    "model": "micro", "demonstrations": 2, "imitation_epochs": 1, "steps": 8, "eval_every": 4, "eval_episodes": 2,
    "tasks": 1, "group_size": 2, "max_env_steps": 3, "max_sampled_tokens": None,
}  # fmt: skip
WORLD = "guess?max_turns=1&high=3"


def tiny(name: str = "one", **fields: Any) -> Benchmark:
    given: dict[str, Any] = {
        "recipe": "rloo", "baseline": "grpo", "environment": WORLD, "claim": "It is.", "shared": SMALL,
        "settings": {"kl_coef": 0.0}, **fields,
    }  # fmt: skip
    return Benchmark(name=name, **given)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 2)


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
    found = row(tiny(), seeds, "command", "2026-01-31")
    assert found["seeds"] == [0, 1, 2]
    assert found["method_result"]["mean"] == pytest.approx(0.6)
    assert [part["value"] for part in found["method_result"]["by_seed"]] == [0.6, 0.9, 0.3]
    assert found["gain"]["mean"] == pytest.approx(0.4 / 3)
    assert found["gain"]["low"] == pytest.approx(-0.1) and found["gain"]["high"] == pytest.approx(0.4)
    assert (found["command"], found["date"], found["baseline_settings"]) == ("command", "2026-01-31", {})
    assert (found["gain"]["wins"], found["is_better"], found["seconds"]) == (2, True, 9.0)
    assert found["gain_in_area"]["mean"] == pytest.approx((0.4 - 0.5) / 3)
    lower = row(tiny(is_lower_better=True), seeds, "command")
    assert lower["gain"]["mean"] == pytest.approx(-0.4 / 3)
    assert (lower["gain"]["wins"], lower["is_better"]) == (1, False)
    kept = [row(tiny(is_lower_better=True, no_worse_by=most), seeds, "command") for most in (0.1, 0.2)]
    assert [found["is_better"] for found in kept] == [False, True], "0.133 is lost"
    assert kept[0]["no_worse_by"] == 0.1
    whole = row(tiny(at="run"), seeds, "command")
    assert whole["at"] == "run" and whole["gain"] == whole["gain_in_area"] != whole["gain_at_end"]
    assert whole["method_result"]["mean"] == pytest.approx(
        sum(arms["method"].area for arms in seeds.values()) / 3
    )


def test_both_arms_start_alike_stop_at_the_budget_and_are_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = [trial(tiny(), side, seed=0) for side in ARMS]
    folders = [perform(found, tmp_path) for found in pair]
    first, second = (arm_of(tiny(), folder) for folder in folders)
    assert first.turns == second.turns == 4
    start = [(folder / "start" / "model.safetensors").read_bytes() for folder in folders]
    assert start[0] == start[1]
    assert [folder.name for folder in tmp_path.glob("start-0-*")] == [pair[0].start] == [pair[1].start]
    curve = [json.loads(line) for line in (folders[0] / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in curve] == [0, 1, 2]
    assert [r["total/turns"] for r in curve] == [0, 2, 4]
    assert curve[-1]["eval/success"] == first.value
    assert first.curve == ((0, curve[0]["eval/success"]), (4, first.value))
    assert not (folders[0] / "checkpoints").exists() and (folders[0] / "model").exists()

    def never(*_: Any) -> None:
        raise AssertionError("a finished run is read")

    monkeypatch.setattr("quintain.benchmarks.trials.train_by", never)
    assert arm_of(tiny(), perform(pair[0], tmp_path)) == first
    with pytest.raises(DataError, match="got no eval/beauty; name a metric"):
        arm_of(tiny(measure="eval/beauty"), folders[0])


def test_equal_runs_are_one_trial_and_what_makes_the_start_names_it() -> None:
    one, two = tiny(), tiny("two", recipe="grpo", settings={"std": "none"})
    assert trial(one, "baseline", seed=1).name == trial(two, "baseline", seed=1).name
    method = trial(two, "method", seed=1)
    assert method.name != trial(two, "baseline", seed=1).name
    assert method.start == trial(one, "method", seed=1).start
    assert method.start != trial(one, "method", seed=2).start
    other = trial(one, "method", seed=1, overrides={"imitation_rate": 0.1})
    erring = trial(one, "method", seed=1, overrides={"mistakes": 0.3})
    assert len({other.start, method.start, erring.start}) == 3
    with pytest.raises(ConfigError, match="group_size: got 1"):
        trial(one, "method", seed=1, overrides={"group_size": 1})


def test_a_run_of_other_defaults_is_not_taken_for_this_one(tmp_path: Path) -> None:
    found = trial(tiny(), "method", seed=0)
    with Run.create(
        tmp_path / found.name, recipe="rloo", config={**asdict(found.config), "temperature": 0.5}
    ):
        pass
    with pytest.raises(DataError, match="got one with another temperature; delete it"):
        perform(found, tmp_path)
    older = {key: value for key, value in asdict(found.config).items() if key != "monitors"}
    with Run.create(tmp_path / found.name, recipe="rloo", config=older, replace=True) as run:
        run.finish("done")
    assert is_done(found, tmp_path), "a setting that came later does not matter"


def test_a_stopped_trial_goes_on_and_a_broken_start_is_made_again(tmp_path: Path) -> None:
    found = trial(tiny(), "method", seed=0)
    (tmp_path / found.start / "start").mkdir(parents=True)
    assert (warm(found, tmp_path) / "config.json").exists()
    made = (tmp_path / found.start / "start" / "model.safetensors").stat().st_mtime_ns
    with Run.create(tmp_path / found.name, recipe=found.recipe, config=asdict(found.config)):
        pass
    folder = perform(found, tmp_path)
    assert arm_of(tiny(), folder).turns == 4
    assert (tmp_path / found.start / "start" / "model.safetensors").stat().st_mtime_ns == made


def test_the_command_writes_results_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rl, "BENCHMARKS", (tiny(), tiny("two", measure="eval/turns", is_lower_better=True)))
    output = tmp_path / "results" / "rl.json"
    flags = ["--runs", str(tmp_path / "runs"), "--output", str(output), "--seeds", "1"]
    settings = ["--set", '{"max_env_steps": 1}']
    assert main(["bench", "methods", "--family", "rl", "--only", "two", *flags, *settings]) == 0
    told = capsys.readouterr()
    assert "grpo-0-" in told.err and "2/2 runs done" in told.err
    assert told.out.splitlines()[1].startswith(f"two\t{WORLD}\t")
    assert main(["bench", "methods", *flags, *settings, "--json"]) == 0
    told = capsys.readouterr()
    assert list(json.loads(told.out)) == ["one", "two"]
    assert not told.err, "what both benchmarks need was there"
    stored = json.loads(output.read_text())
    assert list(stored) == ["one", "two"]
    assert stored["one"]["command"].startswith("quintain bench methods --runs ")
    assert stored["one"]["command"].endswith("--json --only one")
    assert stored["two"]["measure"] == "eval/turns"


def test_the_best_rate_is_that_of_the_best_end_then_of_the_best_run() -> None:
    found = {1e-3: arm(0.5), 5e-4: arm(0.75), 1e-4: arm(0.75, share=0.1)}
    assert best_rate(tiny(), found) == 1e-4
    assert best_rate(tiny(is_lower_better=True), found) == 1e-3
    assert best_rate(tiny(at="run"), {1e-3: arm(0.5, share=0.9), 5e-4: arm(0.6, share=0.1)}) == 1e-3


def test_an_arm_is_tried_at_each_rate_on_a_seed_of_its_own() -> None:
    given = tiny(rates=(1e-3, 5e-4))
    found = probes(given, "method", overrides={"max_env_steps": 2})
    assert {rate: run.config.learning_rate for rate, run in found.items()} == {1e-3: 1e-3, 5e-4: 5e-4}
    assert {(run.config.seed, run.config.max_env_steps) for run in found.values()} == {(TUNING, 2)}
    assert probes(given, "method", overrides={"learning_rate": 0.1}) == probes(tiny(), "method") == {}


def test_the_command_chooses_rates_first_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rl, "BENCHMARKS", (tiny(rates=(1e-3, 5e-4)),))
    monkeypatch.setattr("quintain.benchmarks.trials.best_rate", lambda _, found: min(found))
    output = tmp_path / "results" / "rl.json"
    flags = ["--runs", str(tmp_path / "runs"), "--output", str(output), "--seeds", "1"]
    assert main(["bench", "methods", *flags]) == 0
    told = capsys.readouterr().err
    assert "4/4 runs for learning rates done" in told and "2/2 runs done" in told
    stored = json.loads(output.read_text())["one"]
    assert stored["rates"] == {"tried": [1e-3, 5e-4], "method": 5e-4, "baseline": 5e-4}
    for side in ARMS:
        with Run.open(
            tmp_path / "runs" / stored[f"{side}_result"]["by_seed"][0]["run"], writable=False
        ) as run:
            assert run.config["learning_rate"] == 5e-4


PARENT = """
import os, time
from quintain.benchmarks.sweep import workers
if __name__ == "__main__":
    with workers(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals of POSIX")
def test_trials_end_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    with subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGTERM)
    end = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end and "zombie" not in state(child):
            os.kill(child, 0)
            time.sleep(0.05)
        assert "zombie" in state(child)


def state(number: int) -> str:
    """Return what the system says of the process `number`, which may be gone."""
    try:
        return Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError as error:
        raise ProcessLookupError(number) from error


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["method"], "what to benchmark: got 'method'; did you mean 'methods'?"),
        (["methods", "--family", "lr"], "--family: got 'lr'; choose from rl"),
        (["methods", "--only", "gipo"], "--only: got 'gipo'; did you mean 'gigpo'?"),
        (["methods", "--set", "x"], "--set: got 'x', which is no JSON"),
        (["methods", "--set", "[]"], "--set: got '[]'; write a JSON object"),
        (["methods", "--seeds", "0"], "--seeds"),
        (["methods", "--pages", "--output", "nowhere/rl.json"], "--pages: got no results in nowhere/rl.json"),
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
        assert trial(benchmark, "method", seed=0).name != trial(benchmark, "baseline", seed=0).name
        find(benchmark.environment)
