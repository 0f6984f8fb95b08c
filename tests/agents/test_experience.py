"""What was solved is found by its words, told briefly, and never to the task that it was."""

from dataclasses import replace

import pytest
from tests.build import make_episode, make_turn

from quintain.agents.experience import Experience, Solved, as_experience, likeness, most_alike, words
from quintain.types import (
    Action,
    Failure,
    Group,
    Score,
    ToolCall,
    Trajectory,
    as_content,
)

CALL = Action(tool_calls=(ToolCall(name="add", arguments={"n": 4}),))


def episode(task: str, begins: str, *said: str, value: float = 1.0) -> Trajectory:
    turns = tuple(
        make_turn(
            logprob=None,
            shows=begins if not number else "next",
            action=Action(text=text) if text != "call" else CALL,
        )
        for number, text in enumerate(said)
    )
    return make_episode(*turns, task=task, outcome=Score(value=value, is_success=value > 0), group=task)


def groups(*episodes: Trajectory) -> list[Group]:
    return [Group(task=t.task, trajectories=(t,)) for t in episodes]


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("open red lamp", "Open: red lamp.", 1.0),
        ("open red lamp", "open blue lamp", 2 / 3),
        ("red red lamp", "red", 2 / 5**0.5),
        ("lamp", "chair", 0.0),
        ("", "chair", 0.0),
        ("...", "", 0.0),
    ],
)
def test_likeness_is_the_cosine_of_counts(one: str, other: str, cosine: float) -> None:
    assert likeness(one, other) == likeness(other, one) == pytest.approx(cosine)


def test_the_most_alike_is_the_first_of_equals_and_shares_a_word() -> None:
    assert most_alike("open red lamp", ["open", "open red lamp", "Open red lamp!"]) == 1
    assert most_alike("open red lamp", ["sit", "blue chair"]) is None and most_alike("open", []) is None
    assert words("A a_b, a 1") == {"a": 2, "a_b": 1, "1": 1}


def test_experience_is_of_solved_episodes_the_shortest_of_each_task() -> None:
    known = Experience()
    assert known.find("x", "open red lamp") is None and len(known) == 0
    known.update(groups(
        episode("a", "Open red lamp", "look", "click red lamp"),
        episode("b", "Open blue chair", "click", value=0.0),
        episode("c", "Order blue chair", "click blue chair", "call"),
    ))  # fmt: skip
    known.update(
        groups(episode("a", "Open red lamp", "click red lamp"), episode("a", "Open red lamp", "x", "y"))
    )
    broken = replace(
        episode("d", "Open red lamp", "z"), outcome=Failure(owner="tool", kind="timeout", message="late")
    )
    known.update(groups(broken, episode("e", "nothing was done")))
    assert len(known) == 2
    found = known.find("x", "open red bag")
    assert found is not None and found[0] == pytest.approx(2 / 3)
    assert found[1] == Solved(task="a", begins="Open red lamp", actions=("click red lamp",))
    other = known.find("a", "Open red lamp")
    assert other is None, "its own episode would be the answer, and no other shares a word"
    told = known.find("x", "order a blue chair")
    assert told is not None and told[1].words() == (
        f"A task like this one was solved: Order blue chair Done: click blue chair; {told[1].actions[1]}."
    )
    assert "add" in told[1].actions[1]


def test_what_an_agent_said_to_itself_is_not_told() -> None:
    whole = episode("a", "Open", "think", "go")
    thought = replace(whole.turns[0], seat="agent/plan", observation=as_content("Plan."))
    acted = replace(whole.turns[1], observation=as_content("Open"))
    assert as_experience(replace(whole, turns=(thought, acted))) == Solved(
        task="a", begins="Open", actions=("go",)
    )


def test_no_task_is_ever_shown_its_own_episode() -> None:
    known = Experience()
    texts = {f"t{n}": f"open {n % 7} lamp {n % 3}" for n in range(100)}
    known.update(groups(*(episode(name, text, f"do {name}") for name, text in texts.items())))
    found = [(name, known.find(name, text)) for name, text in texts.items()]
    assert all(each is not None and each[1].task != name for name, each in found)
    assert all(each is not None and each[0] == pytest.approx(1.0) for _, each in found), (
        "there is an equal one"
    )
