"""Benchmarks: two arms from one policy, paired by seed, continued and stored."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.cli.main import main
from quintain.config import build
from quintain.errors import ConfigError, DataError, UsageError
from quintain.methods.find import find_method
from quintain.store.run import Run
from quintain_evidence.trials import (
    ARMS,
    ENOUGH,
    Benchmark,
    Trial,
    area,
    arm_of,
    hacked_between,
    is_done,
    makes_own_start,
    perform,
    trial,
    warm,
)

SMALL: dict[str, Any] = {
    "model": "micro", "demonstrations": 2, "imitation_epochs": 1, "steps": 8, "eval_every": 4, "eval_episodes": 2,
    "tasks": 1, "group_size": 2, "max_env_steps": 3, "max_sampled_tokens": None,
    "max_turn_tokens": 8,
}  # fmt: skip
WORLD = "guess?max_turns=1&high=3"


def tiny(name: str = "one", **fields: Any) -> Benchmark:
    given: dict[str, Any] = {
        "recipe": "rloo", "baseline": "grpo", "environment": WORLD, "shared": SMALL,
        "settings": {"kl_coef": 0.0}, **fields,
    }  # fmt: skip
    return Benchmark(name=name, **given)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 2)


def test_the_area_is_the_mean_height() -> None:
    assert area([(0, 0), (1, 1), (3, 1)]) == pytest.approx(5 / 6)
    assert area([(2, 0.5)]) == 0.5


@pytest.mark.slow
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

    monkeypatch.setattr("quintain.methods.loops.on_policy.OnPolicy.train", never)
    assert arm_of(tiny(), perform(pair[0], tmp_path)) == first
    with pytest.raises(DataError, match="got no eval/beauty; name a metric"):
        arm_of(tiny(measure="eval/beauty"), folders[0])


@pytest.mark.parametrize(("after", "found"), [(0.5, {"hacking"}), (0.9, set[str]())])
def test_reward_that_rises_alone_is_an_alarm_with_two_evaluations_too(
    tmp_path: Path, after: float, found: set[str]
) -> None:
    paid = [0.1, 0.1, 0.1, 0.4, 0.4, 0.4, 0.9, 0.9, 0.9]
    rows = [{"train/reward": value} for value in paid]
    rows[-1]["eval/success"] = after
    with Run.create(tmp_path / "run", recipe="grpo", config={}) as run:
        assert hacked_between([{"eval/success": 0.5}, *rows], [{"eval/success": 0.5}, rows[-1]], run) == found
        assert hacked_between(rows, [rows[-1]], run) == set()


def test_a_start_that_goes_through_all_its_passes_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, whole = (trial(tiny(enough=enough), "method", seed=1) for enough in (ENOUGH, 1.0))
    assert usual == trial(tiny(), "method", seed=1)
    assert usual.name != whole.name and usual.start != whole.start
    told: list[float] = []

    def imitated(*_: Any, enough: float) -> float:
        told.append(enough)
        return 0.0

    monkeypatch.setattr("quintain_evidence.start.imitated", imitated)
    for found in (usual, whole):
        warm(found, tmp_path)
    assert told == [ENOUGH, 1.0]


def test_equal_runs_are_one_trial_and_what_makes_the_start_names_it() -> None:
    one, two = tiny(), tiny("two", recipe="grpo", settings={"std": "none"})
    assert trial(one, "baseline", seed=1).name == trial(two, "baseline", seed=1).name
    method = trial(two, "method", seed=1)
    assert method.name != trial(two, "baseline", seed=1).name
    assert method.start == trial(one, "method", seed=1).start
    assert method.start != trial(one, "method", seed=2).start
    other = trial(one, "method", seed=1, overrides={"imitation_lr": 0.1})
    erring = trial(one, "method", seed=1, overrides={"expert_noise": 0.3})
    elsewhere = trial(one, "method", seed=1, overrides={"task_offset": 9})
    assert len({other.start, method.start, erring.start, elsewhere.start}) == 4
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


@pytest.mark.slow
def test_a_stopped_trial_goes_on_and_a_broken_start_is_made_again(tmp_path: Path) -> None:
    found = trial(tiny(), "method", seed=0)
    (tmp_path / found.start / "start").mkdir(parents=True)
    assert (warm(found, tmp_path) / "config.json").exists()
    again = Trial(recipe=found.recipe, given=found.given, config=replace(found.config, seed=7), start_seed=0)
    assert again.start == found.start and again.name != found.name
    made = (tmp_path / found.start / "start" / "model.safetensors").stat().st_mtime_ns
    with Run.create(tmp_path / found.name, recipe=found.recipe, config=asdict(found.config)):
        pass
    folder = perform(found, tmp_path)
    assert arm_of(tiny(), folder).turns == 4
    assert (tmp_path / found.start / "start" / "model.safetensors").stat().st_mtime_ns == made


PARENT = """
import os, time
from quintain_evidence.sweep import workers
if __name__ == "__main__":
    with workers(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


def test_a_cold_start_is_the_methods_own_and_nothing_shown_is_no_start() -> None:
    cases = [
        ("afm", 200, True),
        ("grpo", 200, False),
        ("grpo", 0, True),
        ("sft", 200, False),
        ("agent_gen", 200, True),
        ("dare", 0, True),
    ]
    for name, shown, is_own in cases:
        found = find_method(name)
        config = build(found.config_class, {"environment": "sums", "demonstrations": shown}, name)
        assert makes_own_start(found.make(config), config) is is_own, (name, shown)


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals of POSIX")
@pytest.mark.slow
def test_a_method_without_a_policy_needs_no_start(tmp_path: Path) -> None:
    shared = {"steps": 2, "eval_every": 2, "eval_episodes": 4}
    benchmark = Benchmark(
        name="dare", recipe="dare", baseline="dare", environment="shelf?tools=40", shared=shared,
        baseline_settings={"ranks": "bm25"},
    )  # fmt: skip
    folders = [perform(trial(benchmark, arm, seed=0), tmp_path) for arm in ARMS]
    assert not list(tmp_path.glob("start-*"))
    assert [arm_of(benchmark, folder).updates for folder in folders] == [2, 2]
    assert all(0 <= arm_of(benchmark, folder).value <= 1 for folder in folders)


@pytest.mark.slow
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
        (["methods"], "bench methods needs --layer: got nothing; choose from objective, formula"),
        (["methods", "--layer", "leage"], "--layer: got 'leage'; did you mean 'league'?"),
        (["methods", "--layer", "league", "--only", "gipo"], "--only: got 'gipo'; did you mean 'gigpo'?"),
        (["methods", "--layer", "league", "--set", "x"], "--set: got 'x', which is no JSON"),
        (["methods", "--layer", "league", "--set", "[]"], "--set: got '[]'; write a JSON object"),
        (["methods", "--layer", "league", "--jobs", "0"], "--jobs"),
        (["methods", "--layer", "signature", "--family", "lr"], "--family: got 'lr'"),
    ],
)
def test_what_is_wrong_is_one_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *argv]) == UsageError.exit_code
    assert message in capsys.readouterr().err


