"""Steps that were left alone follow; what was changed afterwards is named, at the first step where it matters."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.time_travel.conftest import train

from quintain import api
from quintain.cli.main import main
from quintain.errors import ConfigError, StoreError, UsageError
from quintain.learning.sections import PolicySettings
from quintain.store.journal import Journal
from quintain.store.rows import write_rows
from quintain.store.run import Run
from quintain.store.schema import ROOT
from quintain.time_travel.differences import Difference
from quintain.time_travel.verify import Verification, verify_run
from quintain.types import Score

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.slow]


def digest(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix not in (".db-shm", ".db-wal")
    }


def execute(folder: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    connection = sqlite3.connect(folder / "run.db")
    with connection:
        for statement, values in statements:
            assert connection.execute(statement, values).rowcount > 0, statement
    connection.close()


def read_difference(verification: Verification) -> Difference:
    assert verification.difference is not None and not verification.follows
    return verification.difference


def change_metric(folder: Path, step: int, name: str, change: Callable[[float], float]) -> None:
    connection = sqlite3.connect(folder / "run.db")
    with connection:
        (text,) = connection.execute("SELECT metrics FROM steps WHERE step = ?", (step,)).fetchone()
        row = json.loads(text)
        row[name] = change(row[name])
        connection.execute("UPDATE steps SET metrics = ? WHERE step = ?", (json.dumps(row), step))
    connection.close()


def change_outcome(folder: Path, step: int) -> str:
    """Write an episode of `step` anew with the other outcome, as one that knows the format would; return its id."""
    with Run.open(folder, writable=False) as run:
        episode = next(iter(run.trajectories(step=step, phase="train")))
    assert isinstance(episode.outcome, Score)
    is_success = not episode.outcome.is_success
    last = replace(episode.turns[-1], reward=float(is_success))
    changed = replace(
        episode,
        outcome=Score(value=float(is_success), is_success=is_success),
        turns=(*episode.turns[:-1], last),
    )
    (row,) = write_rows([changed], step, "train", run=folder.name)
    values = dict(zip(ROOT, row, strict=True))
    sets = ", ".join(f"{name} = ?" for name in ROOT)
    execute(
        folder, (f"UPDATE episodes SET {sets} WHERE id = ?", (*values.values(), bytes.fromhex(episode.id)))
    )
    return episode.id


def test_a_run_that_was_left_alone_follows_and_is_only_read(small_run: Path) -> None:
    before = digest(small_run)
    whole = verify_run(small_run)
    assert whole.follows and (whole.first, whole.last, whole.base) == (0, 4, None)
    assert whole.num_steps == whole.num_weights == 5
    assert whole.num_recalled == 3 * 4 + 4 * 8, "three evaluations of four, four steps of eight"
    assert digest(small_run) == before
    assert "all 5 follow, the weights of 5 of them by their fingerprint" in str(whole)


def test_one_step_begins_with_the_newest_checkpoint_before_it(small_run: Path) -> None:
    one = verify_run(small_run, step=3)
    assert one.follows and (one.base, one.num_steps, one.num_recalled) == (2, 1, 8)
    assert verify_run(small_run, step=2).base == 0
    later = verify_run(small_run, since=3)
    assert later.follows and (later.first, later.last, later.num_steps) == (3, 4, 2)


def test_episodes_are_sampled_again_where_that_is_asked_for(small_run: Path) -> None:
    again = verify_run(small_run, step=3, resamples=True)
    assert again.follows and again.num_recalled == 0


def test_an_episode_with_another_outcome_is_named(run: Path) -> None:
    name = change_outcome(run, 3)
    difference = read_difference(verify_run(run))
    assert (difference.step, difference.what) == (3, "episodes") and name in difference.text
    assert read_difference(verify_run(run, step=3, resamples=True)).step == 3


def test_an_episode_that_was_changed_and_not_sealed_cannot_be_read(run: Path) -> None:
    execute(run, ("UPDATE episodes SET payload = payload || x'00' WHERE step = 2 AND phase = 'train'", ()))
    difference = read_difference(verify_run(run))
    assert (difference.step, difference.what) == (2, "episodes") and "cannot be read" in difference.text


def test_an_episode_that_is_gone_is_missed(run: Path) -> None:
    execute(run, ("DELETE FROM episodes WHERE step = 3 AND place = 1", ()))
    difference = read_difference(verify_run(run))
    assert (difference.step, difference.what) == (
        3,
        "episodes",
    ) and "the journal has no episode" in difference.text


@pytest.mark.parametrize(
    ("name", "step", "what"),
    [
        ("train/loss", 3, "loss"),
        ("train/grad_norm", 1, "gradient norm"),
        ("credit/advantage_std", 2, "advantages"),
        ("eval/success", 4, "metrics"),
        ("total/tokens", 2, "metrics"),
    ],
)
def test_a_metric_that_was_changed_is_named(run: Path, name: str, step: int, what: str) -> None:
    change_metric(run, step, name, lambda value: value + 1e-6)
    difference = read_difference(verify_run(run, since=step))
    assert (difference.step, difference.what) == (step, what) and difference.text.startswith(name)


def test_clocks_are_not_compared(run: Path) -> None:
    change_metric(run, 2, "time/step", lambda value: value + 1)
    assert verify_run(run, step=2).follows


def test_other_weights_are_found_where_all_else_is_the_same(run: Path) -> None:
    execute(run, ("UPDATE steps SET weights = ? WHERE step = 3", ("0" * 64,)))
    difference = read_difference(verify_run(run))
    assert (difference.step, difference.what) == (3, "weights") and "000000000000" in difference.text


def test_a_changed_seed_is_named(run: Path) -> None:
    file = run / "config.json"
    config = json.loads(file.read_text())
    config["config"]["seed"] += 1
    file.write_text(json.dumps(config))
    verification = verify_run(run)
    assert (read_difference(verification).step, read_difference(verification).what) == (0, "seeds")
    assert any("config.json (changed)" in note for note in verification.notes)


def test_another_torch_is_said_and_numbers_are_compared_up_to_rounding(run: Path) -> None:
    with Run.open(run, writable=False) as opened:
        here = opened.commits()[1].machine
    there = here.replace("torch ", "torch 1")
    execute(run, ("UPDATE meta SET value = ? WHERE value = ?", (there, here)))
    change_metric(run, 3, "train/loss", lambda value: value + 1e-6)
    verification = verify_run(run)
    assert verification.follows and verification.num_weights == 0
    assert any(there in note and "up to rounding" in note for note in verification.notes)
    with pytest.raises(UsageError, match="--resample: got steps that were sampled by"):
        verify_run(run, resamples=True)
    change_metric(run, 3, "train/grad_norm", lambda value: 2 * value + 1)
    assert read_difference(verify_run(run)).step == 3


def test_a_truncated_journal_is_said(run: Path) -> None:
    execute(run, ("DELETE FROM steps WHERE step = 4", ()), ("DELETE FROM episodes WHERE step = 4", ()))
    assert verify_run(run).last == 3, "what is left follows"
    with pytest.raises(UsageError, match=r"--step: got 4 for .*, whose steps are 1 to 3"):
        verify_run(run, step=4)
    execute(run, ("DELETE FROM steps WHERE step = 2", ()))
    difference = read_difference(verify_run(run))
    assert difference.step == 2 and "no such step" in difference.text
    file = run / "run.db"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(StoreError, match=r"damaged file|cannot be read|disk"):
        verify_run(run)


def test_a_checkpoint_that_does_not_verify_is_not_begun_with(run: Path) -> None:
    weights = next(run.glob("checkpoints/step-000002/**/weights-0.safetensors"))
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert verify_run(run, step=3).base == 0


def test_a_run_that_was_broken_off_and_resumed_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Run.commit

    def stop(run: Run, step: int, *given: Any, **named: Any) -> None:
        commit(run, step, *given, **named)
        if step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "commit", stop)
        train(tmp_path / "run")
    api.resume(tmp_path / "run", steps=6)
    verification = verify_run(tmp_path / "run", since=2)
    assert verification.follows and verification.last == 6
    assert any("6 from step" in note for note in verification.notes)


def test_a_run_of_several_policies_follows(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        environment="twocards?facts=1",
        lora_rank=4,
        seats={"B": "partner"},
        policies={"partner": PolicySettings(shares="policy", lora_rank=4)},
    )
    verification = verify_run(tmp_path / "run")
    assert verification.follows and verification.num_weights == 5


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        ("sft", {"batch_size": 4, "tasks": None, "group_size": None}),
        ("ppo", {"episodes": 4, "tasks": None, "group_size": None}),
        ("rft", {"steps": 2}),
    ],
)
def test_runs_of_other_loops_follow(tmp_path: Path, recipe: str, fields: dict[str, Any]) -> None:
    assert verify_run(train(tmp_path / "run", recipe, **fields)).follows


def test_what_cannot_be_verified_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        verify_run(run, step=1, since=2)
    with Run.create(tmp_path / "empty", recipe="collect", config={"environment": "guess"}):
        pass
    with pytest.raises(UsageError, match="got a run that trained nothing"):
        verify_run(tmp_path / "empty")
    assert main(["verify", str(run), "--step", "9"]) == 2
    assert "whose steps are 1 to 4" in capsys.readouterr().err


def test_a_run_of_somebody_else_is_not_carried_out(run: Path) -> None:
    file = run / "config.json"
    config = json.loads(file.read_text())
    config["config"]["environment"] = f"{__file__}:Env"
    file.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="verifying"):
        verify_run(run)


def test_the_command_line_says_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run), "--step", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["follows"] is True and told["base"] == 2 and told["num_steps"] == 1
    change_metric(run, 4, "train/loss", lambda value: value + 1)
    assert main(["verify", str(run), "--from", "3"]) == 1
    assert "step 4 does not follow: loss: train/loss is" in capsys.readouterr().out


def test_a_journal_is_copied_whole(small_run: Path, tmp_path: Path) -> None:
    with Run.open(small_run, writable=False) as one:
        one.copy_journal(tmp_path / "run.db")
        copy = Journal(tmp_path / "run.db", lambda *_: None, is_writable=False)
        assert [each.batch_hash for each in copy.commits("train")] == [
            each.batch_hash for each in one.commits().values()
        ]
        assert copy.digests(2) == one.digests(2) and len(one.digests(2)) == 12
        copy.close()
