from typing import Any

import pytest

from quintain.environments.baselines import expert, noop, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.tools import ToolFault
from quintain.errors import UsageError
from quintain.types import Action, Split, StepResult, as_text
from quintain.worlds.calc.game import UNTOLD, Calc, Ledger
from quintain.worlds.calc.problem import Problem, draw_problem, solve

# (fig + 4) * 5 - pear, where a fig is 3 and a pear is 6: 29.
PROBLEM = Problem(
    first="fig", steps=(("add", 4), ("multiply", 5), ("subtract", "pear")), prices=(("fig", 3), ("pear", 6))
)


def world_with(**options: Any) -> Calc:
    world = Calc(steps=3, names=2, **options)
    begin(world, world.task("train", 0))
    world.restore((PROBLEM, Ledger(checks_left=options.get("checks", 2)), 7))
    return world


def act(world: Calc, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=word)) for word in words]


def said(world: Calc, *words: str) -> list[str]:
    return [str(result.observation) for result in act(world, *words)]


def test_a_problem_by_value() -> None:
    assert PROBLEM.words() == "Compute: fig, add 4, multiply 5, subtract pear."
    assert solve(PROBLEM) == (
        (
            ("lookup", ("fig",)),
            ("add", (3, 4)),
            ("multiply", (7, 5)),
            ("lookup", ("pear",)),
            ("subtract", (35, 6)),
        ),
        29,
    )


def test_an_episode_by_value() -> None:
    world = world_with()
    assert said(
        world, "lookup fig", "add 3 4", "multiply 7 5", "lookup pear", "subtract 35 6", "check 29"
    ) == [
        *("= 3", "= 7", "= 35", "= 6", "= 29", "right"),
    ]
    [end] = act(world, "answer 29")
    assert (end.observation, end.reward, end.is_success, end.is_terminated) == ("right", 1.0, True, True)
    [other] = act(world_with(), "answer 28")
    assert (other.observation, other.reward, other.is_success, other.is_terminated) == (
        "wrong",
        0.0,
        False,
        True,
    )


def test_calls_are_json_and_may_come_several_at_once() -> None:
    world = world_with()
    both = Action(
        tool_calls=tool_action("add", a=1, b=2).tool_calls + tool_action("lookup", name="fig").tool_calls
    )
    assert as_text(advance(world, both).observation) == "= 3\n= 3"
    assert [spec.name for spec in world.tools()] == [
        "add",
        "subtract",
        "multiply",
        "lookup",
        "check",
        "answer",
    ]
    assert advance(world, tool_action("multiply", a=-2, b=10)).observation == "= -20"


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (Action(text="add 3"), "Error: no tool was called"),
        (Action(text="twice 3"), "Error: no tool was called"),
        (Action(text=""), "Error: no tool was called"),
        (Action(text="lookup melon"), "Error: lookup(name): expected 'apple'"),
        (Action(text="add fig 4"), "Error: add(a): expected integer"),
        (tool_action("add", a=1), "Error: add(b): missing"),
        (tool_action("divide", a=1, b=2), 'Error: no tool is called "divide"'),
        (Action(error="unreadable"), "Error: unreadable"),
    ],
)
def test_wrong_calls_are_named_and_change_nothing(action: Action, said: str) -> None:
    world = world_with()
    key = world.state_key()
    result = advance(world, action)
    assert str(result.observation).startswith(said) and not result.is_valid and world.state_key() == key


def test_a_name_that_does_not_occur_has_no_price() -> None:
    assert said(world_with(), "lookup plum") == ["no price"]


def test_checks_are_counted_and_allow_a_revision() -> None:
    world = world_with()
    assert said(world, "check 30", "check 29", "check 29") == ["wrong", "right", "no checks left"]
    assert act(world, "answer 29")[0].is_success
    assert "check" not in [spec.name for spec in Calc(checks=0).tools()]


def test_a_verifier_may_err_but_always_alike() -> None:
    world = world_with(check_errors=1.0)
    assert said(world, "check 29", "check 28") == ["wrong", "right"]
    rare = Calc(check_errors=0.3, checks=1)
    wrong = 0
    for index in range(200):
        begin(rare, rare.task("train", index))
        state = rare.snapshot()
        answers = said(rare, f"check {state[0].answer}")
        rare.restore(state)
        assert said(rare, f"check {state[0].answer}") == answers
        wrong += answers == ["wrong"]
    assert 35 < wrong < 85


def test_tools_fail_at_the_rate_that_is_asked_for() -> None:
    assert said(world_with(failures=1.0), "lookup fig", "add 1 1", "check 29") == [UNTOLD, UNTOLD, "right"]
    world = Calc(failures=0.25)
    begin(world, world.task("train", 0))
    told = [world.add(1, 1) for _ in range(400)]
    assert 70 < told.count(UNTOLD) < 130 and told.count("= 2") == 400 - told.count(UNTOLD)


