"""AgentBank: what is forced, what counts, what is said too early, and how far difficulties are apart."""

import random
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import pytest

from quintain.data.pipeline import as_example
from quintain.environments.protocol import tool_action
from quintain.errors import DataError
from quintain.methods.imitation import agent_bank
from quintain.types import Action, Completion, Score, Stop, Task, Text, Trajectory, Turn

Make = Callable[..., Trajectory]


def test_only_what_was_never_solved_is_forced(trajectory: Make) -> None:
    tried = [trajectory([((1,), (2,))], value=v, task=t) for t, v in (("a", 0.0), ("a", 1.0), ("b", 0.0))]
    shown = [trajectory([((1,), (3,))], task=t) for t in ("a", "b", "c")]
    assert [t.task.id for t in agent_bank.find_needed(tried, shown)] == ["b", "c"]


def test_teachers_are_told_apart_by_their_index(trajectory: Make, shows: Any) -> None:
    solved, failed = (trajectory([((1,), (2,))], ["x"], value=v, task=str(v)) for v in (1.0, 0.0))
    forced = [replace(trajectory([((1,), (3,))], ["x"], task=t), index=2) for t in ("1.0", "0.0")]
    collector = shows([solved, replace(failed, index=1), *forced])
    config = agent_bank.Config(group_size=2)
    made = agent_bank.method(config).data(collector)
    assert [e.trajectory for e in made.examples] == [solved, forced[1]]  # type: ignore[union-attr]
    assert [len(teachers) for teachers in collector.teachers] == [3]
    plain = shows([solved, failed])
    agent_bank.method(replace(config, demonstrations="chats.jsonl")).data(plain)
    assert plain.teachers == [()]


def test_turns_that_the_expert_would_not_have_taken_do_not_count(trajectory: Make) -> None:
    made = trajectory([((1,), (2, 3)), ((4,), (5,))])
    (example,) = agent_bank.pipeline(lambda _: [0.0, 1.0], lambda _: False).run([as_example(made)]).examples
    assert example.weights is not None
    assert [w.tolist() for w in example.weights] == [[0.0, 0.0], [1.0]]
    assert not agent_bank.pipeline(lambda _: [1.0, 1.0], lambda _: True).run([as_example(made)]).examples


def test_planted_leaks_are_found_and_nothing_else() -> None:
    rng = random.Random(0)
    for _ in range(200):
        gold = str(rng.randint(10, 99))
        clean = [(f"page {gold}0 says", f"so {gold}1 or 1{gold}"), (f"it is {gold}.", f"thus {gold}")]
        assert not agent_bank.tells_early(clean, gold)
        leaked = [(clean[0][0], f"so ({gold}), surely"), clean[1]]
        assert agent_bank.tells_early(leaked, gold)
    assert agent_bank.tells_early([("", "Small Red")], "small, red")
    assert not agent_bank.tells_early([("red; small", "red")], "small, red")
    assert not agent_bank.tells_early([("", "anything")], "")


def test_a_thought_that_names_the_answer_is_a_leak(trajectory: Make) -> None:
    made = trajectory([((1,), (2,)), ((3,), (4,))], ["read", "answer 7"])
    said = {2: "it must be 7: read", 4: "answer 7"}
    assert agent_bank.leaks(made, lambda ids: said[ids[0]])
    assert not agent_bank.leaks(made, lambda ids: {2: "read", 4: "answer 7"}[ids[0]])
    assert not agent_bank.leaks(replace(made, turns=()), lambda _: "")


def test_the_gap_is_the_divergence_of_what_is_shown() -> None:
    assert agent_bank.difficulty_gap([1, 1, 1, 2], [1, 1, 2, 2]) == pytest.approx(
        0.75 * log(1.5) + 0.25 * log(0.5)
    )
    assert agent_bank.difficulty_gap([1, 2], [2, 1, 1, 2]) == 0.0
    for shown in ([], [3]):
        with pytest.raises(DataError, match="difficulties"):
            agent_bank.difficulty_gap(shown, [1, 2])


def test_forced_episodes_come_from_the_environment(train: Any) -> None:
    rows = train(
        "agent_bank", environment="collab?slots=2&values=3", demonstrations=6, group_size=2, teacher_noise=1.0
    )
    assert rows[-1]["data/solved"] >= 6


CALL = '<tool_call>{"name": "answer", "arguments": {"text": "Oslo"}}</tool_call>'
SEARCH = '<tool_call>{"name": "search", "arguments": {"query": "seat of Orbit"}}</tool_call>'


def told(*turns: tuple[str, str, Action], data: dict[str, Any] | None = None) -> tuple[Trajectory, list[str]]:
    """An episode of (what is read, what is said, what is done), with what was said in each turn."""
    made = tuple(
        Turn(
            observation=(Text(text=read),), prompt_ids=(1,), action=action,
            completion=Completion(token_ids=(number,), logprobs=(-0.5,), stop="stop"),
        )
        for number, (read, _, action) in enumerate(turns)
    )  # fmt: skip
    task = Task(id="t", environment="e", seed=0, data=data or {})
    episode = Trajectory(
        task=task, turns=made, outcome=Score(value=1.0, is_success=True), stop=Stop.TERMINATED, seed=0,
        group="g", index=0,
    )  # fmt: skip
    return episode, [said for _, said, _ in turns]


@pytest.mark.parametrize("has_leak", [True, False])
@pytest.mark.parametrize(
    ("say", "last", "answer", "gold"),
    [
        (f"Searching. {SEARCH}", f"So. {CALL}", tool_action("answer", text="Oslo"), "Oslo"),
        (f"Searching. {SEARCH}", "Thought: so.\nAction: answer[27]", tool_action("answer", number=27), "27"),
        ("Reading. read", "answer 7", Action(text="answer 7"), "7"),
        ("Thinking. look", "42", Action(text="42"), "42"),
    ],
)
def test_answers_by_call_by_word_and_by_number_leak_alike(
    has_leak: bool, say: str, last: str, answer: Action, gold: str
) -> None:
    said = f"It must be {gold}. {say}" if has_leak else say
    first = tool_action("search", query="seat of Orbit") if "search" in say else Action(text=say.split()[-1])
    episode, texts = told(("What?", said, first), (f"It is {gold}.", last, answer))
    if answer.text == "42":  # nothing but the environment says that it is an answer
        assert agent_bank.answers_of(episode) == []
        turns = (episode.turns[0], replace(episode.turns[1], reward_terms={"answer": 1.0}))
        episode = replace(episode, turns=turns)
    assert agent_bank.answers_of(episode) == [gold]
    assert agent_bank.leaks(episode, lambda ids: texts[ids[0]]) == has_leak


def test_a_move_is_no_answer_and_a_task_may_know_its_own() -> None:
    moves, texts = told(
        ("A wall.", "I go forward. forward", Action(text="forward")), ("", "left", Action(text="left"))
    )
    assert agent_bank.answers_of(moves) == []
    assert not agent_bank.leaks(moves, lambda ids: texts[ids[0]])
    known = replace(moves, task=replace(moves.task, data={"answer": "wall street"}))
    assert agent_bank.answers_of(known) == ["wall street"]
    assert agent_bank.leaks(known, lambda _: "off to Wall Street")
