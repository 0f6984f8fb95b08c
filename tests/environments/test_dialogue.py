from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from quintain.environments.dialogue import (
    LEAVES,
    STOP,
    Call,
    Line,
    Persona,
    Reply,
    Scenario,
    Service,
    Speaker,
    Talk,
    UserFault,
    Wanted,
    judge,
)
from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.tools import GraderFault
from quintain.errors import DataError
from quintain.rewards.execution import basis_reward, is_stated
from quintain.types import Action, Task, ToolSpec, as_text

ADD = Call(name="add", arguments={"number": 3})
TAP = Call(name="tap", by="user")


@dataclass
class Counter:
    """A total that the agent adds to and a lamp that the user switches."""

    total: int = 0
    lamp: bool = False
    broken: bool = False

    def call(self, call: Call) -> Reply:
        if call.name == "tap" and call.by == "user":
            self.lamp = not self.lamp
            return Reply("the lamp is on" if self.lamp else "the lamp is off")
        if call.name == "look":
            return Reply(str(self.total))
        if call.name != "add" or self.broken:
            return Reply("Error: no.", failed=True)
        self.total += call.arguments["number"]
        return Reply("added")

    def writes(self, call: Call) -> bool:
        return call.name in ("add", "tap")

    def digests(self) -> tuple[str, ...]:
        return (str(self.total), str(self.lamp))

    def holds(self, assertion: Mapping[str, Any]) -> bool:
        if assertion == {"breaks": True} and not self.total:
            raise GraderFault("assertion: got no total; add something")
        return self.total > 0 if "breaks" in assertion else self.lamp == assertion["lamp"]


@dataclass(eq=False)
class Board(Service):
    """Serve."""

    name = "board"
    wanted: Wanted = field(default_factory=lambda: Wanted(basis=("database",), calls=(ADD,)))
    user: Speaker = field(
        default_factory=lambda: Scenario(first="Add 3.", facts="It is 3.", tools=("tap", "tap_twice"))
    )
    breaks: bool = False
    max_turns: int = 4

    def open(self, task: Task) -> Talk:
        self.domain = Counter()
        return Talk(
            domain=self.domain, reference=Counter(broken=self.breaks), wanted=self.wanted, user=self.user
        )

    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(
            ToolSpec(name=name, description="", parameters={"type": "object"}) for name in ("add", "look")
        )


def play(board: Board, *actions: Action) -> Any:
    begin(board, board.task("train", 0))
    results = [advance(board, action) for action in actions]
    return results[-1]


def say(text: str) -> Action:
    return Action(text=text)


def test_the_database_decides_and_looking_is_free() -> None:
    done = play(Board(), tool_action("look"), tool_action("add", number=3), say("All is done."))
    assert (done.reward, done.is_success, done.is_terminated) == (1.0, True, True)
    assert done.reward_terms == {"database": 1.0}
    again = play(Board(), tool_action("add", number=1), tool_action("add", number=2), say("All is done."))
    assert again.reward == 1.0, "another way to the same state"
    assert (
        play(Board(), tool_action("add", number=3), tool_action("add", number=3), say("All done.")).reward
        == 0.0
    )
    assert play(Board(), say("All is done.")).reward == 0.0


def test_the_reward_is_a_product_over_the_basis() -> None:
    wanted = Wanted(
        basis=("database", "assertions", "actions", "outputs"),
        calls=(ADD, TAP),
        assertions=({"lamp": True},),
        outputs=("10",),
    )
    right = (tool_action("add", number=3), say("Tap. It costs 10."), say("All is done."))
    done = play(Board(wanted=wanted), *right)
    assert done.reward == 1.0 and set(done.reward_terms) == set(wanted.basis)
    for spoiled in (
        (right[1], right[2]),
        (right[0], say("It costs 10."), right[2]),
        (right[0], say("Tap. It costs 100."), right[2]),
        (right[0], say("tap twice, 10"), right[2]),
    ):
        assert play(Board(wanted=wanted), *spoiled).reward == 0.0


def test_the_users_tools_are_used_unseen_and_told() -> None:
    board = Board(max_turns=9)
    told = play(board, say("Please tap."))
    assert as_text(told.observation) == "tap: the lamp is on"
    assert board.domain.lamp
    unknown = advance(board, tool_action("tap"))
    assert not unknown.is_valid and "there is no tool tap" in as_text(unknown.observation), (
        "the agent has no such tool"
    )


def test_a_user_who_never_stops_gets_an_end() -> None:
    @dataclass
    class Endless:
        def opening(self) -> str:
            return f"Hello {STOP}"

        def reply(self, lines: Sequence[Line]) -> str | Call:
            return "And then?"

    board = Board(user=Endless())
    assert as_text(begin(board, board.task("train", 0))) == "Hello", "who stops at once has not spoken"
    done = play(board, tool_action("add", number=3), *[say("Yes.")] * 3)
    assert done.is_truncated and done.is_success is False and done.reward == 0.0
    assert as_text(done.observation) == "The talk is over: the user did not end it within 4 turns."


