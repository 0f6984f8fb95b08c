"""A step that is made again says what it was made of, and leaves a run that goes on as the first one did."""

import json
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn
from tests.time_travel.conftest import train

from quintain import api
from quintain.cli.main import main
from quintain.errors import UsageError
from quintain.store.run import Run
from quintain.time_travel.replay import GradientProbe, replay_step
from quintain.time_travel.verify import verify_run

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.slow
def test_the_parts_of_the_groups_add_up_to_the_gradient_of_the_step(small_run: Path) -> None:
    found = replay_step(small_run, 3)
    assert found.difference is None and found.base == 2 and found.folder is None
    assert len(found.groups) == 2 and {len(each.rewards) for each in found.groups} == {4}
    with Run.open(small_run, writable=False) as run:
        commit, before = run.commits()[3], run.commits()[2].weights
        uses = {use.episode: use.signals for _, use in run.uses(3)}
    assert found.weights == (before, commit.weights)
    parts = [each for each in found.groups if each.gradient is not None and each.along is not None]
    assert parts
    total = fsum(each.gradient * each.along for each in parts if each.gradient and each.along)
    assert total == pytest.approx(commit.metrics["train/grad_norm"], rel=1e-3)
    assert sum(each.tokens for each in found.groups) == sum(
        int((each.weights != 0).sum())
        for each in uses.values()
        if each is not None and each.weights is not None
    )
    for each in found.groups:
        assert each.successes == sum(reward == 1.0 for reward in each.rewards)
        assert each.collected == 3 and each.task in each.group


@pytest.mark.slow
def test_the_run_that_is_left_goes_on_as_the_first_did(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "there"
    assert main(["replay", str(small_run), "--step", "2", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"before: {out}@1   after: {out}@2" in told and "guess/train/" in told
    with Run.open(out, writable=False) as run:
        assert [each.step for each in run.checkpoints()] == [2, 1, 0] and run.last_step == 2
    api.resume(out)
    with Run.open(out, writable=False) as again, Run.open(small_run, writable=False) as first:
        assert again.weights() == first.weights()
        assert [each.batch_hash for each in again.commits().values()] == [
            each.batch_hash for each in first.commits().values()
        ]
    assert verify_run(out).follows
    with pytest.raises(UsageError, match="got a run of that name"):
        replay_step(small_run, 2, out=out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "fields"),
    [("sft", {"batch_size": 4}), ("dpo", {"batch_size": 4, "tasks": 8, "group_size": 4})],
)
def test_steps_of_other_loops_are_taken_apart(tmp_path: Path, recipe: str, fields: dict[str, Any]) -> None:
    given = {"tasks": None, "group_size": None, **fields}
    found = replay_step(train(tmp_path / "run", recipe, **given), 2)
    assert found.difference is None
    has_gradient = any(each.gradient is not None for each in found.groups)
    assert has_gradient is (recipe == "sft"), "a pair cannot be taken out of a loss that compares"


@pytest.mark.slow
def test_what_does_not_follow_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "config.json"
    config = json.loads(file.read_text())
    config["config"]["learning_rate"] *= 2
    file.write_text(json.dumps(config))
    assert main(["replay", str(run), "--step", "3", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["difference"]["what"] == "metrics" and told["step"] == 3


def test_a_step_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path)]) == 2
    assert "quintain replay needs --step or --episode: got both or neither" in capsys.readouterr().err


def test_a_turn_that_two_groups_have_is_of_neither() -> None:
    first = make_episode(make_turn((4, 5)), make_turn((6,)), group="a", id="00000001aa")
    second = make_episode(make_turn((4, 5)), make_turn((7,)), group="b", id="00000001bb")
    probe = GradientProbe.of([first, second])
    assert sorted(map(len, probe.turns.values())) == [1, 1, 2]
    assert probe.groups == {"00000001aa": "1|a", "00000001bb": "1|b"}
