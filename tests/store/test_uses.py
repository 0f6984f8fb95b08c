"""What a step used: stale episodes, replay after a resume, signals; and branches that are stored as what they add."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quintain.errors import DataError
from quintain.store import faults, journal
from quintain.store.rows import episode_id
from quintain.store.run import Run
from quintain.types import Action, Branch, Completion, Signals, Trajectory, Turn, Use, as_content

Make = Callable[..., Trajectory]


def long(make: Make, num_turns: int = 6, index: int = 0) -> Trajectory:
    """Return an episode of turns that differ, with 50 tokens each."""
    turns = [
        Turn(
            observation=as_content(f"room {number}"),
            prompt_ids=tuple(range(number, number + 30)),
            completion=Completion(token_ids=tuple(range(20)), logprobs=(-0.5,) * 20, stop="stop"),
            action=Action(text=f"go {number}"),
        )
        for number in range(num_turns)
    ]
    return replace(make(index), turns=tuple(turns))


def branch(parent: Trajectory, turn: int, index: int, text: str = "turn back") -> Trajectory:
    """Return `parent` played on from `turn` with one turn more."""
    other = replace(parent.turns[-1], action=Action(text=text), prompt_ids=(1, 2))
    return replace(
        parent,
        turns=(*parent.turns[:turn], other),
        index=index,
        parent=Branch(episode=parent.id, turn=turn),
        id="",
    )


def recorded(run: Run, trajectory: Trajectory, step: int = 0) -> Trajectory:
    (name,) = run.append([trajectory], step=step)
    return replace(trajectory, id=name)


def used(run: Run, step: int | None = None) -> list[tuple[int, str]]:
    return [(at, use.episode) for at, use in run.uses(step)]


def save(folder: Path) -> None:
    (folder / "weights").write_text("w")


def test_an_episode_is_used_by_two_steps(run: Run, make: Make) -> None:
    first, second = run.append([make(0), make(1)], step=0)
    run.commit(0, {}, uses=[Use(episode=second), Use(episode=first)])
    (third,) = run.append([make(2)], step=1)
    run.commit(1, {}, uses=[Use(episode=third), Use(episode=first), Use(episode=first)])
    assert used(run) == [(0, second), (0, first), (1, third), (1, first), (1, first)]
    assert used(run, 1) == [(1, third), (1, first), (1, first)]
    assert used(run, 7) == []
    assert run.episode(first) == make(0) and run.episode(first).id == first
    assert len(list(run.trajectories())) == 3, "an episode is written once"


def test_without_a_list_a_step_used_what_was_collected_for_it(run: Run, folder: Path, make: Make) -> None:
    ids = run.append([make(1), make(0)], step=0)
    run.append([make(0)], step=0, phase="eval")
    run.commit(0, {})
    run.commit(0, {}, phase="eval")
    assert used(run) == [(0, ids[1]), (0, ids[0])], "in the order of their places"
    assert len(list(run.uses(phase="eval"))) == 1
    assert all(use.signals is None for _, use in run.uses())
    raw = sqlite3.connect(folder / "run.db")
    assert raw.execute("SELECT (SELECT count(*) FROM uses), sum(is_collected) FROM steps").fetchone() == (
        0,
        2,
    )
    raw.close()


def test_a_step_may_use_nothing(run: Run, make: Make) -> None:
    run.append([make(0)], step=0)
    run.commit(0, {}, uses=[])
    assert used(run) == [] and len(list(run.trajectories())) == 1


@pytest.mark.parametrize("name", ["", "zz", "00" * 10])
def test_an_episode_that_is_not_there_is_refused_and_nothing_is_committed(
    run: Run, make: Make, name: str
) -> None:
    with pytest.raises(DataError, match=f"got the id '{name}', which is not there"):
        run.commit(0, {}, uses=[Use(episode=name)])
    with pytest.raises(DataError, match="which is not there"):
        run.episode(name)
    assert run.metrics() == [] and used(run) == []


def test_an_episode_of_a_later_step_is_refused(run: Run, make: Make) -> None:
    (name,) = run.append([make(0)], step=4)
    with pytest.raises(DataError, match=f"step 3: got episode {name}, which was collected for step 4"):
        run.commit(3, {}, uses=[Use(episode=name)])


def test_signals_come_back_bit_for_bit_or_are_left_away(run: Run, make: Make) -> None:
    noise = np.random.default_rng(0).normal(size=4)
    given = Signals(advantages=noise.astype(np.float32), logprobs=noise)
    ids = run.append([make(0), make(1)], step=0)
    run.commit(0, {}, uses=[Use(episode=ids[0], signals=given), Use(episode=ids[1])])
    (_, first), (_, second) = run.uses()
    assert second.signals is None and first.signals is not None
    assert first.signals.weights is first.signals.returns is None
    assert first.signals.advantages is not None and given.advantages is not None
    assert first.signals.advantages.tobytes() == given.advantages.tobytes()
    assert first.signals.logprobs is not None and first.signals.logprobs.tobytes() == noise.tobytes()


def test_signals_that_do_not_fit_commit_nothing(run: Run, make: Make) -> None:
    (name,) = run.append([make(0)], step=0)
    with pytest.raises(DataError, match="advantages of an episode of 4 sampled tokens: got float32"):
        run.commit(0, {}, uses=[Use(episode=name, signals=Signals(advantages=np.zeros(3, np.float32)))])
    assert run.metrics() == []


def test_damaged_signals_are_left_out_counted_and_reported(run: Run, folder: Path, make: Make) -> None:
    (name,) = run.append([make(0)], step=0)
    run.commit(0, {}, uses=[Use(episode=name, signals=Signals(advantages=np.ones(4, np.float32)))])
    raw = sqlite3.connect(folder / "run.db")
    raw.execute("UPDATE uses SET signals = x'0011223344556677'")
    raw.commit()
    raw.close()
    assert [use.signals for _, use in run.uses()] == [None]
    assert run.num_quarantined == 1 and "signals of row 1 in step 0" in run.events()[-1]["message"]


@pytest.mark.parametrize("change", ["episode", "order", "signals"])
def test_a_repeated_step_that_used_something_else_is_drift(folder: Path, make: Make, change: str) -> None:
    signals = Signals(advantages=np.ones(4, np.float32))

    def step(run: Run, number: int, change: str) -> None:
        ids = run.append([make(0), make(1)], step=number)
        uses = [Use(episode=ids[0], signals=signals), Use(episode=ids[1])]
        if change == "episode":
            uses = uses[:1]
        elif change == "order":
            uses = uses[::-1]
        elif change == "signals":
            uses[0] = Use(episode=ids[0], signals=Signals(advantages=np.zeros(4, np.float32)))
        run.commit(number, {}, uses=uses)

    with Run.create(folder, recipe="r", config={}) as run:
        step(run, 0, "")
        step(run, 1, "")
    with Run.open(folder) as run:
        step(run, 0, "")
        assert [event["kind"] for event in run.events()] == ["resume"]
        step(run, 1, change)
        assert "step 1 of 'train' saw other trajectories" in run.events()[-1]["message"]


def buffer(run: Run, size: int) -> list[str]:
    """Return the newest episodes of the journal, as a replay buffer of `size` holds them."""
    return [trajectory.id for trajectory in run.trajectories(phase="train")][-size:]


def replay_step(run: Run, make: Make, step: int) -> Sequence[str]:
    """Collect two episodes and learn from the oldest two and the newest of the buffer."""
    run.append([make(index, text=f"step {step}") for index in range(2)], step=step)
    held = buffer(run, 6)
    used = [held[0], held[1], held[-1]]
    run.commit(step, {}, uses=[Use(episode=each) for each in used])
    run.checkpoint(step, save)
    return used


def test_a_replay_buffer_after_a_kill_and_a_resume(tmp_path: Path, make: Make) -> None:
    with Run.create(tmp_path / "whole" / "one", recipe="r", config={}) as run:
        want = [replay_step(run, make, step) for step in range(8)]
    folder = tmp_path / "killed" / "one"
    with Run.create(folder, recipe="r", config={}) as run:
        for step in range(3):
            replay_step(run, make, step)
    child = os.fork()
    if child == 0:
        with faults.inject("io:9:kill"), Run.open(folder) as run:
            while True:
                replay_step(run, make, run.next_step)
    assert os.waitpid(child, 0)[1] != 0
    with Run.open(folder) as run:
        assert 3 <= run.next_step < 7
        while run.next_step < 8:
            replay_step(run, make, run.next_step)
        assert "drift" not in [event["kind"] for event in run.events()]
    with Run.open(folder, writable=False) as run:
        assert [use.episode for _, use in run.uses()] == [each for step in want for each in step]
        assert all(run.episode(use.episode).task.id == "guess/train/7" for _, use in run.uses())


def test_an_episode_of_an_earlier_step_can_be_used_after_a_resume(folder: Path, make: Make) -> None:
    with Run.create(folder, recipe="r", config={}) as run:
        (old,) = run.append([make(0)], step=0)
        run.commit(0, {}, uses=[])
        run.checkpoint(0, save)
        (gone,) = run.append([make(0, text="right")], step=1)
        run.commit(1, {}, uses=[Use(episode=old), Use(episode=gone)])
    with Run.open(folder) as run:
        assert used(run) == []
        with pytest.raises(DataError, match="which is not there"):
            run.episode(gone)
        assert run.append([make(0)], step=1) == (gone,), "the id says where it was collected"
        run.commit(1, {}, uses=[Use(episode=old), Use(episode=gone)])
        assert used(run) == [(1, old), (1, gone)]
        assert run.episode(gone) == make(0)


def test_a_branch_is_stored_as_what_it_adds_and_read_whole(run: Run, folder: Path, make: Make) -> None:
    trunk = recorded(run, long(make))
    twig = recorded(run, branch(trunk, 4, 1))
    leaf = recorded(run, branch(twig, 5, 2, text="turn again"), step=1)
    for each in (trunk, twig, leaf):
        back = run.episode(each.id)
        assert back == each and (back.id, back.parent) == (each.id, each.parent)
    assert list(run.trajectories()) == [trunk, twig, leaf]
    assert [len(each.turns) for each in run.trajectories()] == [6, 5, 6]
    raw = sqlite3.connect(folder / "run.db")
    sizes = [row[0] for row in raw.execute("SELECT length(payload) FROM episodes ORDER BY row")]
    facts = raw.execute("SELECT parent, parent_turn, num_turns FROM episodes ORDER BY row").fetchall()
    raw.close()
    assert sizes == [6 * 70 * 4, 42 * 4, 42 * 4], "one turn of a branch"
    assert facts == [(None, None, 6), (1, 4, 5), (2, 5, 6)]


def test_a_branch_and_its_parent_may_be_appended_at_once_and_twice(run: Run, make: Make) -> None:
    name = episode_id("one", "train", 0, "g", 0).hex()
    trunk = replace(long(make), id=name)
    twig = branch(trunk, 2, 1)
    ids = run.append([trunk, twig], step=0)
    assert ids[0] == name
    assert run.append([trunk, twig], step=0) == ids
    run.commit(0, {})
    assert run.append([twig], step=0) == ids[1:]
    assert list(run.trajectories()) == [trunk, twig]


def test_two_branches_of_one_parent_are_appended_at_once(run: Run, make: Make) -> None:
    trunk = recorded(run, make(0))
    branches = [branch(trunk, 1, index, text) for index, text in ((1, "left"), (2, "right"))]
    ids = run.append(branches, step=0)
    assert [run.episode(each) for each in ids] == branches


@pytest.mark.parametrize("turn", [0, -1, 7, 3])
def test_a_branch_that_does_not_begin_with_its_parents_turns_is_refused(
    run: Run, make: Make, turn: int
) -> None:
    trunk = recorded(run, long(make))
    other = replace(branch(trunk, 3, 1), parent=Branch(episode=trunk.id, turn=turn))
    if turn == 3:
        other = replace(other, turns=(replace(other.turns[0], reward=0.5), *other.turns[1:]))
    with pytest.raises(DataError, match=f"at turn {turn}: got other turns than the 6 of its parent"):
        run.append([other], step=0)
    assert len(list(run.trajectories())) == 1


def test_a_branch_of_what_is_not_there_or_comes_later_is_refused(run: Run, make: Make) -> None:
    trunk = recorded(run, long(make), step=5)
    with pytest.raises(DataError, match="got a parent of step 5; it must be there before"):
        run.append([branch(trunk, 2, 1)], step=4)
    with pytest.raises(DataError, match="which is not there; append it first"):
        run.append([branch(replace(trunk, id="00" * 10), 2, 1)], step=5)


def test_a_branch_of_a_damaged_episode_is_left_out(run: Run, folder: Path, make: Make) -> None:
    trunk = recorded(run, long(make))
    recorded(run, branch(trunk, 4, 1))
    raw = sqlite3.connect(folder / "run.db")
    raw.execute("UPDATE episodes SET payload = x'00' WHERE row = 1")
    raw.commit()
    assert list(run.trajectories()) == [] and run.num_quarantined == 2
    raw.execute("DELETE FROM episodes WHERE row = 1")
    raw.commit()
    assert list(run.trajectories()) == [] and run.num_quarantined == 3
    raw.execute("UPDATE episodes SET parent = 2")
    raw.commit()
    raw.close()
    assert list(run.trajectories()) == [] and run.num_quarantined == 4
    assert "another parent" in run.events()[-1]["message"]


def test_parents_are_not_kept_without_end(run: Run, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_PARENTS", 1)
    trunks = [recorded(run, long(make, index=index)) for index in range(3)]
    twigs = [recorded(run, branch(trunk, 2, 10 + number)) for number, trunk in enumerate(trunks)]
    assert list(run.trajectories()) == [*trunks, *twigs]


def test_a_prompt_that_repeats_history_is_stored_once(run: Run, folder: Path, make: Make) -> None:
    whole = long(make)
    history = tuple(
        token for turn in whole.turns[:3] for token in turn.prompt_ids + turn.completion.token_ids
    )
    window = replace(whole.turns[5], prompt_ids=(*history, 7), starts_segment=True)
    after = replace(whole.turns[4], prompt_ids=(8,))
    trunk = recorded(run, replace(whole, turns=(*whole.turns[:5], window, after)))
    again = replace(window, prompt_ids=(*history, 7, *window.completion.token_ids, 9))
    twig = recorded(run, replace(branch(trunk, 6, 1), turns=(*trunk.turns[:6], again)))
    assert [run.episode(each.id) for each in (trunk, twig)] == [trunk, twig]
    raw = sqlite3.connect(folder / "run.db")
    sizes = [row[0] for row in raw.execute("SELECT length(payload) FROM episodes ORDER BY row")]
    raw.close()
    assert sizes == [4 * (5 * 50 + 1 + 20 + 1 + 20 + 7 * 20), 4 * (1 + 20 + 20)]


def test_a_preference_names_the_episode_that_was_rejected(run: Run, make: Make) -> None:
    good, bad, worse = (recorded(run, long(make, index=n)) for n in range(3))
    pairs = [(good, bad), (good, worse)]
    uses = [
        use for one, other in pairs for use in (Use(episode=one.id, rejected=other.id), Use(episode=other.id))
    ]
    run.commit(0, {}, uses=uses)
    assert [(use.episode, use.rejected) for _, use in run.uses(0)] == [
        (good.id, bad.id), (bad.id, ""), (good.id, worse.id), (worse.id, ""),
    ]  # fmt: skip
    recorded(run, long(make, index=3), step=1)
    run.commit(1, {}, uses=[replace(use, rejected="") for use in uses])
    raw = sqlite3.connect(run.folder / "run.db")
    hashes = [row[0] for row in raw.execute("SELECT batch_hash FROM steps")]
    raw.close()
    assert hashes[0] != hashes[1], "what was chosen over what is part of it"
    with pytest.raises(DataError, match="got the id 'gone', which is not there"):
        run.commit(2, {}, uses=[Use(episode=good.id, rejected="gone")])
