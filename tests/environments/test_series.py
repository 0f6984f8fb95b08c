"""Several tasks in one episode: what recurs, what is said of it, what advice costs, and what is refused."""

from typing import cast

import pytest

from quintain.environments.baselines import expert, noop, play
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert, Legal, Snapshot, begin
from quintain.environments.series import WORDS, Session
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, ToolCall, as_text

SUMS = "session:sums?digits=4&tasks=4&repeats=3&advice=0.3"


class Fixed(Environment):
    """Say the word."""

    return_range = (-1.0, 1.0)

    def reset(self, task: Task) -> str:
        """Show the number of the task."""
        self.word = task.id.rpartition("/")[2]
        return f"word {self.word}"

    def step(self, action: Action) -> StepResult:
        """Take the word."""
        is_right = action.text == self.word
        return StepResult(
            observation="yes" if is_right else "no",
            reward=1.0 if is_right else -1.0,
            is_terminated=True,
            is_success=is_right,
        )


def session(spec: str) -> Session:
    made = find(spec)()
    assert isinstance(made, Session)
    return made


def questions(world: Session, index: int) -> list[tuple[str, str]]:
    """Return the word before each question and the question."""
    found, shown = list[tuple[str, str]](), as_text(begin(world, world.task("train", index)))
    while True:
        place, _, rest = shown.rpartition("Question ")[2].partition(". ")
        found.append((place.rpartition(", ")[2], rest))
        result = world.step(Action(text="advice"))
        if result.is_terminated:
            return found
        shown = as_text(result.observation)


def test_one_question_recurs_and_the_word_before_it_says_so() -> None:
    world = session(SUMS)
    asked = [questions(world, index) for index in range(12)]
    orders = set[tuple[int, ...]]()
    again_words = set[str]()
    for own in asked:
        texts = [text for _, text in own]
        counts = [texts.count(text) for text in texts]
        assert sorted(counts) == [1, 3, 3, 3]
        again_words |= {word for (word, _), count in zip(own, counts, strict=True) if count == 3}
        assert {word for (word, _), count in zip(own, counts, strict=True) if count == 1}.isdisjoint(
            again_words
        )
        orders.add(tuple(counts))
    assert len(orders) > 1, "in an order that is drawn"
    assert len(again_words) == 1
    other = {questions(session(f"{SUMS}&seed={seed}"), 0)[0][0] for seed in range(8)}
    assert other == set(WORDS), "which word it is is drawn by the seed"


def test_sessions_share_no_question_and_splits_neither() -> None:
    world = session("session:sums?tasks=3&repeats=2")
    firsts = [world.task("train", index).data["first"] for index in range(5)]
    assert firsts == [0, 2, 4, 6, 8]
    begin(world, world.task("eval", 0))
    assert {task.split for task in world.__dict__["_tasks"]} == {"eval"}
    assert world.task("eval", 0).is_held_out


def test_a_session_pays_what_its_questions_pay_together() -> None:
    world = Session(Fixed(), session("session:sums?tasks=3&repeats=1").options)
    assert world.return_range == (-3.0, 3.0) and world.max_turns == 3 * Fixed.max_turns
    begin(world, world.task("train", 2))
    tasks = cast("list[Task]", world.__dict__["_tasks"])
    words = [task.id.rpartition("/")[2] for task in tasks]
    assert sorted(words) == ["6", "7", "8"]
    results = [world.step(Action(text=word)) for word in (words[0], "none", words[2])]
    assert [result.reward for result in results] == [1.0, -1.0, 1.0]
    assert [result.is_terminated for result in results] == [False, False, True]
    assert [result.is_success for result in results] == [None, None, False]
    assert not isinstance(world, Expert)


def test_advice_answers_for_its_price() -> None:
    world = session(SUMS)
    task = world.task("train", 0)
    begin(world, task)
    results = [world.step(Action(text=" advice\n")) for _ in range(4)]
    assert [result.reward for result in results] == pytest.approx([0.7] * 4)
    assert [dict(result.reward_terms) for result in results] == [{"answers": 1.0, "advice": -0.3}] * 4
    assert results[-1].is_success and results[-1].is_terminated
    assert as_text(results[0].observation).startswith("advice: ")
    done = play(world, task, expert)
    assert done.is_success and sum(done.rewards) == 4.0
    assert sum(play(world, task, noop).rewards) == 0.0


def test_a_question_ends_with_its_own_turns() -> None:
    world = session("session:sums?digits=1&tasks=2&repeats=1")
    begin(world, world.task("train", 0))
    shown = [as_text(world.step(Action(text="")).observation) for _ in range(world.inner.max_turns)]
    assert "Question 2 of 2" in shown[-1] and not any("Question" in text for text in shown[:-1])


def test_advice_is_a_tool_where_there_are_tools_and_legal_where_actions_are_listed() -> None:
    calc = session("session:calc?tasks=2&repeats=2&advice=0.5")
    assert [tool.name for tool in calc.tools()][-1] == "advice"
    begin(calc, calc.task("train", 0))
    result = calc.step(Action(tool_calls=(ToolCall(name="advice"),)))
    assert result.reward == pytest.approx(0.5) and "advice: Action: " in as_text(result.observation)
    listed = session("session:keydoor?tasks=2&repeats=1&advice=0.5")
    begin(listed, listed.task("train", 0))
    assert isinstance(listed, Legal) and listed.legal_actions()[-1] == "advice"
    plain = session("session:keydoor?tasks=2&repeats=1")
    begin(plain, plain.task("train", 0))
    assert isinstance(plain, Legal) and "advice" not in plain.legal_actions()
    assert "advice" not in plain.instructions()


def test_a_snapshot_holds_the_place_in_the_session() -> None:
    world = session(SUMS)
    begin(world, world.task("train", 1))
    world.step(Action(text="advice"))
    assert isinstance(world, Snapshot)
    saved = world.snapshot()
    first = [world.step(Action(text="advice")) for _ in range(3)]
    world.restore(saved)
    assert [world.step(Action(text="advice")) for _ in range(3)] == first


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            "session:sums?tasks=2&repeats=3",
            "session: got tasks=2 and repeats=3; give tasks of 1 or more and repeats",
        ),
        ("session:sums?tasks=0", "session: got tasks=0"),
        ("session:sums?advice=2", r"session: got advice=2.0; give a price from 0 to 1"),
        ("session:sums?tasks=many", "tasks"),
        ("session:sums?digit=1", "digit.*did you mean 'digits'"),
        ("session:some", "environment: got 'some'; did you mean 'solver'"),
    ],
)
def test_a_session_that_cannot_be_is_refused(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find(spec)()


def test_advice_needs_an_expert_and_its_name() -> None:
    with pytest.raises(UsageError, match=r"got advice=0.5 in fixed, which has no expert to give it"):
        Session(Fixed(), session("session:sums?advice=0.5").options)
    world = session(SUMS)
    with pytest.raises(UsageError, match="which is none of a session"):
        world.reset(world.inner.task("train", 0))
