"""A mixture plays each task in its own environment, and adds nothing to it."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from quintain.environments.boundary import refuse_training
from quintain.environments.catalog import find
from quintain.environments.check import check
from quintain.environments.mixture import MixedEnvironment, Part, parts_of
from quintain.environments.noisy import noisy
from quintain.environments.protocol import (
    Environment,
    Expert,
    Seats,
    Snapshot,
    StateKey,
    advance,
    begin,
    tool_action,
)
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor


class Bare(Environment):
    """Nothing can be known of it."""

    max_turns = 50
    return_range = (-2.0, 0.5)

    def reset(self, task: Task) -> str:
        return "bare"

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="still bare")


BARE = f"{__name__}:Bare"


def test_parts_have_names_options_and_weights() -> None:
    assert parts_of("guess, keydoor?rooms=3@2") == (
        Part(name="guess", spec="guess", weight=1.0),
        Part(name="keydoor", spec="keydoor?rooms=3", weight=2.0),
    )
    assert [part.name for part in parts_of("keydoor?rooms=2,keydoor?rooms=3")] == [
        "keydoor?rooms=2",
        "keydoor?rooms=3",
    ]


@pytest.mark.parametrize("text", ["", "@2", "guess,guess", "guess@0", "guess@-1", "guess@inf", "guess@x"])
def test_what_is_no_mixture_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="mix:"):
        find(f"mix:{text}")


def test_an_unknown_part_is_named_before_anything_is_built() -> None:
    with pytest.raises(UsageError, match="keydor"):
        find("mix:guess,keydor")
    with pytest.raises(UsageError, match="rums"):
        find("mix:guess,keydoor?rums=3")


def test_tasks_follow_the_weights_and_are_those_of_their_environments() -> None:
    mixture = find("mix:guess,keydoor@2")()
    tasks = [mixture.task("train", index) for index in range(9)]
    assert Counter(task.environment for task in tasks) == {"guess": 3, "keydoor": 6}
    guesses = [task for task in tasks if task.environment == "guess"]
    assert guesses == [Guess().task("train", index) for index in range(3)]
    assert len({task.id for task in tasks}) == 9


def test_variants_of_one_world_are_told_apart() -> None:
    mixture = find("mix:keydoor?rooms=2,keydoor?rooms=3")()
    few, many = mixture.task("train", 0), mixture.task("train", 1)
    assert (few.environment, many.environment) == ("keydoor?rooms=2", "keydoor?rooms=3")
    assert few.id != many.id
    alone = KeyDoor(rooms=3)
    assert begin(mixture, many) == begin(alone, alone.task("train", 0))


def test_an_episode_is_that_of_its_environment() -> None:
    mixture = find("mix:guess,keydoor")()
    assert isinstance(mixture, MixedEnvironment)
    every = mixture.instructions()
    assert Guess().instructions() in every and KeyDoor().instructions() in every
    guess, door = mixture.task("eval", 0), mixture.task("eval", 1)
    alone, corridor = Guess(), KeyDoor()
    assert begin(mixture, guess) == begin(alone, guess)
    assert mixture.tools() == alone.tools() and mixture.legal_actions() == ()
    assert (mixture.instructions(), mixture.max_turns) == (alone.instructions(), alone.max_turns)
    assert advance(mixture, tool_action("guess", number=16)) == advance(
        alone, tool_action("guess", number=16)
    )
    assert begin(mixture, door) == begin(corridor, door)
    assert (mixture.tools(), mixture.max_turns) == ((), corridor.max_turns)
    assert mixture.legal_actions() == corridor.legal_actions()


def test_capabilities_are_those_that_all_have() -> None:
    rich, poor = find("mix:guess,keydoor")(), find(f"mix:keydoor,{BARE}")()
    assert isinstance(rich, Expert) and isinstance(rich, Snapshot) and isinstance(rich, StateKey)
    assert not isinstance(poor, Expert) and not isinstance(poor, Snapshot) and not isinstance(poor, StateKey)
    assert poor.return_range == (-2.0, 1.0) and poor.max_turns == 50
    assert type(rich).tags == Guess.tags | KeyDoor.tags


def test_a_state_is_brought_back_with_its_environment() -> None:
    first, second = find("mix:guess,keydoor")(), find("mix:guess,keydoor")()
    assert isinstance(first, Snapshot) and isinstance(second, Snapshot)
    assert isinstance(first, StateKey) and isinstance(second, StateKey)
    begin(first, first.task("train", 1))
    begin(second, second.task("train", 0))
    second.restore(first.snapshot())
    assert second.state_key() == first.state_key() and second.state_key().startswith("keydoor:")
    assert second.max_turns == KeyDoor().max_turns


def test_seats_and_mistakes_are_those_of_the_task() -> None:
    mixture = find("mix:twocards,guess")()
    assert isinstance(mixture, Seats)
    begin(mixture, mixture.task("train", 0))
    assert (mixture.seats(), mixture.seat()) == (("A", "B"), "A")
    assert noisy(1.0)(mixture, Random(0), ["x"]).text
    begin(mixture, mixture.task("train", 1))
    assert (mixture.seats(), mixture.seat()) == (("agent",), "agent")
    [call] = noisy(1.0)(mixture, Random(0), ["between 1 and 32"]).tool_calls
    assert 1 <= call.arguments["number"] <= 32


def test_wrong_tasks_and_questions_before_a_task_are_the_callers() -> None:
    mixture = find("mix:guess,keydoor")()
    with pytest.raises(EnvironmentFault, match="'sokoban'; give one of guess, keydoor"):
        mixture.reset(Task(id="x", environment="sokoban", seed=0))
    with pytest.raises(EnvironmentFault, match="call reset first"):
        mixture.step(Action(text="north"))
    begin(mixture, mixture.task("train", 0))
    mixture.close()
    with pytest.raises(EnvironmentFault, match="call reset first"):
        mixture.step(Action(text="north"))


def test_it_passes_the_check() -> None:
    report = check("mix:guess,keydoor,calc,bandit", episodes=8)
    assert report.has_passed, "\n".join(report.lines())


class Exam(Bare):
    """It is there to measure agents."""

    evaluation_only = True


def test_one_part_for_evaluation_only_makes_the_mixture_so() -> None:
    assert not find(f"mix:guess,{BARE}")().evaluation_only
    mixed = find(f"mix:guess,{__name__}:Exam")()
    with pytest.raises(UsageError, match="got an environment for evaluation only"):
        refuse_training(mixed)


CLASHING = """
from quintain import Environment, tool


class Word(Environment):
    \"\"\"Say a word.\"\"\"

    def reset(self, task):
        return "go"

    @tool
    def say(self, word: str) -> str:
        \"\"\"Say it.\"\"\"
        return self.finish("ok", reward=1.0)


class Number(Word):
    \"\"\"Say a number.\"\"\"

    @tool
    def say(self, number: int) -> str:
        \"\"\"Say it.\"\"\"
        return self.finish("ok", reward=1.0)
"""


def test_tools_of_one_name_with_other_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(CLASHING)
    told = (
        r"environment mix:two.py:Word,two.py:Number: got the tool 'say' with other arguments in two.py:Word and in "
        r"two.py:Number; rename it in one of them, or train them apart"
    )
    with pytest.raises(UsageError, match=told):
        MixedEnvironment("two.py:Word,two.py:Number")
    assert MixedEnvironment("guess,guess?high=8").max_turns > 0, "the same tools are no clash"
