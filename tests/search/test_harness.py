"""A searching agent: what it is shown, what it may see, what its end is paid for, and what is learned from it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import cycle
from typing import Any

import pytest
from tests.search.conftest import list_contexts, play_words

from quintain.agents.catalog import build
from quintain.data.searched import follow_found, follow_searches, number_actions, split_head, with_head
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert, Reversible, Snapshot, advance, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Limits, Rollout
from quintain.search.harness import (
    Searched,
    SearchedWorld,
    read_score,
)
from quintain.text.chat import Chat
from quintain.types import Action, Failure, Image, Score, StepResult, Task, Text, Trajectory

PASSAGES = {"a": "bc", "b": "de", "c": "fg"}
"""A maze in which only f is the goal, and d pays a little."""


class Maze(Environment):
    """Find f. Act: the letter of a room that leads on."""

    name = "maze"
    max_turns = 4
    has_pay = True

    def __init__(self) -> None:
        self.room, self.steps = "a", 0

    def reset(self, task: Task) -> str:
        self.room, self.steps = "a", 0
        return self.show()

    def show(self) -> str:
        return f"Room {self.room}. On: {' '.join(PASSAGES.get(self.room, ''))}"

    def step(self, action: Action) -> StepResult:
        self.steps += 1
        if action.text not in PASSAGES[self.room]:
            return StepResult(observation=f"No way. {self.show()}", is_valid=False)
        self.room = action.text
        pay = {"d": 0.25, "f": 1.0}.get(self.room, 0.0)
        return StepResult(
            observation=self.show(), reward=pay, reward_terms={"pay": pay}, is_terminated=self.room in "defg",
            is_success=self.room == "f",
        )  # fmt: skip

    def legal_actions(self) -> tuple[str, ...]:
        return tuple(PASSAGES[self.room])

    def snapshot(self) -> str:
        return self.room

    def restore(self, state: str) -> None:
        self.room = state

    def progress(self) -> float:
        raise AssertionError("a search sees what its agent sees")

    def privileged(self) -> str:
        raise AssertionError("a search sees what its agent sees")

    def expert_action(self) -> Action:
        raise AssertionError("a search asks no expert")


TASK = Task(id="maze/eval/0", environment="maze", seed=0, split="eval")


def settings(**options: Any) -> Searched:
    agent: Any = None
    return Searched(agent, agent, **options)


def walk(world: SearchedWorld, says: Callable[[str, tuple[int, ...]], str]) -> list[StepResult]:
    """Return what the search is answered when a mind says what `says` does of what it is shown, until the end."""
    found: list[StepResult] = []
    observation = begin(world, TASK)
    while not found or not (found[-1].is_terminated or found[-1].is_truncated):
        what, way, shown = split_head(observation)
        assert isinstance(shown, str)
        found.append(advance(world, Action(text=says(f"{what}: {shown}", way))))
        observation = found[-1].observation
    return found


def in_turn(words: str) -> Callable[[str, tuple[int, ...]], str]:
    """Return the mind that goes through the ways on of each room in turn, the first one first."""
    asked: dict[tuple[int, ...], int] = {}

    def say(shown: str, way: tuple[int, ...]) -> str:
        ways = shown.rpartition("On: ")[2].split()
        number = asked[way] = asked.get(way, -1) + 1
        return words[number] if words else ways[number % len(ways)]

    return say


def test_what_is_tried_is_taken_back_and_the_best_way_alone_is_paid() -> None:
    world = SearchedWorld(Maze(), settings(by="breadth", size=2, steps=9))
    found = walk(world, in_turn(""))
    heads = [split_head(result.observation)[:2] for result in found]
    assert heads == [("", ()), ("", (0,)), ("", (0,)), ("", (1,)), ("end", (1, 4))], (
        "b, c; d and e of b; f of c"
    )
    *tried, end = found
    assert all(result.reward == 0 and not result.reward_terms for result in tried)
    assert (end.reward, end.is_success, end.is_terminated, end.is_truncated) == (1.0, True, True, False)
    assert end.reward_terms == {"pay": 1.0} and end.observation == "[search end 1 4]\nRoom f. On: "


def test_a_search_that_finds_nothing_ends_where_it_was_paid_most() -> None:
    world = SearchedWorld(Maze(), settings(by="depth", size=2, steps=3))
    end = walk(world, in_turn(""))[-1]
    assert split_head(end.observation)[:2] == ("end", (0, 2)) and end.reward == 0.25, "b, c, then d of b"
    assert end.is_success is False and end.is_terminated, "d is an end of the maze"
    short = walk(SearchedWorld(Maze(), settings(size=1, steps=1)), in_turn(""))[-1]
    assert short.is_truncated and not short.is_success and not short.is_terminated


def test_ways_that_are_asked_for_again_are_votes_and_change_nothing() -> None:
    inner = Maze()
    world = SearchedWorld(inner, settings(by="best", size=3, steps=20))
    says = iter("ccbgfg")
    found = walk(world, lambda _shown, _way: next(says))
    assert inner.steps == 4, "the second c is a vote, carried out once"
    heads = [split_head(result.observation)[1] for result in found]
    assert heads == [(), (), (0,), (0,), (0, 4)], "c has two of three votes and comes before b"


def test_what_the_model_says_of_a_state_decides_where_it_goes_on() -> None:
    world = SearchedWorld(Maze(), settings(by="best", size=2, steps=20, score="model"))

    says = iter(["b", "2", "c", "I would say 9 of 10", "f"])
    found = walk(world, lambda _shown, _way: next(says))
    heads = [split_head(result.observation)[:2] for result in found]
    assert heads[:4] == [("judge", (0,)), ("", ()), ("judge", (2,)), ("", (2,))], "c was judged the better"
    assert found[-1].is_success and world.max_turns == 41


def test_by_mean_scores_all_states_are_come_to_in_the_end() -> None:
    world = SearchedWorld(Maze(), settings(by="mcts", size=2, steps=40))
    assert walk(world, in_turn(""))[-1].is_success
    left = walk(
        SearchedWorld(Maze(), settings(by="mcts", size=1, steps=6)), lambda s, _: "b" if "a." in s else "d"
    )
    assert left[-1].reward == 0.25 and not left[-1].is_success


def test_actions_without_effect_lead_nowhere() -> None:
    world = SearchedWorld(Maze(), settings(size=2, steps=8))
    found = walk(world, in_turn("xcfg"[:2] + "cf"))
    assert all(split_head(result.observation)[1] in ((), (1,)) for result in found[:-1])


class Final(Maze):
    """Find f. Act: the letter of a room that leads on; the door to c falls shut."""

    def can_go_back(self) -> bool:
        return self.room != "c"


def test_what_cannot_be_undone_is_gone_on_from() -> None:
    world = SearchedWorld(Final(), settings(by="breadth", size=2, steps=20))
    says = iter("cgf")
    found = walk(world, lambda _shown, _way: next(says))
    assert [split_head(result.observation)[1] for result in found] == [(0,), (0,), (0, 2)], (
        "a is behind the door"
    )


class Sent(Maze):
    """Find f. Act: the letter of a room that leads on; whoever comes to g has decided."""

    def can_go_back(self) -> bool:
        return self.room != "g"


def test_what_ends_it_for_good_is_not_tried_beside_others() -> None:
    says = iter("ccgf")
    world = SearchedWorld(Sent(), settings(by="breadth", size=2, steps=20))
    end = walk(world, lambda _shown, _way: next(says))[-1]
    assert end.is_terminated and not end.is_success and split_head(end.observation)[1] == (0, 2)


def test_what_ends_it_for_good_is_the_end_though_more_was_paid_elsewhere() -> None:
    says = iter("bcdeg")
    world = SearchedWorld(Sent(), settings(by="breadth", size=2, steps=20))
    end = walk(world, lambda _shown, _way: next(says))[-1]
    assert split_head(end.observation)[1] == (1, 4) and end.reward == 0.0, "d, which paid, was taken back"


@pytest.mark.parametrize("name", ["web?goal=order&popups=0", "desk"])
def test_worlds_say_what_stays(name: str) -> None:
    world = find(name)()
    assert isinstance(world, Expert) and isinstance(world, Reversible)
    begin(world, world.task("train", 3))
    stays = list[bool]()
    while True:
        result = advance(world, world.expert_action())
        stays.append(not world.can_go_back())
        if result.is_terminated or result.is_truncated:
            break
    world.close()
    assert stays[-1] and not all(stays), "the order, or the last word; not a look"


def test_places_where_nothing_can_be_searched_are_refused() -> None:
    class Plain(Environment):
        """Nothing."""

        def reset(self, task: Task) -> str:
            return ""

        def step(self, action: Action) -> StepResult:
            return StepResult(observation="", is_terminated=True)

    class Two(Maze):
        def seats(self) -> tuple[str, ...]:
            return "x", "y"

        def seat(self) -> str:
            return "x"

    with pytest.raises(UsageError, match=r"cannot be brought back; give it snapshot\(\)"):
        SearchedWorld(Plain(), settings())
    with pytest.raises(UsageError, match="several seats, whose moves nobody foresees"):
        SearchedWorld(Two(), settings())
    with pytest.raises(UsageError, match="got size=0, steps=40; give 1 or more of each"):
        settings(size=0)
    assert not isinstance(SearchedWorld(Maze(), settings()), Snapshot)


def test_a_tree_beyond_its_memory_bound_is_refused_before_it_grows() -> None:
    assert settings(steps=1_000_000).steps == 1_000_000
    with pytest.raises(
        UsageError, match="got steps=1000001, each of which may keep a state; give at most 1000000"
    ):
        settings(steps=1_000_001)


class Forgetful(Maze):
    """Find f. Act: the letter of a room that leads on."""

    def restore(self, state: str) -> None:
        pass

    def state_key(self) -> str:
        return self.room


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("searched?steps=9+text", ["b"]),
        ("backtracked+text", ["b", "no"]),
        ("rollback+text", ["b", "bad", "0"]),
    ],
)
def test_a_snapshot_that_lies_ends_the_episode_as_a_failure_of_the_environment(
    spec: str, words: list[str], small_chat: Chat
) -> None:
    said = cycle(words)
    engine = Scripted(lambda request, stream: small_chat.write(next(said)), small_chat.tokenizer)
    agent = build(spec, small_chat, Forgetful())
    with closing(Rollout(agent, Forgetful, engine, limits=Limits(max_failure_share=1.0))) as rollout:
        (group,) = rollout.groups([TASK], size=1, seed=0)
    (found,) = group.trajectories
    assert isinstance(found.outcome, Failure) and found.outcome.owner == "environment", (
        "no score, and not lost"
    )
    assert "a state that maze was to bring back: got 'b', not 'a'; let snapshot()" in found.outcome.message


@pytest.mark.parametrize(
    "observation", ["A wall.", "", (Text(text="A wall."), Image(data=b"x", media_type="image/png"))]
)
def test_where_a_search_stands_is_read_back(observation: Any) -> None:
    for what, way in (("", ()), ("judge", (3,)), ("end", (0, 12))):
        assert split_head(with_head(observation, what, way)) == (what, way, observation)
    assert split_head(observation) == ("", (), observation)


@pytest.mark.parametrize(
    ("text", "score"), [("7 of 10", 0.7), ("2.5", 0.25), ("none", 0.0), ("it is 99", 1.0)]
)
def test_scores_are_read(text: str, score: float) -> None:
    assert read_score(text) == score


@pytest.fixture
def small_chat(tokenizer: Any) -> Chat:
    return Chat(tokenizer)


def play(chat: Chat, spec: str, words: Sequence[str]) -> Trajectory:
    return play_words(Maze, TASK, chat, spec, words)


def test_a_state_is_asked_of_as_if_nothing_beside_the_way_to_it_had_been_tried(small_chat: Chat) -> None:
    found = play(small_chat, "searched?by=breadth&size=2&steps=9+text", ["b", "c", "d", "e", "f"])
    assert isinstance(found.outcome, Score) and found.outcome == Score(value=1.0, is_success=True)
    straight = list_contexts(play(small_chat, "text", ["c", "f"]))
    own = list_contexts(found)
    assert own[0] == own[1] == straight[0], "the first room"
    assert own[4] == straight[1], "the room that c leads to, of which b, d and e say nothing"
    assert own[2] == list_contexts(play(small_chat, "text", ["b", "d"]))[1] == own[3]
    assert [turn.starts_segment for turn in found.turns] == [True] * 5
    assert "search" not in small_chat.tokenizer.decode(list(own[4]))


def test_one_way_on_is_the_plain_agent_token_for_token(small_chat: Chat) -> None:
    found, plain = (play(small_chat, spec, ["c", "f"]) for spec in ("searched?size=1+text", "text"))
    assert list_contexts(found) == list_contexts(plain)
    assert [turn.starts_segment for turn in found.turns] == [turn.starts_segment for turn in plain.turns]
    assert found.outcome == plain.outcome


def test_what_the_model_is_asked_of_a_state_is_a_turn_of_its_own(small_chat: Chat) -> None:
    found = play(small_chat, "searched?size=1&score=model+text", ["c", "10", "f"])
    assert [turn.action.text for turn in found.turns] == ["c", "10", "f"]
    assert own_words(small_chat, found, 1).count("How promising is this") == 1
    assert "How promising" not in own_words(small_chat, found, 2)


def own_words(chat: Chat, trajectory: Trajectory, number: int) -> str:
    return str(chat.tokenizer.decode(list(list_contexts(trajectory)[number])))


def test_of_a_search_the_way_that_was_found_is_left_as_if_nobody_had_searched(small_chat: Chat) -> None:
    searched = play(small_chat, "searched?by=breadth&size=2&steps=9+text", ["b", "c", "d", "e", "f"])
    plain = play(small_chat, "text", ["c", "f"])
    found = follow_found(searched)
    assert list_contexts(found) == list_contexts(plain)
    assert [(t.action, t.observation, t.reward) for t in found.turns] == [
        (t.action, t.observation, t.reward) for t in plain.turns
    ]
    assert (found.final_observation, found.outcome) == (plain.final_observation, plain.outcome)
    assert [turn.starts_segment for turn in found.turns] == [True, True], (
        "each is trained behind its own prompt"
    )
    assert found.turns[-1].reward_terms == {"pay": 1.0}
    assert follow_found(plain) is plain and number_actions(searched) == [0, 1, 2, 3, 4]
    lost = play(small_chat, "searched?size=2&steps=2+text", ["x", "y"])
    assert follow_found(lost).turns == () and list(follow_searches([lost, searched, plain])) == [found, plain]
