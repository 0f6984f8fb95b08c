from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
import torch

import quintain
from quintain.environments.protocol import (
    NOT_RUN,
    Environment,
    Snapshot,
    advance,
    as_results,
    begin,
    environment_name,
    tool_action,
)
from quintain.environments.tools import ToolFault, tool
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import Action, Image, StepResult, Task, Text, ToolCall


class Counter(Environment):
    """Count to three."""

    def __init__(self) -> None:
        self.count = 0

    def reset(self, task: Task) -> str:
        self.count = 0
        return "go"

    @tool
    def add(self, number: int = 1) -> str:
        """Add."""
        self.count += number
        self.reward(0.25, step=0.25)
        if self.count >= 3:
            return self.finish("three", reward=0.5)
        return str(self.count)

    @tool
    def fail(self) -> str:
        """Fail."""
        raise OSError("no disk")


class Says(Environment):
    """Answers whatever it was given."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def reset(self, task: Task) -> str:
        return cast(str, self.answer)

    def step(self, action: Action) -> StepResult:
        return cast(StepResult, self.answer)


class Shown(Counter):
    """A counter that can be looked at."""

    is_variant = True


class Fast(Shown):
    """Count to three at once."""


TASK = Counter().task("train", 0)


def test_one_turn_may_hold_several_calls_and_stops_at_the_end() -> None:
    counter = Counter()
    assert begin(counter, TASK) == "go"
    calls = tuple(ToolCall(name="add", arguments={"number": number}) for number in (1, 2, 5))
    result = advance(counter, Action(tool_calls=calls))
    assert counter.count == 3
    assert result == StepResult(
        observation=as_results(["1", "three", NOT_RUN]),
        reward=1.0,
        is_terminated=True,
        is_success=True,
        reward_terms={"step": 0.5},
    )


def test_rewards_of_a_turn_do_not_reach_the_next() -> None:
    counter = Counter()
    begin(counter, TASK)
    assert advance(counter, tool_action("add")).reward == 0.25
    assert advance(counter, Action(text="hm")).reward == 0.0


def test_what_a_broken_episode_collected_is_forgotten() -> None:
    counter = Counter()
    begin(counter, TASK)
    calls = (ToolCall(name="add", arguments={"number": 3}), ToolCall(name="fail"))
    counter._ending = StepResult(observation="old")  # pyright: ignore[reportPrivateUsage]
    counter.reward(9.0)
    begin(counter, TASK)
    result = advance(counter, Action(tool_calls=calls[:1]))
    assert (result.reward, result.observation) == (0.75, "three")
    with pytest.raises(ToolFault, match="tool fail raised OSError"):
        advance(counter, Action(tool_calls=calls[1:]))


def test_mistakes_of_the_policy_are_invalid_turns() -> None:
    counter = Counter()
    begin(counter, TASK)
    for action, said in (
        (Action(error="no JSON"), "Error: no JSON"),
        (Action(text="add"), "Error: no tool was called; tools: add, fail."),
        (tool_action("add", nmber=1), "Error: add(nmber): unknown argument"),
    ):
        result = advance(counter, action)
        assert not result.is_valid and str(result.observation).startswith(said)
    assert counter.count == 0


def test_tasks_of_the_splits_never_share_a_seed() -> None:
    counter = Counter()
    train = [counter.task("train", index) for index in range(1000)]
    held_out = [counter.task("eval", index) for index in range(1000)]
    assert all(task.seed % 2 == 0 for task in train) and all(task.seed % 2 == 1 for task in held_out)
    assert len({task.seed for task in [*train, *held_out]}) == 2000
    assert train[3].id == "counter/train/3" and train[3].seed < 2**53
    assert counter.task("train", 3) == train[3]


def test_begin_hands_over_unread_randomness() -> None:
    class Draws(Environment):
        """Draw."""

        def reset(self, task: Task) -> str:
            return str(task.rng.random())

    assert begin(Draws(), TASK) == begin(Draws(), TASK)


@pytest.mark.parametrize("answer", [None, 3, ["text"], b"bytes", (Text(text="a"), "b")])
def test_a_first_observation_of_the_wrong_type_is_the_environments_fault(answer: object) -> None:
    with pytest.raises(EnvironmentFault, match=r"says\.reset must return text or content parts: got"):
        begin(Says(answer), TASK)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "must return a StepResult: got NoneType"),
        ("text", "must return a StepResult: got str"),
        (("text", 1.0, False, False, {}), "must return a StepResult: got tuple"),
        (StepResult(observation=cast(str, None)), "must return text or content parts"),
        (StepResult(observation="", reward=float("nan")), "reward must be a finite number: got nan"),
        (StepResult(observation="", reward=float("inf")), "reward must be a finite number: got inf"),
        (StepResult(observation="", reward=cast(float, None)), "reward must be a finite number: got None"),
        (StepResult(observation="", reward=cast(float, "1")), "reward must be a finite number: got '1'"),
        (StepResult(observation="", reward=cast(float, 1j)), "reward must be a finite number"),
        (StepResult(observation="", reward_terms={"key": float("nan")}), "key must be a finite number"),
        (StepResult(observation="", is_terminated=cast(bool, 1)), "is_terminated must be a bool: got 1"),
        (StepResult(observation="", is_truncated=cast(bool, np.float32(1))), "is_truncated must be a bool"),
        (
            StepResult(observation="", reward=cast(float, np.ones(2))),
            "reward must be a finite number: got array",
        ),
        (
            StepResult(observation="", reward=cast(float, torch.tensor(torch.inf))),
            "reward must be a finite number",
        ),
        (StepResult(observation="", is_success=cast(bool, 0.5)), "is_success must be a bool: got 0.5"),
        (StepResult(observation="", is_valid=cast(bool, None)), "is_valid must be a bool: got None"),
    ],
)
def test_a_result_of_the_wrong_type_is_the_environments_fault(answer: object, said: str) -> None:
    with pytest.raises(EnvironmentFault, match=said):
        advance(Says(answer), Action())


ONES = [
    1,
    True,
    np.float32(1.0),
    np.int64(1),
    Fraction(1),
    np.float64(1.0),
    np.bool_(True),
    np.ones(1),
    torch.ones(1),
]


@pytest.mark.parametrize("one", ONES)
def test_tools_take_any_real_number_as_a_reward(one: Any) -> None:
    class Paid(Environment):
        """Pays."""

        def reset(self, task: Task) -> str:
            return ""

        @tool
        def end(self) -> str:
            """End it."""
            self.reward(found=one)
            self.reward(one)
            return self.finish("done", reward=one)

    result = advance(Paid(), Action(tool_calls=(ToolCall(name="end"),)))
    assert (result.reward, result.reward_terms, result.is_success) == (3.0, {"found": 1.0}, True)
    assert type(result.is_success) is bool and type(result.reward) is float


def test_truth_values_of_other_packages_are_bools() -> None:
    true = cast(bool, np.bool_(True))
    result = advance(Says(StepResult(observation="", is_terminated=true, is_success=true)), Action())
    assert (result.is_terminated, result.is_success, result.is_truncated) == (True, True, False)
    assert type(result.is_terminated) is bool and type(result.is_success) is bool


@pytest.mark.parametrize("reward", ONES)
def test_any_real_number_is_a_reward_and_becomes_a_float(reward: Any) -> None:
    result = advance(Says(StepResult(observation="", reward=reward, reward_terms={"a": reward})), Action())
    assert type(result.reward) is float and result.reward == 1.0
    assert type(result.reward_terms["a"]) is float


def test_pictures_pass() -> None:
    parts = (Text(text="see"), Image(data=b"", media_type="image/png"))
    assert advance(Says(StepResult(observation=parts)), Action()).observation == parts


def test_names_and_instructions() -> None:
    named = replace(TASK, id="x")
    assert environment_name(Counter()) == "counter" and named.environment == "counter"
    assert Counter().instructions() == "Count to three."
    assert not isinstance(Counter(), Snapshot)
    with pytest.raises(NotImplementedError, match="Bare must define reset"):
        type("Bare", (Environment,), {})().reset(TASK)


def test_a_tool_must_not_hide_a_method_of_the_base_class() -> None:
    class Clash(quintain.Environment):
        """Clash."""

        @tool
        def finish(self, what: str) -> str:  # type: ignore[override] # pyright: ignore
            """Finish."""
            return what

    with pytest.raises(UsageError, match=r"Clash\.finish: got a name that Environment uses"):
        Clash().tools()


def test_a_variant_says_what_the_class_above_it_says() -> None:
    assert [kind().instructions() for kind in (Counter, Shown, Fast)] == [
        "Count to three.",
        "Count to three.",
        "Count to three at once.",
    ]


def test_a_reward_by_name_needs_no_sum() -> None:
    world = Counter()
    world.reward(found=0.25, read=0.5)
    world.reward(found=0.25)
    world.reward(1.0)
    result = world.step(Action(tool_calls=(ToolCall(name="add", arguments={}),)))
    assert result.reward == 2.25
    assert result.reward_terms == {"found": 0.5, "read": 0.5, "step": 0.25}
    named: dict[str, Any] = {"name": "found"}
    with pytest.raises(
        UsageError, match=r"got name='found', which is no number; .* as in reward\(found=0.2\)"
    ):
        world.reward(0.2, **named)
