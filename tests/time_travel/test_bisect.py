"""A fall is found by its rule, and a group whose reward was flipped is found by leaving it out."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.time_travel.conftest import train

from quintain import api
from quintain.cli.main import main
from quintain.errors import DataError, UsageError
from quintain.store.run import Run
from quintain.time_travel.bisect import list_rows
from quintain.time_travel.falls import find_fall, split_at_fall

LETTERS = f"{Path(__file__).with_name('letters.py')}:Letters"


def curve(
    *values: float, name: str = "eval/success", every: int = 10, episodes: int | None = None
) -> list[dict[str, Any]]:
    return [
        {"step": every * place, name: value, "eval/episodes": episodes} for place, value in enumerate(values)
    ]


def test_the_fall_is_where_all_that_follows_stays_below_what_was_before() -> None:
    fall = find_fall(curve(0.2, 0.5, 0.8, 0.8, 0.3, 0.4, episodes=64), "success")
    assert (fall.metric, fall.step, fall.seen) == ("eval/success", 30, 40)
    assert fall.before == pytest.approx(0.7) and fall.after == pytest.approx(0.35)
    assert fall.low == 40 and fall.updates == (28, 40)


def test_what_comes_back_is_no_fall() -> None:
    with pytest.raises(DataError, match="got none after which all of its 5 values stay"):
        find_fall(curve(0.7, 0.8, 0.2, 0.3, 0.8, episodes=64), "success")
    with pytest.raises(DataError, match="got none"):
        find_fall(curve(0.5, 0.5, 0.5, 0.48, episodes=64), "eval/success")
    with pytest.raises(DataError, match="got 2 values; a curve needs 3"):
        find_fall(curve(0.9, 0.1), "eval/success")


def test_the_rule_by_hand() -> None:
    assert split_at_fall([1.0, 1.0, 0.0], [0.1, 0.1, 0.1]) == 1
    assert split_at_fall([1.0, 0.9, 0.0], [0.6, 0.6, 0.6]) is None, "within two standard errors"
    assert split_at_fall([3.0, 1.0, 0.0], [0.1] * 3) == 0, "contrasts √(2/3)·2.5 = 2.04 and √(2/3)·2 = 1.63"
    assert split_at_fall([0.0, 1.0, 2.0], [0.1] * 3) is None


def test_training_is_looked_at_where_little_was_evaluated() -> None:
    rows = curve(0.9, 0.8, 0.9, 0.1, 0.2, 0.1, name="train/success", every=1)
    fall = find_fall(rows, "success")
    assert (fall.metric, fall.step, fall.seen, fall.low) == ("train/success", 2, 3, 3)
    assert fall.updates == (1, 2), "a training metric is of the weights before the update"
    rows = curve(0.9, 0.8, 0.9, 0.1, 0.2, 0.1, name="train/reward", every=1)
    assert find_fall(rows, "train/return").metric == "train/reward"
    with pytest.raises(UsageError, match="--metric: got 'loss'"):
        find_fall(rows, "loss")


@pytest.fixture(scope="module")
def poison_run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    request.getfixturevalue("small_run")  # one thread, a small corpus
    return train(
        tmp_path_factory.mktemp("poisoned") / "run", "rloo", environment=LETTERS, group_size=8, tasks=3, steps=7,
        eval_every=1, eval_episodes=64, learning_rate=0.03, demonstrations=32, imitation_epochs=4,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_poisoned_group_is_found(poison_run: Path) -> None:
    with Run.open(poison_run, writable=False) as run:
        fall = find_fall(run.metrics(), "success")
    assert fall.step in (2, 3) and fall.updates[0] <= 3 <= fall.updates[1]
    found = api.bisect(poison_run, steps=(2, 6), most=15, controls=3, episodes=64)
    assert [each.name for each in found.culprits] == ["3 letters/train/10"]
    worst = found.groups[0]
    assert worst is found.culprits[0] and worst.episodes == 8 and worst.change.mean > 0.1
    assert len(found.groups) == 15 and len(found.controls) == 3 and found.num_untried == 0
    assert found.noise < worst.change.mean
    assert [row[-1] for row in list_rows(found)] == ["did harm", *[""] * 17]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_of_many_groups_steps_are_left_out_first(
    poison_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--steps", "3:5", "--most", "3", "--controls", "1", "--episodes", "64", "--json"]
    assert main(["bisect", str(poison_run), *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    names = [each["name"] for each in told["groups"]]
    assert {"step 3", "step 4", "step 5"} <= set(names) and "3 letters/train/10" in names
    assert {"step 3", "3 letters/train/10"} == set(names[:2]), "both without the poisoned group"
    assert told["num_untried"] == 6 and told["first"] == 3 and told["fall"] is None


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_what_cannot_be_bisected_is_refused(small_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--steps: got 3:9 for"):
        api.bisect(small_run, steps=(3, 9))
    run = train(tmp_path / "run", "sft", batch_size=4, tasks=None, group_size=None)
    with pytest.raises(DataError, match="which collected no episodes"):
        api.bisect(run, steps=(1, 2))
