"""Steps of runs: the best is kept beside the newest, and named wherever a model is."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.test_training import Coin, config_of, interrupting, train, weights

from quintain import api
from quintain.errors import ModelError, StoreError, UsageError
from quintain.learning.saved import (
    BEST,
    START,
    find_model,
    find_saved,
    find_step,
    list_steps,
    load_policy,
    load_saved,
    tokenizer_folder,
)
from quintain.methods.find import find_method
from quintain.models.fingerprint import fingerprint
from quintain.models.heads import FILE, ValueHead
from quintain.models.load import load
from quintain.runs.context import TrainingContext
from quintain.store.best import best_step
from quintain.store.run import Run
from quintain.warm_start.demonstrations import harness_of, place_data
from quintain.warm_start.run_notes import find_trained_format

assert Coin
pytestmark = pytest.mark.usefixtures("quick")
KINDS: dict[str, dict[str, Any]] = {
    "grpo": {"tasks": 2, "group_size": 2},
    "sft": {"batch_size": 3},
    "rest": {"tasks": 2, "group_size": 2},
    "archer": {"tasks": 2, "group_size": 2},
}
"""A method of each kind of loop."""
SCRIPT = (0.25, 0.5, 0.75, 0.75, 0.5, 0.25)
"""Held-out success after each step; of the two best steps the earlier is kept."""


def scripted(monkeypatch: pytest.MonkeyPatch, script: Sequence[float] = SCRIPT) -> None:
    """Let evaluations find what `script` says."""
    evaluate: Callable[..., dict[str, float]] = TrainingContext.evaluate

    def found(context: TrainingContext, step: int) -> dict[str, float]:
        row = {**evaluate(context, step), "eval/return": 0.0}
        return {**row, "eval/success": script[step], "eval/low": 0.0, "eval/high": 1.0}

    monkeypatch.setattr(TrainingContext, "evaluate", found)


def kept(folder: Path) -> list[int]:
    return sorted(int(place.name.removeprefix("step-")) for place in (folder / "checkpoints").glob("step-*"))


@pytest.mark.slow
@pytest.mark.parametrize("method", KINDS)
def test_the_best_checkpoint_is_kept_beside_the_newest(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch)
    folder = train(method, tmp_path / "run", steps=5, eval_every=1, eval_episodes=2, **KINDS[method])
    assert kept(folder) == [2, 4, 5]
    with Run.open(folder, writable=False) as run:
        assert run.best_step == 2 and list_steps(run) == [0, 2, 4, 5]
        known = run.weights()
    for step, name in ((2, BEST), (2, "2"), (5, "5"), (0, "0")):
        saved = find_saved(f"{folder}@{name}")
        assert saved is not None and saved.step == step
        assert fingerprint(load_policy(f"{folder}@{name}").model) == known[step]
    assert fingerprint(load_policy(str(folder)).model) == known[5]


@pytest.mark.slow
def test_a_run_that_goes_on_keeps_the_same_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    fields = {"steps": 5, "eval_every": 1, "eval_episodes": 2, **KINDS["grpo"]}
    whole = train("grpo", tmp_path / "whole", **fields)
    with monkeypatch.context() as patch:
        interrupting(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            train("grpo", tmp_path / "stopped", **fields)
    stopped = tmp_path / "stopped"
    assert kept(stopped) == [2, 3, 4]
    config = config_of("grpo", **fields)
    with Run.open(stopped) as run:
        find_method("grpo").make(config).train(run, config)
    assert kept(stopped) == kept(whole) == [2, 4, 5]
    assert weights(stopped / "model") == weights(whole / "model")
    found = [load_policy(f"{folder}@best").model for folder in (whole, stopped)]
    assert fingerprint(found[0]) == fingerprint(found[1])


def test_the_best_step_of_a_curve() -> None:
    def curve(name: str, *values: float, **more: float) -> list[dict[str, float]]:
        return [{"step": step, name: value, **more} for step, value in enumerate(values)]

    assert best_step([]) is best_step([{"step": 0, "train/loss": 1.0}]) is None
    assert best_step(curve("eval/success", 0.2, 0.7, 0.7, 0.1)) == 1
    assert best_step(curve("eval/loss", 3.0, 1.0, 1.0, 2.0)) == 1
    assert best_step(curve("eval/mrr", 0.1, 0.4, 0.3)) == 1
    assert best_step([*curve("eval/success", 0.2, 0.7), {"step": 2, "eval/loss": 0.0}]) == 1
    tied = [{"step": k, "eval/success": 0.5, "eval/return": value} for k, value in enumerate((1, 3, 3, 2))]
    assert best_step(tied) == 1, "of equal success the higher return, of equal returns the earlier"
    assert best_step([{"step": 0, "eval/success": None}, {"step": 1, "eval/success": 0.0}]) == 1


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of five steps, the third of which (step 2) was best; in a folder ``runs``, which a test works beside."""
    scripted(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return train("grpo", Path("runs/a"), steps=5, eval_every=1, eval_episodes=2, **KINDS["grpo"])


def test_a_step_that_is_not_kept_is_refused_with_those_that_are(finished: Path) -> None:
    with pytest.raises(ModelError, match=r"a@3': got step 3, which is not kept; .*: 0, 2 \(best\), 4, 5"):
        find_saved("runs/a@3")
    with pytest.raises(
        UsageError, match=r"got the step 'newest'; the steps that are kept: 0, 2 \(best\), 4, 5"
    ):
        find_saved("runs/a@newest")
    with pytest.raises(UsageError, match="got the step '999"):
        find_saved("runs/a@" + "9" * 5000)
    with pytest.raises(UsageError, match="got 'runs/b', which is no run"):
        find_saved("runs/b@best")
    assert find_saved("owner/name") is find_saved("runs/a") is find_saved("http://me@host/v1?model=m") is None
    file = finished / "checkpoints" / "step-000002" / "weights-0.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"a@best': got a checkpoint that cannot be used: weights-0"):
        find_saved("runs/a@best")


def test_a_run_in_which_nothing_was_held_out_has_no_best(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", recipe="sft", config={}) as run:
        for step in range(3):
            run.commit(step, {"train/loss": 1.0})
            run.checkpoint(step, lambda folder: (folder / "file").touch())
        assert run.best_step is None and list_steps(run) == [1, 2]
        with pytest.raises(ModelError, match=r"nothing was held out, so that none is the best.*: 1, 2"):
            find_step(run, BEST)


@pytest.mark.slow
def test_a_run_begins_with_a_step_of_another(finished: Path) -> None:
    with Run.open(finished, writable=False) as run:
        known = run.weights()[2]
    for name in ("runs/a@best", "a@best", "a@2"):
        config = place_data(config_of("grpo", model=name), Path("runs"))
        assert config.model == f"{finished.absolute()}@2", "where the run goes on, best may be another step"
        assert find_trained_format(config.model) == find_trained_format(str(finished)) != ""
    other = train(
        "grpo", Path("runs/b"), model=f"{finished}@best", demonstrations=0, steps=1, **KINDS["grpo"]
    )
    assert fingerprint(load(str(other / START)).model) == known
    assert place_data(config_of("grpo", model="a"), Path("runs")).model == str(finished.absolute() / "model")
    assert place_data(config_of("grpo", model="tiny"), Path("runs")).model == "tiny"


@pytest.mark.slow
def test_a_policy_of_a_step_is_a_folder_where_one_is_needed(finished: Path, tmp_path: Path) -> None:
    folder = Path(find_model("a@best", Path("runs")))
    assert folder.parent == tmp_path / "home" / ".cache" / "quintain" / "models"
    assert folder.name.startswith("a@2-") and find_model("runs/a@2") == str(folder)
    assert fingerprint(load(str(folder)).model) == fingerprint(load_policy("runs/a@2").model)
    assert find_model("a@0", Path("runs")) == str(finished.absolute() / START)
    assert find_model("runs/a") == str(finished.absolute() / "model")
    assert tokenizer_folder("a@best", Path("runs")) == tokenizer_folder("runs/a") == finished / START
    config = config_of("grpo")
    policies = {"reference": replace(config.main_policy(), model="a@2")}
    assert place_data(replace(config, policies=policies), Path("runs")).policies["reference"].model == str(
        folder
    )
    (finished / "model" / "config.json").unlink()
    (finished / "model").rename(tmp_path / "elsewhere")
    with pytest.raises(
        ModelError, match=r"not finished; quintain resume .* name a step as in a@best \(the steps"
    ):
        find_model("runs/a")


@pytest.mark.slow
def test_the_harness_and_environment_of_a_step_are_those_of_its_run(finished: Path) -> None:
    assert harness_of(f"{finished}@best") == harness_of(finished)
    assert api.environment_of(f"{finished}@best") == api.environment_of(finished)
    with pytest.raises(UsageError, match="name one with --environment"):
        api.environment_of("owner/name@best")


@pytest.mark.slow
def test_the_value_head_of_a_step_comes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = train("ppo", tmp_path / "run", steps=2, eval_every=1, eval_episodes=2, episodes=4)
    saved = find_saved(f"{folder}@1")
    assert saved is not None
    head = load_saved(saved)[1]
    assert isinstance(head, ValueHead) and not torch.equal(head.linear.bias, torch.zeros(1))
    place = Path(find_model(f"{folder}@1"))
    assert (place / FILE).is_file()
    again = ValueHead.of(head.linear.in_features, place)
    assert all(
        torch.equal(one, other) for one, other in zip(head.parameters(), again.parameters(), strict=True)
    )