def test_a_user_who_only_calls_tools_is_a_fault() -> None:
    @dataclass
    class Tapping:
        def opening(self) -> str:
            return "Hello"

        def reply(self, lines: Sequence[Line]) -> str | Call:
            return TAP

    with pytest.raises(
        UserFault, match=r"simulated user at board: got 12 calls of its tools and no word"
    ) as found:
        play(Board(user=Tapping()), say("Hello."))
    assert found.value.kind == "user_loops"


def test_a_reference_that_fails_judges_mismatches_alone() -> None:
    with pytest.raises(GraderFault, match="got the failing call add"):
        play(Board(breaks=True), say("All is done."))
    assert play(Board(breaks=True), tool_action("add", number=3), say("All is done.")).reward == 0.0


def test_an_assertion_that_breaks_does_not_hold_where_it_holds_of_the_reference() -> None:
    wanted = Wanted(basis=("assertions",), calls=(ADD,), assertions=({"breaks": True},))
    assert play(Board(wanted=wanted), say("All is done.")).reward == 0.0
    assert play(Board(wanted=wanted), tool_action("add", number=1), say("All is done.")).reward == 1.0
    with pytest.raises(GraderFault):
        play(Board(wanted=Wanted(basis=("assertions",), assertions=({"breaks": True},))), say("All is done."))


def test_judging_changes_nothing() -> None:
    talk = Board().open(Task(id="board/train/0", environment="board", seed=1))
    talk.domain.call(ADD)
    before = talk.domain.digests()
    assert judge(talk, [ADD], []) == {"database": True}
    assert talk.domain.digests() == before


def test_idle_tasks_are_found() -> None:
    writes = Counter().writes
    assert Wanted(basis=("database",), calls=(Call(name="look"),)).is_idle(writes)
    assert Wanted(basis=("database", "outputs")).is_idle(writes)
    assert not Wanted(basis=("database", "outputs"), outputs=("10",)).is_idle(writes)
    assert not Wanted(basis=("database",), calls=(ADD,)).is_idle(writes)
    assert Wanted(basis=("database",), outputs=("10",)).is_idle(writes), (
        "outputs that are not judged ask nothing"
    )


def test_compared_arguments_are_all_that_must_be_alike() -> None:
    wanted = Call(name="add", arguments={"number": 3, "note": "x"}, compared=("number",))
    assert wanted.matches(Call(name="add", arguments={"number": 3}))
    assert not wanted.matches(Call(name="add", arguments={"number": 4}))
    assert not wanted.matches(Call(name="add", arguments={"number": 3}, by="user"))
    assert not ADD.matches(Call(name="add")), "fewer arguments are another call"


def test_the_basis_needs_a_check() -> None:
    assert basis_reward({"database": True, "outputs": False}) == 0.0
    with pytest.raises(DataError, match="basis of a reward: got no check"):
        basis_reward({})


@pytest.mark.parametrize(
    ("output", "text", "expected"),
    [
        ("10", "That is 100.", False),
        ("10", "That is 10, sir.", True),
        ("1000", "It costs $1,000.", True),
        ("54.0", "Pay 54", True),
        ("54.04", "Pay 54.4", False),
        ("Red Lamp", "the red lamp!", True),
        ("red lamp", "a red, old lamp", False),
        ("", "anything", False),
    ],
)
def test_outputs_are_whole_words(output: str, text: str, expected: bool) -> None:
    assert is_stated(output, ["Hello.", text]) is expected


def test_who_mishears_says_the_same_again_and_never_twice() -> None:
    persona = Persona(mishears=1.0)
    lines: list[Line] = [("user", "I want a lamp.")]
    said: list[str] = []
    for number in range(1, 5):
        lines.append(("agent", f"question {number}"))
        said.append(persona.reply(lines, 0, lambda understood: f"answer to {understood[-1][1]}"))
        lines.append(("user", said[-1]))
    assert said == ["I want a lamp.", "answer to question 2", "answer to question 2", "answer to question 4"]


def test_misheard_messages_are_not_understood_later() -> None:
    persona = Persona(mishears=1.0)
    lines: list[Line] = [("user", "A"), ("agent", "one"), ("user", "A"), ("agent", "two")]
    assert (
        persona.reply(lines, 0, lambda understood: repr(list(understood)))
        == "[('user', 'A'), ('agent', 'two')]"
    )


def test_patience_ends() -> None:
    persona = Persona(patience=1)
    lines: list[Line] = [("user", "A"), ("agent", "one")]
    assert persona.reply(lines, 0, lambda _: "fine") == "fine"
    assert persona.reply([*lines, ("user", "fine"), ("agent", "two")], 0, lambda _: "fine") == LEAVES
