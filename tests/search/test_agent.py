"""A search as teacher: what it finds, what it costs, and that it leaves the environment as it was."""

from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.environments.baselines import play
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, advance, begin
from quintain.errors import EnvironmentFault, UsageError
from quintain.rollout.collect import Rollout
from quintain.search.agent import Found, Searcher, is_search, refuse_unsearchable, search
from quintain.types import Action, StepResult, Task
from quintain.warm_start.start import build_agent
from quintain.worlds.craft.game import Craft
from quintain.worlds.sokoban.game import Sokoban


class Line(Environment):
    """Walk to 3. Act: left or right."""

    name = "line"
    max_turns = 4

    def __init__(self) -> None:
        self.place = self.steps = 0

    def reset(self, task: Task) -> str:
        self.place = self.steps = 0
        return "0"

    def step(self, action: Action) -> StepResult:
        self.steps += 1
        self.place += 1 if action.text == "right" else -1
        is_done = self.place == 3
        return StepResult(
            observation=str(self.place), reward=float(is_done), is_terminated=is_done, is_success=is_done
        )

    def legal_actions(self) -> tuple[str, ...]:
        return "left", "right"

    def snapshot(self) -> int:
        return self.place

    def restore(self, state: int) -> None:
        self.place = state


class Keyed(Line):
    """Walk to 3. Act: left or right."""

    def state_key(self) -> str:
        return str(self.place)


class Paid(Line):
    """Walk right: every step there pays. Act: left or right."""

    def step(self, action: Action) -> StepResult:
        result = super().step(action)
        return StepResult(
            observation=result.observation, reward=0.25 if action.text == "right" else 0.0,
            is_terminated=result.is_terminated, is_success=result.is_success,
        )  # fmt: skip


def begin_new(make: Any) -> Any:
    environment = make()
    begin(environment, environment.task("train", 0))
    return environment


def test_the_shortest_way_and_its_cost_by_hand() -> None:
    # Depth 1: left, right. Depth 2: 4 more. Depth 3, the last at right right right: LLx, LRx, RLx, RRL, RRR.
    way = ("right", "right", "right")
    assert search(begin_new(Line), nodes=100) == Found(actions=way, is_solved=True, num_nodes=14)
    assert search(begin_new(Line), nodes=14).is_solved
    assert search(begin_new(Line), nodes=13) == Found(actions=(), is_solved=False, num_nodes=13)
    # With keys: -1 and 1; from these -2 and 2 (0 is known); from -2: -3, from 2: left, right.
    assert search(begin_new(Keyed), nodes=100) == Found(actions=way, is_solved=True, num_nodes=10)


def test_best_first_follows_what_pays() -> None:
    # left and right; then only from what paid most: right, right.
    way = ("right", "right", "right")
    assert search(begin_new(Paid), nodes=100, by="best") == Found(actions=way, is_solved=True, num_nodes=6)
    assert search(begin_new(Paid), nodes=100, by="breadth").num_nodes == 14


def test_what_is_not_solved_goes_where_most_was_paid() -> None:
    assert search(begin_new(Paid), nodes=4, by="best") == Found(
        actions=("right", "right"), is_solved=False, num_nodes=4
    )


def test_nothing_is_looked_for_behind_the_last_turn() -> None:
    short = type("Short", (Line,), {"max_turns": 2, "__doc__": Line.__doc__})
    assert search(begin_new(short), nodes=100) == Found(actions=(), is_solved=False, num_nodes=6)


def test_the_environment_is_as_it_was_and_every_action_counts() -> None:
    line = begin_new(Line)
    advance(line, Action(text="left"))
    found = search(line, nodes=9)
    assert line.place == -1 and line.steps == 1 + found.num_nodes == 10


@pytest.mark.parametrize("world", [Sokoban, Craft])
@pytest.mark.parametrize("by", ["breadth", "best"])
def test_what_is_found_solves_the_task(world: type[Environment], by: Any) -> None:
    for number in range(6):
        environment = world()
        task = environment.task("train", number)
        begin(environment, task)
        found = search(environment, nodes=4000, by=by)
        left = list(found.actions)
        assert found.is_solved
        assert (
            play(environment, task, lambda _, __, left=left: Action(text=left.pop(0))).is_success and not left
        )


