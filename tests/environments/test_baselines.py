import random
from typing import Literal

from pydantic import BaseModel

from quintain.environments.baselines import find_range_text, noop, play, random_action, random_policy
from quintain.environments.protocol import Environment, begin
from quintain.environments.tools import call_tool, tool
from quintain.types import Action, StepResult, Task
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor


class Place(BaseModel):
    x: int
    name: Literal["a", "b"] = "a"


class Tools(Environment):
    """Many tools."""

    def reset(self, task: Task) -> str:
        return "between 3 and 5"

    @tool
    def act(
        self,
        number: int,
        word: str,
        place: Place,
        tags: list[str],
        pair: tuple[int, bool],
        maybe: float | None = None,
        flag: bool = False,
    ) -> str:
        """Act."""
        return str(number)


class Talk(Environment):
    """Say something."""

    def reset(self, task: Task) -> str:
        return "yes or no"

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="ok", reward=float("yes" in action.text), is_terminated=True)


def test_random_calls_are_valid_and_integers_come_from_the_range_told() -> None:
    world, rng = Tools(), random.Random(0)
    drawn: set[str] = set()
    for _ in range(100):
        action = random_action(world, rng, "between 3 and 5")
        reply = call_tool(world, action.tool_calls[0])
        assert not reply.is_error, reply.text
        drawn.add(reply.text)
    assert drawn == {"3", "4", "5"}


def test_a_range_told_earlier_is_remembered() -> None:
    world = Guess(low=101, high=104)
    episode = play(world, world.task("train", 0), random_policy(0))
    begin(world, world.task("train", 0))
    assert episode.is_success, "of four numbers, ten draws find one all but surely"


def test_random_actions_are_legal_where_they_are_listed() -> None:
    world = KeyDoor()
    episode = play(world, world.task("train", 0), random_policy(0))
    assert all(end[3] for end in episode.ends) and len(episode.rewards) == world.max_turns
    assert play(world, world.task("train", 0), random_policy(0)).observations == episode.observations
    assert play(world, world.task("train", 0), random_policy(1)).observations != episode.observations


def test_plain_text_is_drawn_from_the_words_told() -> None:
    totals = {play(Talk(), Talk().task("train", 0), random_policy(seed)).total for seed in range(20)}
    assert totals == {0.0, 1.0}


def test_success_is_the_worlds_claim_or_a_positive_return() -> None:
    assert not play(Talk(), Talk().task("train", 0), noop).is_success
    assert play(Talk(), Talk().task("train", 0), lambda _world, _told: Action(text="yes")).is_success


def test_an_episode_is_cut_at_the_lower_limit() -> None:
    world = KeyDoor()
    assert len(play(world, world.task("train", 0), noop, 3).rewards) == 3
    assert len(play(world, world.task("train", 0), noop, 10_000).rewards) == world.max_turns


def test_the_text_to_draw_from_is_the_last_that_names_a_range() -> None:
    assert find_range_text(("between 1 and 32", "higher")) == "between 1 and 32"
    assert find_range_text(("between 1 and 32", "between 5 and 9", "no")) == "between 5 and 9"
    assert find_range_text(("look", "a ball", "3 doors")) == "3 doors"
    assert find_range_text(()) == ""