def test_lies_are_silent_and_the_expert_checks_before_it_answers() -> None:
    world = world_with(lies=1.0)
    assert said(world, "add 3 4")[0] != "= 7"
    found = [
        play(Calc(lies=0.2, checks=checks), Calc().task("train", i), expert)
        for checks in (0, 4)
        for i in range(60)
    ]
    trusting, careful = found[:60], found[60:]
    assert sum(e.is_success for e in trusting) < 40 < 54 <= sum(e.is_success for e in careful)


def test_the_expert_forgets_what_was_refuted() -> None:
    world = world_with(lies=1e-12)
    act(world, "lookup fig", "add 3 4", "check 30")
    assert world.expert_action() == tool_action("lookup", name="fig")


def test_a_crash_is_the_tools_failure_and_no_score() -> None:
    with pytest.raises(ToolFault, match="tool add raised RuntimeError: broke, as asked for"):
        act(world_with(crashes=1.0), "add 1 1")


def test_dense_rewards_pay_each_right_result_once() -> None:
    world = world_with(reward="dense")
    words = [
        "lookup fig",
        "lookup fig",
        "add 3 4",
        "add 3 3",
        "multiply 7 5",
        "lookup pear",
        "subtract 35 6",
        "answer 29",
    ]
    assert [round(result.reward, 6) for result in act(world, *words)] == [0.1, 0, 0.1, 0, 0.1, 0.1, 0.1, 0.5]
    assert not any(result.is_success for result in act(world_with(reward="dense"), *words[:-1]))
    short = world_with(reward="dense", calculator=False)
    assert [result.reward for result in act(short, "lookup fig", "lookup pear", "answer 29")] == [
        0.25,
        0.25,
        0.5,
    ]


def test_without_a_calculator_the_agent_does_the_sums() -> None:
    world = world_with(calculator=False)
    [refused] = act(world, "add 3 4")
    assert (
        refused.observation == "Error: add is not available; tools: answer, check, lookup."
        and not refused.is_valid
    )
    assert [call.name for call in world.solution()] == ["lookup", "lookup", "answer"]
    act(world, "lookup fig")
    assert world.expert_action() == tool_action("lookup", name="pear")
    act(world, "lookup pear")
    assert world.expert_action() == tool_action("answer", number=29)


