"""DynaSaur keeps functions of solved training episodes, gives them to later ones, and changes no weight."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.build import make_episode, make_group, make_turn
from tests.methods.test_training import config_of, rows, train

from quintain.agents.library import load_library
from quintain.errors import ConfigError
from quintain.methods.agents import dynasaur
from quintain.methods.agents.dynasaur import FILE, Growth, cells_of
from quintain.methods.find import find_method
from quintain.safety.isolation import find_fault
from quintain.store.run import Run
from quintain.types import Action, Score, Task, ToolCall, Trajectory

TASK = Task(id="t/train/0", environment="t", seed=0)
DEFINE = "def look(): return act('look')"


def episode(*codes: str, is_success: bool = True, task: Task = TASK) -> Trajectory:
    turns = [make_turn(action=Action(text=code)) for code in codes]
    outcome = Score(value=float(is_success), is_success=is_success)
    return replace(make_episode(*turns, task=task), outcome=outcome)


def grow(*episodes: Trajectory) -> dict[str, float]:
    growth = Growth(9)
    growth.tools = frozenset({"act"})
    growth.update([make_group(each) for each in episodes])
    return {entry.id: entry.value for entry in growth.library.bank.entries}


def test_solved_training_episodes_alone_are_learned_from_in_order() -> None:
    held = replace(TASK, id="t/eval/0", split="eval")
    assert grow(episode(DEFINE)) == {"look": 0}
    assert grow(episode(DEFINE), episode("look()"), episode("look()", is_success=False)) == {"look": 1}
    assert grow(episode(DEFINE, is_success=False)) == grow(episode(DEFINE, task=held)) == {}
    assert grow(episode(DEFINE), episode(DEFINE, "look()")) == {"look": 0}, "its own is none of the library's"
    assert grow(episode(DEFINE), episode(DEFINE.replace("'look'", "'see'"))) == {"look": 0, "look_2": 0}


def test_what_could_not_be_carried_out_is_not_kept() -> None:
    call = Action(tool_calls=(ToolCall(name="guess", arguments={"number": 3}),))
    turns = (
        make_turn(action=Action(text="a = 1")),
        make_turn(action=Action(text="b = 2"), is_valid=False),
        make_turn(action=Action(text="c = 3", error="no block")),
        replace(make_turn(action=Action(text="think")), seat="agent/plan"),
        make_turn(action=call),
    )
    assert cells_of(make_episode(*turns)) == ["a = 1", "print(guess(number=3))"]


def test_an_agent_that_writes_no_code_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"agent: got window\+text, which writes no functions; end it with code"
    ):
        config_of("dynasaur", agent="window+text").check()
    config_of("dynasaur", agent="window?turns=2+code?shown=3").check()


@pytest.mark.skipif(bool(find_fault()), reason=find_fault())
def test_a_resumed_run_has_its_library_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(trajectory: Trajectory) -> list[str]:
        return [f"def f{trajectory.task.seed % 97}(x): return x", "known(1)"]

    monkeypatch.setattr(dynasaur, "cells_of", write)
    monkeypatch.setattr(Trajectory, "is_success", property(lambda _: True))
    known = tmp_path / "known.jsonl"
    growth = Growth(9)
    growth.library.learn(TASK, ["def known(x): return x"], set())
    growth.library.bank.save(known)
    sizes = {"tasks": 2, "environment": "guess", "agent": f"code?library={known}", "eval_every": 1}
    whole = train("dynasaur", tmp_path / "whole", steps=2, **sizes)
    part = train("dynasaur", tmp_path / "part", steps=1, **sizes)
    with Run.open(part) as run:
        config = config_of("dynasaur", steps=2, **sizes)
        find_method("dynasaur").make(config).train(run, config)
    libraries = [load_library(folder / FILE) for folder in (whole, part)]
    assert libraries[0].bank.digest() == libraries[1].bank.digest()
    entries = libraries[0].bank.entries
    assert len(entries) == 5 and entries[0].value == 4, "two of each step, and the one that was there"
    assert all("/train/" in entry.source for entry in entries)
    with Run.open(whole, writable=False) as run:
        assert len({*run.weights().values()}) == 1, "no weight changed"
    assert [row.get("dynasaur/functions") for row in rows(whole)][-2:] == [3.0, 5.0]