def test_more_nodes_solve_more_and_the_shortest_is_not_longer_than_the_experts() -> None:
    def solved(nodes: int) -> list[Found]:
        found: list[Found] = []
        for number in range(12):
            environment = Sokoban()
            begin(environment, environment.task("train", number))
            found.append(search(environment, nodes=nodes))
        return found

    few, many = solved(30), solved(2000)
    assert sum(f.is_solved for f in few) < sum(f.is_solved for f in many) == 12
    for number, each in enumerate(many):
        environment = Sokoban()
        shown = play(environment, environment.task("train", number), lambda e, _: e.expert_action())  # type: ignore[attr-defined] # pyright: ignore
        assert len(each.actions) <= len(shown.rewards)


def test_a_demonstrator_walks_its_way_once_for_each_episode(tokenizer: PreTrainedTokenizerFast) -> None:
    agent = build_agent(tokenizer, Sokoban, temperature=1.0)
    tasks = [Sokoban().task("train", number) for number in range(6)]
    rollout = Rollout(agent, Sokoban, None)
    episodes = [g.trajectories[0] for g in rollout.demonstrations(tasks, Searcher(nodes=2000), seed=1)]
    assert all(t.is_success for t in episodes)
    again = [g.trajectories[0] for g in rollout.demonstrations(tasks, Searcher(nodes=2000), seed=2)]
    assert [[turn.action for turn in t.turns] for t in again] == [
        [turn.action for turn in t.turns] for t in episodes
    ]
    poor = [g.trajectories[0] for g in rollout.demonstrations(tasks, Searcher(nodes=1), seed=1)]
    assert not all(t.is_success for t in poor), "a way that is not found is not walked"
    rollout.close()


def test_what_is_left_of_a_way_is_of_this_environment() -> None:
    searcher, first, second = Searcher(nodes=100), begin_new(Line), begin_new(Line)
    assert searcher(first, Random(0), ("0",)).text == "right"
    assert searcher(second, Random(0), ("0", "-1")).text == "left", (
        "the first legal action, where nothing was found"
    )
    assert [searcher(first, Random(0), ("0", "1")).text for _ in range(3)] == ["right", "right", "left"]


def test_specs_and_a_tree_beyond_its_memory_bound() -> None:
    assert Searcher.read("search") == Searcher(nodes=1000, by="breadth")
    assert Searcher.read("search?nodes=5&by=best") == Searcher(nodes=5, by="best")
    assert is_search("search?nodes=5") and not is_search("searcher") and not is_search("runs/search")
    for spec, words in (
        ("search?node=5", "option of 'search?node=5': got 'node'; did you mean 'nodes'?"),
        ("search?nodes=0", "nodes of 'search?nodes=0': got '0'; give an integer from 1 to 1000000"),
        (
            "search?nodes=1000001",
            "nodes of 'search?nodes=1000001': got '1000001'; give an integer from 1 to 1000000",
        ),
        ("search?by=depth", "by of 'search?by=depth': got 'depth'; choose from best, breadth"),
    ):
        with pytest.raises(UsageError) as raised:
            Searcher.read(spec)
        assert str(raised.value).startswith(words)


class Liar(Keyed):
    """Walk to 3. Act: left or right."""

    def restore(self, state: int) -> None:
        pass


def test_a_snapshot_that_lies_is_a_fault_and_no_way_that_was_found() -> None:
    with pytest.raises(EnvironmentFault, match=r"a state that line was to bring back: got '0', not '-1'; "):
        search(begin_new(Liar), nodes=50)


class Unkept(Environment):
    """Walk. Act: go."""

    def legal_actions(self) -> tuple[str, ...]:
        return ("go",)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            find("guess"),
            "a search in guess: got an environment that lists no legal actions; give it legal_actions()",
        ),
        (find("twocards"), "a search in twocards: got an environment of several seats"),
        (Unkept, "a search in unkept: got an environment that cannot be brought back; give it snapshot()"),
    ],
)
def test_what_cannot_be_searched_is_refused(make: Any, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        refuse_unsearchable(make())
    assert str(raised.value).startswith(words)
