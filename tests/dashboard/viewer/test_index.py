"""The index equals the journal, follows it, and finds what is asked for."""

import sqlite3
from pathlib import Path

import pytest
from tests.build import make_episode, make_turn

from quintain.dashboard.viewer.index import Index, Query, words_of
from quintain.errors import UsageError
from quintain.store import Run
from quintain.types import Score, Trajectory


def ids(index: Index, **asked: object) -> list[str]:
    values = {"equal": {}, **asked}
    return [row["task"] for row in index.find(Query(**values))[0]]  # type: ignore[arg-type]


@pytest.fixture
def index(runs: Path, tmp_path: Path) -> Index:
    found = Index(runs / "one", tmp_path / "cache")
    with Run.open(runs / "one", writable=False) as run:
        found.update(run)
        while found.read_records(run, 3):
            pass
    return found


def test_facts_are_those_of_the_journal(index: Index, runs: Path) -> None:
    with Run.open(runs / "one", writable=False) as run:
        known = {row.trajectory.id: row for row in run.read_rows()}
    rows, total = index.find(Query(equal={}, limit=500))
    assert total == len(rows) == len(known) == 18
    for row in rows:
        trajectory = known[row["id"]].trajectory
        assert (row["step"], row["phase"]) == (known[row["id"]].step, known[row["id"]].phase)
        assert (row["turns"], row["tokens"]) == (len(trajectory.turns), trajectory.num_sampled)
        scored = isinstance(trajectory.outcome, Score)
        assert row["value"] == (trajectory.outcome.value if isinstance(trajectory.outcome, Score) else None)
        assert (row["owner"] is None) == scored


def test_filters(index: Index) -> None:
    assert index.find(Query(equal={"phase": "train"}))[1] == 10
    assert index.find(Query(equal={"phase": "train"}, first_step=2, last_step=2))[1] == 5
    assert index.find(Query(equal={}, outcome="failed"))[1] == 2
    assert index.find(Query(equal={"owner": "environment", "kind": "timeout"}))[1] == 2
    assert index.find(Query(equal={}, outcome="solved"))[1] == 3, (
        "one of each step, and one that was held out"
    )
    assert index.find(Query(equal={}, tool="look"))[1] == 16, "all but the two odd ones"
    assert index.find(Query(equal={}, term="found"))[1] == 16
    assert (
        index.find(Query(equal={}, seat="agent"))[1] == 18 and index.find(Query(equal={}, seat="b"))[1] == 0
    )


def test_words_are_found_as_they_stand_and_all_of_them(index: Index) -> None:
    assert index.find(Query(equal={}, words="red"))[1] == 6, "those of the branches and of what broke, too"
    assert index.find(Query(equal={}, words='"red door 1"'))[1] == 3
    assert index.find(Query(equal={}, words="red blue"))[1] == 2, "the branches have both"
    assert index.find(Query(equal={}, words='"door red"'))[1] == 0
    for odd in ('"', "a OR b", "NEAR(", "*", "said:red", "' OR 1=1 --"):
        index.find(Query(equal={}, words=odd))


def test_order_and_pages(index: Index) -> None:
    up = [row["tokens"] for row in index.find(Query(equal={}, sort="tokens", limit=500))[0]]
    down = [
        row["tokens"] for row in index.find(Query(equal={}, sort="tokens", is_descending=True, limit=500))[0]
    ]
    assert up == sorted(up) and down == sorted(up, reverse=True) and up[0] < up[-1]
    first, second = (index.find(Query(equal={}, limit=7, offset=offset))[0] for offset in (0, 7))
    assert len({row["id"] for row in (*first, *second)}) == 14
    for odd in ({"sort": "row; DROP TABLE episodes"}, {"outcome": "x"}, {"equal": {"id": "x"}}):
        with pytest.raises(UsageError, match="use one of"):
            index.find(Query(**{"equal": {}, **odd}))  # type: ignore[arg-type]


def test_groups_branches_and_uses(index: Index) -> None:
    rows = index.find(Query(equal={"task": "t/train/1"}, first_step=2, last_step=2))[0]
    first = next(row for row in rows if row["group"] == "0:t/train/1" and row["place"] == 0)
    around = index.neighbours(first)
    assert [row["place"] for row in around["group"]] == [0, 1]
    assert [row["group"] for row in around["children"]] == ["1:branch"]
    assert index.find_steps(first["row"]) == [2]
    second = around["group"][1]
    assert index.steps_with_pairs() == [2] and index.pairs(2) == [(first["id"], second["id"])]


def test_it_follows_what_is_written_and_what_is_superseded(runs: Path, tmp_path: Path) -> None:
    def play(index: int) -> Trajectory:
        return make_episode(make_turn((1,), shows="x"), task="late", group=f"g{index}")

    with Run.create(runs / "new", recipe="r", config={}) as writer:
        found = Index(runs / "new", None)
        with Run.open(runs / "new", writable=False) as reader:
            for step in range(3):
                writer.append([play(step)], step=step)
                writer.commit(step, {"train/success": 1.0})
                found.update(reader)
                assert found.find(Query(equal={}))[1] == step + 1

            def write(folder: Path) -> None:
                (folder / "x").write_text("x")

            writer.checkpoint(0, write)
        writer.finish("interrupted")
    with Run.open(runs / "new") as writer, Run.open(runs / "new", writable=False) as reader:
        assert writer.next_step == 1
        found.update(reader)
        assert [row["step"] for row in found.find(Query(equal={}))[0]] == [0], "the others were left behind"
        writer.append([play(1)], step=1)
        found.update(reader)
        assert [row["step"] for row in found.find(Query(equal={}))[0]] == [0, 1]


def test_it_is_kept_for_the_same_run_alone(runs: Path, tmp_path: Path) -> None:
    cache = tmp_path / "kept"
    first = Index(runs / "one", cache)
    with Run.open(runs / "one", writable=False) as run:
        first.update(run)
    first.close()
    again = Index(runs / "one", cache)
    assert again.find(Query(equal={}))[1] == 18, "nothing was read anew"
    again.close()
    file = next(cache.glob("*.db"))
    assert file.stat().st_mode & 0o077 == 0, "prompts are nobody else's"
    with Run.create(runs / "one", recipe="r", config={}, replace=True):
        pass
    assert Index(runs / "one", cache).find(Query(equal={}))[1] == 0
    file.write_bytes(b"no database at all, but a text that somebody wrote")
    broken = Index(runs / "one", cache)
    assert broken.find(Query(equal={}))[1] == 0, "it is only a cache"


def test_a_row_of_other_types_is_left_out(runs: Path) -> None:
    connection = sqlite3.connect(runs / "one" / "run.db")
    connection.execute("UPDATE episodes SET num_turns = 'many' WHERE row = 1")
    connection.execute("UPDATE episodes SET value = 'much' WHERE row = 2")
    connection.commit()
    connection.close()
    found = Index(runs / "one", None)
    with Run.open(runs / "one", writable=False) as run:
        found.update(run)
    assert found.find(Query(equal={}))[1] == 17


def test_what_is_searched_has_an_end() -> None:
    long = make_episode(*(make_turn((1,), shows="word " * 1000) for _ in range(20)))
    assert len(words_of(long)) == 20_000