def test_help_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    assert main(["bench"]) == UsageError.exit_code
    assert capsys.readouterr().out.count("usage: quintain bench methods") == 2


SCORED = {key: value for key, value in SMALL.items() if key not in ("tasks", "group_size")} | {"episodes": 2}
FITTED = {"tasks": 3, "group_size": 2, "answers": 2, "steps": 1, "held_out": 0.4, "labeller_errors": 1.0}
PAID = tiny(
    recipe="learning_to_summarize",
    baseline="ppo",
    shared=SCORED,
    settings={"reward_model": FITTED, "num_epochs": 1},
)


def test_a_table_in_the_place_of_a_reward_model_is_how_it_is_trained_on_the_start() -> None:
    chosen = trial(PAID, "method", seed=0)
    model = chosen.reward_model
    assert model is not None and chosen.config.reward_model == model.name
    assert (model.recipe, model.start, model.config.tasks) == ("reward_model", chosen.start, 3)
    assert trial(PAID, "baseline", seed=0).reward_model is None
    other = chosen.from_start(3, 300)
    assert other.reward_model is not None and other.config.reward_model == other.reward_model.name
    assert other.reward_model.start == other.start != chosen.start


@pytest.mark.slow
def test_an_arm_is_paid_by_the_reward_model_that_was_trained_for_it(tmp_path: Path) -> None:
    chosen = trial(PAID, "method", seed=0)
    folder, model = perform(chosen, tmp_path), chosen.config.reward_model
    assert (tmp_path / model / "model" / "model.safetensors").exists() and is_done(chosen, tmp_path)
    with Run.open(folder, writable=False) as run:
        assert run.config["reward_model"] == model
        assert "reward_model/score" in run.metrics()[-1]