def test_trivial_tasks_need_no_tool() -> None:
    world = Calc(trivial=0.5)
    words = [str(begin(world, world.task("train", index))) for index in range(100)]
    assert 35 < sum("," not in text for text in words) < 65
    begin(world, world.task("train", next(i for i, text in enumerate(words) if "," not in text)))
    assert [call.name for call in world.solution()] == ["answer"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"steps": 12, "digits": 6, "names": 6, "reward": "dense"},
        {"steps": 0, "names": 0},
        {"steps": 1, "names": 2, "digits": 1},
        {"calculator": False},
        {"failures": 0.2},
    ],
)
def test_the_expert_answers_right_with_the_calls_of_the_solution(options: dict[str, Any]) -> None:
    world = Calc(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert (
            episode.is_success and episode.total == pytest.approx(1.0) and all(end[3] for end in episode.ends)
        )
        if "failures" not in options:
            assert len(episode.rewards) == len(world.solution())


def test_numbers_stay_within_their_digits() -> None:
    world = Calc(steps=8, digits=1, names=0)
    for index in range(40):
        problem = draw_problem(8, 2, 2, world.task("train", index).rng)
        results = [problem.result(call) for call in solve(problem)[0]]
        assert all(result is not None and 0 <= result <= 99 for result in results)


def test_mistakes_cost_and_chance_hardly_wins() -> None:
    world = Calc()
    tasks = [world.task("train", index) for index in range(40)]
    won = sum(play(world, task, noisy_policy(0.4, task.seed)).is_success for task in tasks)
    chance = sum(play(world, task, random_policy(task.seed)).is_success for task in tasks)
    assert sum(play(world, task, noop).total for task in tasks) == 0 and chance < 8 < won < 40


def test_a_snapshot_goes_on_alike_and_states_are_recognised() -> None:
    one, other = world_with(noise=2), world_with()
    act(one, "lookup fig", "fly", "lookup fig", "add 3 4")
    act(other, "add 3 4", "lookup fig")
    assert one.state_key() == other.state_key(), "the order of what was told does not matter"
    act(one, "check 1")
    assert one.state_key() != other.state_key()
    other.restore(one.snapshot())
    assert one.state_key() == other.state_key() and one.expert_action() == other.expert_action()
    erring = world_with(failures=0.5)
    before = erring.state_key()
    act(erring, "lookup grape")
    assert erring.state_key() != before, "what fails next depends on the count of calls"


def test_noise_follows_every_reply() -> None:
    world = Calc(noise=2)
    first = str(begin(world, world.task("train", 0)))
    problem = world.snapshot()[0].words()
    assert first.startswith(f"{problem} ") and first.count(".") == 3
    assert said(world, "add 1 1")[0].startswith("= 2 ")


def test_splits_have_no_problem_in_common() -> None:
    world = Calc()
    problems: dict[Split, set[str]] = {"train": set(), "eval": set()}
    for split, seen in problems.items():
        for index in range(500):
            begin(world, world.task(split, index))
            seen.add(repr(world.snapshot()[0]))
    assert not problems["train"] & problems["eval"] and len(problems["train"]) > 450


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 13}, "calc: got steps=13"),
        ({"steps": 1, "names": 3}, "names=3"),
        ({"digits": 0}, "digits=0"),
        ({"digits": 7}, "digits=7"),
        ({"checks": -1}, "checks=-1"),
        ({"noise": -1}, "noise=-1"),
        ({"failures": 1.5}, "calc: got failures=1.5; give a share from 0 to 1"),
        ({"lies": -0.1}, "lies=-0.1"),
        ({"lies": float("nan")}, "lies=nan"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        Calc(**options)
    assert said in str(raised.value)


def test_a_thought_says_what_was_shown_and_no_more() -> None:
    world = world_with()
    thoughts = [world.thought()]
    for words in ("lookup fig", "add 3 4", "multiply 7 5", "lookup pear", "subtract 35 6"):
        act(world, words)
        thoughts.append(world.thought())
    assert thoughts == [
        "next is lookup fig",
        "next is add 3 4",
        "3 add 4 is 7; next is multiply 7 5",
        "3 add 4 is 7; 7 multiply 5 is 35; next is lookup pear",
        "3 add 4 is 7; 7 multiply 5 is 35; next is subtract 35 6",
        "3 add 4 is 7; 7 multiply 5 is 35; 35 subtract 6 is 29",
    ]


def test_without_a_calculator_the_sums_are_thought() -> None:
    world = world_with(calculator=False)
    thoughts = [world.thought()]
    for words in ("lookup fig", "lookup pear"):
        act(world, words)
        thoughts.append(world.thought())
    assert thoughts == [
        "next is lookup fig",
        "3 add 4 is 7; 7 multiply 5 is 35; next is lookup pear",
        "3 add 4 is 7; 7 multiply 5 is 35; 35 subtract 6 is 29",
    ]
    withheld = world_with(withheld=1.0)
    assert withheld.thought() == "None of the tools does this."


def test_phases_are_told_one_after_the_other() -> None:
    world = Calc(phases=3, steps=2, checks=1)
    begin(world, world.task("train", 3))
    first = world.snapshot()[0]
    name, last = first.later
    assert [p.words().count(",") for p in (first, name, last)] == [2, 0, 2]
    assert name.first in dict(name.prices) and not (first.prices or last.prices)
    before = world.state_key()
    [result] = act(world, f"answer {first.answer}")
    assert (result.observation, result.reward, result.is_over) == (f"right. {name.words()}", 0.0, False)
    assert world.state_key() != before
    saved = world.snapshot()
    assert said(world, f"lookup {name.first}", f"answer {name.answer}")[1] == f"right. {last.words()}"
    [end] = act(world, f"answer {last.answer}")
    assert (end.observation, end.reward, end.is_success, end.is_terminated) == ("right", 1.0, True, True)
    begin(world, world.task("train", 3))
    world.restore(saved)
    assert said(world, "check 1000", f"answer {name.answer + 1}") == ["wrong", "wrong"]
    begin(world, world.task("train", 3))
    calls = world.solution()
    assert [call.name for call in calls if call.name in ("lookup", "answer")] == [
        "answer",
        "lookup",
        "answer",
        "answer",
    ]
    assert play(world, world.task("eval", 5), expert).is_success
    assert Calc(phases=3).max_turns == 3 * (Calc().max_turns - 4) + 4


def test_tools_that_tell_of_other_things_solve_nothing() -> None:
    world = world_with(distractor_tools=3)
    assert [spec.name for spec in world.tools()][-4:] == [
        "answer", "price_of_metal", "weight_of_metal", "colour_of_metal",
    ]  # fmt: skip
    one = tool_action("price_of_metal", metal="fig")
    result = advance(world, one)
    assert (result.observation, result.is_valid) == ("price_of_metal knows nothing of that.", True)
    both = Action(tool_calls=(*tool_action("lookup", name="fig").tool_calls, *one.tool_calls))
    told = "price_of_metal knows nothing of that; the other calls were not run."
    assert advance(world, both).observation == told and world.snapshot()[1].told == {}
    other = world_with()
    assert "no tool is called" in as_text(advance(other, one).observation)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"phases": 0}, "phases=0"),
        ({"phases": 9}, "1 to 8 phases"),
        ({"distractor_tools": 109}, "at most 108 tools"),
        ({"phases": 2, "names": 2}, "phases=2 with names=2"),
        ({"phases": 2, "reward": "dense"}, "reward=dense"),
        ({"phases": 2, "withheld": 0.5}, "withheld=0.5"),
    ],
)
def test_phases_that_are_none(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        Calc(**options)
