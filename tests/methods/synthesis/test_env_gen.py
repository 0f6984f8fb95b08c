"""EnvGen: cycles by value, feedback from the original world alone, and a run that goes on as the first one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.engines.chat_model import KEY, ChatModel
from tests.methods.rl.conftest import Runner, rows, weights

from quintain.curriculum.skills import Known
from quintain.environments.catalog import find
from quintain.errors import ConfigError, UsageError
from quintain.methods.method import Collector
from quintain.methods.synthesis.env_gen import Config, Cycles, method
from quintain.runs.context import TrainingContext
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, Task
from quintain.worlds.craft.game import Craft

SMALL: dict[str, Any] = {
    "environment": "craft?depth=2",
    "tasks": 4,
    "group_size": 2,
    "generated_steps": 2,
    "original_steps": 2,
    "cycles": 2,
}


class Tasks:
    """Stands in for the collector: tasks by number, and seeds."""

    def tasks(self, step: int, count: int) -> list[Task]:
        return [Craft(depth=2).task("train", step * count + place) for place in range(count)]

    def seed(self, *parts: int | str) -> int:
        return sum(map(len, map(str, parts)))


def configuration(**settings: Any) -> Config:
    """Return the small settings, but for `settings`."""
    return Config(**cast(Any, {**SMALL, **settings}))


COLLECTOR = cast(Collector, Tasks())


def groups(tasks: list[Task], success: Callable[[str], bool]) -> list[Group]:
    """Return a group of two for each task, solved where `success` of its skill says so."""
    world, found = Craft(depth=2), list[Group]()
    for task in tasks:
        world.reset(task)
        is_solved = success(world.skill())
        episode = episode_of([turn_of((3,), Action(text="wait"))], float(is_solved), is_success=is_solved)
        found.append(Group(task=task, trajectories=(episode, episode)))
    return found


def play_cycle(cycles: Cycles, first: int, success: Callable[[str], bool]) -> list[list[Task]]:
    """Play the four steps from `first` on and return their tasks."""
    laid: list[list[Task]] = []
    for step in range(first, first + 4):
        laid.append(cycles.lay_out(COLLECTOR, step))
        is_original = not any(task.data for task in laid[-1])
        cycles.update(groups(laid[-1], success if is_original else lambda _: True))
    return laid


def test_a_cycle_is_played_in_configurations_and_then_in_the_original() -> None:
    cycles = Cycles(find("craft?depth=2"), configuration())
    laid = play_cycle(cycles, 1, lambda skill: skill == "table")
    asked = [[task.data.get("configuration", {}).get("skill", "") for task in tasks] for tasks in laid]
    assert set(asked[0]) == {"table", "wood pickaxe", "wood sword"}, (
        "of three skills none is left out of four"
    )
    assert asked[0] == asked[1], "one set of configurations a cycle"
    assert asked[2] == asked[3] == [""] * 4
    assert [task.id.rpartition("?")[2] for task in laid[0]] == [f"configuration={n}" for n in range(4)]
    played = sum(known.tries for known in cycles.report.values())
    assert played == 2 * 4 * 2, "of the original steps alone, in which not all was solved"
    assert any(known.successes == 0 for known in cycles.report.values())


def test_feedback_is_of_the_original_world_and_of_the_last_cycle() -> None:
    cycles = Cycles(find("craft?depth=2"), configuration())
    play_cycle(cycles, 1, lambda _: False)
    assert cycles.report and not any(known.successes for known in cycles.report.values()), (
        "all was solved in configurations"
    )
    play_cycle(cycles, 5, lambda _: True)
    assert all(known.successes == known.tries for known in cycles.report.values())
    kept = dict(cycles.report)
    later = play_cycle(cycles, 9, lambda _: False)
    assert not any(task.data for tasks in later for task in tasks), "after the last cycle: the original world"
    assert cycles.report == kept


def test_what_a_step_recorded_is_enough_to_go_on() -> None:
    first, second = (Cycles(find("craft?depth=2"), configuration()) for _ in range(2))
    laid = first.lay_out(COLLECTOR, 1)
    for cycles in (first, second):
        cycles.update(groups(laid, lambda _: True))
    assert first.lay_out(COLLECTOR, 2) == second.lay_out(COLLECTOR, 2)
    assert first.laid_out == second.laid_out


@pytest.mark.parametrize(("generator", "wanted"), [("weakest", 0.98), ("random", 0.5)])
def test_weak_skills_are_asked_for_by_feedback_alone(generator: str, wanted: float) -> None:
    cycles = Cycles(find("craft?depth=2"), configuration(generator=generator, configurations=1))
    known = Known(tries=998, successes=998)
    cycles.report = {"table": known, "wood sword": known, "wood pickaxe": Known(tries=998)}
    tasks = COLLECTOR.tasks(0, 1)
    skills = [cycles.write(tasks, seed)[0]["configuration"]["skill"] for seed in range(60)]
    share = skills.count("wood pickaxe") / 60
    assert share >= wanted if generator == "weakest" else 0.2 < share < wanted


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"generator": "gpt"}, "generator: got 'gpt'; give weakest, random"),
        ({"tasks": 2}, "tasks: got 2 with 4 configurations"),
        ({"max_staleness": 1, "rollout": "async"}, "got max_staleness 1"),
        ({"generator": "http://127.0.0.1:1/v1"}, "without a model"),
    ],
)
def test_what_no_run_can_have_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configuration(**settings).check()


def test_a_world_that_cannot_be_laid_out_is_refused_before_anything_is_played() -> None:
    with pytest.raises(UsageError, match="configurations of guess: got one that cannot be laid out"):
        method(Config(environment="guess"))


@pytest.mark.slow
def test_a_model_writes_and_a_run_that_was_broken_off_does_not_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def say(body: dict[str, Any]) -> str:
        said.append(body["messages"][1]["content"])
        return '```json\n{"skill": "table", "start": {"wood": 1}}\n```\n```json\n{"skill": "moon"}\n```'

    model = ChatModel(say)
    (tmp_path / "key").write_text(KEY)
    settings = {**SMALL, "cycles": 1, "generator": f"{model.url}?model=m&key_file={tmp_path}/key", "steps": 4}
    runner = Runner(tmp_path)
    try:
        whole = runner.train("env_gen", **settings)
        assert len(said) == 1, "once a cycle"
        curve = rows(whole)
        assert [row.get("env_gen/is_generated") for row in curve[1:]] == [1.0, 1.0, 0.0, 0.0]
        assert [row["env_gen/refused"] for row in curve[1:]] == [1.0] * 4
        assert [row["env_gen/drawn"] for row in curve[1:]] == [3.0] * 4
        record: Callable[..., None] = TrainingContext.record

        def record_and_ask(context: TrainingContext, committed: int, *rest: Any) -> None:
            record(context, committed, *rest)
            context.interruption.is_asked = committed == 1

        with monkeypatch.context() as patch:
            patch.setattr(TrainingContext, "record", record_and_ask)
            stopped = runner.train("env_gen", **settings)
        asked = len(said)
        runner.resume(stopped)
        assert len(said) == asked, "the configurations of the cycle stand in the journal"
    finally:
        model.listener.close()
    assert rows(stopped) == curve and weights(stopped / "model") == weights(whole / "model")
