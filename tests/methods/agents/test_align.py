"""ALIGN mines what an action needs from what failed, keeps what earns more, and refuses what cheats."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.build import make_episode, make_turn
from tests.methods.test_training import rows, train

from quintain.agents.interface import Interface, Interfaced, Step, load_interface
from quintain.errors import UsageError
from quintain.methods.agents.align import (
    FILE,
    Tried,
    find_phrase,
    get_kept,
    list_failures,
    mine_rules,
    name_verb,
    read_history,
    read_log,
    try_sources,
    write_interface,
)
from quintain.runs.collector import Collector
from quintain.safety.isolation import find_fault
from quintain.store.run import Run
from quintain.types import Stop

isolated = pytest.mark.skipif(bool(find_fault()), reason=find_fault())


def log(*actions: str) -> list[Step]:
    """An episode of actions, of which those with a - before them had no effect."""
    return [
        Step(each.lstrip("-"), "Nothing happens. A box.", has_worked=not each.startswith("-"))
        for each in actions
    ]


def test_what_works_only_after_another_one_needs_it() -> None:
    logs = [
        log("-open a", "-open b", "wave", "-open a", "knock", "open a", "open b"),
        log("knock", "open c", "look"),
    ]
    assert mine_rules(logs) == {"open": "knock"}
    assert mine_rules([log("-open", "-open", "knock", "open", "open")]) == {}, "two failures are few"
    assert mine_rules([log("-open", "-open", "-open", "knock", "open")]) == {}, "one effect is few"
    luck = ["-open"] * 19 + ["open", "knock", "open", "open"]
    assert mine_rules([log(*luck)]) == {"open": "knock"}, "1 of 20 is luck"
    assert mine_rules([log(*luck[1:])]) == {}, "1 of 19 is more than that"
    few = ["-open"] * 3 + ["knock"] + ["open"] * 2
    assert mine_rules([log(*few, *["-open"] * 8)]) == {"open": "knock"}, "a fifth after it"
    assert mine_rules([log(*few, *["-open"] * 9)]) == {}, "and less than that"
    assert mine_rules([log("-open", "-open", "-open", "-knock", "open", "open")]) == {}, (
        "what had no effect is not done"
    )


def test_of_equal_ones_that_with_most_tries_is_needed() -> None:
    first = log("-open", "-open", "-open", "wave", "knock", "open", "open")
    assert mine_rules([first]) == {"open": "knock"}, "the first by name"
    assert mine_rules([first, log("wave", "open")]) == {"open": "wave"}
    assert mine_rules([first, log("-open", "knock", "open")]) == {"open": "knock"}


def test_verbs_phrases_and_failures() -> None:
    assert [name_verb(each) for each in (" Go to it", "find[x y]", "", "look")] == ["go", "find", "", "look"]
    logs = [log("-open a", "-open a", "look"), [Step("x", "Nothing happens. Two.", has_worked=False)]]
    assert find_phrase(logs) == "Nothing happens" and find_phrase([log("look")]) == ""
    assert (
        find_phrase([[Step(each, f"{each}. It.", has_worked=False) for each in ("No", "Why", "Why")]])
        == "Why"
    )
    assert list_failures(logs) == ["open a -> Nothing happens. A box.", "x -> Nothing happens. Two."]


@isolated
def test_what_is_mined_is_an_interface_by_value() -> None:
    made = load_interface(
        write_interface({"open": "knock", "take": "go"}, "Nothing happens"), log("-open a", "take")
    )
    assert made.read_rules().text == "open needs knock first. take needs go first."
    assert made.explain("Open[a]", "Nothing happens. A box.") == "open needs knock first."
    assert made.explain("open a", "An open box.") == "" == made.explain("look", "Nothing happens.")
    made.close()


def test_a_log_is_what_was_done_and_what_was_seen_then() -> None:
    turns = (
        make_turn(shows="A box."),
        make_turn(shows="Nothing happens.", is_valid=False, reward=0.25),
        make_turn(shows="Thought.", seat="agent/plan"),
    )
    found = read_log(make_episode(*turns, stop=Stop.TERMINATED))
    assert [(s.observation, s.reward, s.is_done, s.has_worked) for s in found] == [
        ("Nothing happens.", 0.0, False, True), ("", 0.25, True, False),
    ]  # fmt: skip
    assert not read_log(make_episode(*turns, stop=Stop.MAX_TURNS))[-1].is_done


@isolated
def test_the_best_is_kept_a_tie_keeps_the_old_one_and_who_cheats_is_in_no_race() -> None:
    old, same, new = (write_interface({"open": need}, "No") for need in ("wave", "turn", "knock"))
    pays = new.replace("return observation, reward, done", "return observation, reward + 1, done")
    seen: list[str] = []

    def race(each: Sequence[Interface | None]) -> list[float]:
        seen.extend("" if one is None else one.source for one in each)
        return [0.5, 0.5, 0.75][: len(each)]

    tried = try_sources([same, pays, "import os", new, old, same], old, log("-open"), race)
    assert seen == [old, same, new]
    assert [(each.score, each.is_kept) for each in tried[:3]] == [(0.5, False), (0.5, False), (0.75, True)]
    assert [each.fault.partition(";")[0] for each in tried[3:]] == [
        "interface: got a reward of 1.5 where the environment paid 0.5", "interface: got an import in line 1",
    ]  # fmt: skip
    assert get_kept(tried) == new and get_kept([]) == ""
    assert try_sources([same], old, [], lambda each: [0.5, 0.5])[0].is_kept
    assert try_sources([same], "", [], lambda each: [0.0, 0.5])[0] == Tried(source="", score=0.0)
    with pytest.raises(UsageError):
        try_sources([], pays, [], lambda each: [0.0])
    on_eggs = pays.replace("reward + 1", "reward + action.count('egg')")
    refused = try_sources([on_eggs], "", log("take egg"), lambda each: [0.0] * len(each))[1]
    assert refused.fault.startswith("interface: got a reward of 1"), "what only recorded steps find out"


@pytest.mark.slow
@isolated
def test_a_resumed_run_knows_its_interfaces_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(
        _self: Collector, told: str, questions: Sequence[str], *, seed: int, max_tokens: int
    ) -> list[str]:
        asked.extend(questions)
        good = write_interface({"guess": f"look{seed % 97}"}, "no")
        return [f"Well:\n```python\n{good}\n```", "I would look."][: len(questions)]

    monkeypatch.setattr(Collector, "ask", answer)
    whole = train("align", tmp_path / "whole", steps=2, tasks=2, written=2, environment="guess")
    with Run.open(whole) as run:
        history = read_history(run)
        assert [bool(each.fault) for each in history] == [False, False, True] * 2
        assert len({*run.weights().values()}) == 1, "no weight changed"
        assert len(read_history(run, before=2)) == 3
        played = [t.group for t in run.trajectories(step=1, phase="train")]
    assert len(played) == 2 + 2 * 2 and len(set(played)) == 6, "played once, and raced twice on other tasks"
    kept = get_kept(history)
    assert (whole / FILE).read_text() == kept
    made = Interfaced(None, file=str(whole / FILE)).interface if kept else None  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert (made.source if made else "") == kept
    assert [row.get("align/refused") for row in rows(whole)][-1] == 1.0
