"""The warm start goes on until tasks are solved: with an expert, by luck, and where it cannot."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.build import shorten_corpus

import quintain
from quintain.environments.boundary import spec_of
from quintain.environments.catalog import find
from quintain.learning.learner import Learner
from quintain.learning.train_config import GroupConfig, OnPolicyConfig
from quintain.models.fingerprint import fingerprint
from quintain.rollout.progress import Display
from quintain.store.run import Run
from quintain.types import Action, Score, Stop, Task, ToolCall, Trajectory
from quintain.warm_start import auto_warm_start
from quintain.warm_start.auto_warm_start import (
    EVENT,
    SEARCH,
    ImitationReport,
    best_of,
    count_episodes,
    is_taught,
    most_updates,
    teach,
)
from quintain.warm_start.start import fumbling, imitator, make_start


class Word(quintain.Environment):
    """Say the word you are shown."""

    def reset(self, task: Task) -> str:
        self.word = task.rng.choice(["ball", "door", "key"])
        return f"Say: {self.word}"

    def legal_actions(self) -> tuple[str, ...]:
        return ("ball", "door", "key")

    def step(self, action: Action) -> quintain.StepResult:
        is_right = action.text.strip() == self.word
        return quintain.StepResult(
            observation="", reward=float(is_right), is_terminated=True, is_success=is_right
        )


class Taught(Word):
    """Say the word you are shown."""

    def expert_action(self) -> Action:
        return Action(text=self.word)


class Hopeless(Word):
    """Say the word you are shown."""

    def step(self, action: Action) -> quintain.StepResult:
        return quintain.StepResult(observation="", is_terminated=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    shorten_corpus(monkeypatch)
    monkeypatch.setattr("quintain.warm_start.probe.NUM_PROBED", 24)
    monkeypatch.setattr(auto_warm_start, "CHUNK", 16)
    monkeypatch.setattr(auto_warm_start, "SEARCH_CHUNK", 32)
    monkeypatch.setattr(auto_warm_start, "KEPT", 24)
    monkeypatch.setattr(auto_warm_start, "FRESH", 24)
    monkeypatch.setattr(auto_warm_start, "AGAIN", 12)
    monkeypatch.setattr(auto_warm_start, "ROUND_UPDATES", 6)
    monkeypatch.setattr(auto_warm_start, "MAX_UPDATES", 60)


def taught(kind: type[Word], folder: Path, **more: Any) -> tuple[dict[str, Any], str, list[dict[str, Any]]]:
    """How the warm start went, the weights after it, and what the run notes."""
    config = OnPolicyConfig(environment=spec_of(kind), model="micro", imitation_lr=1e-2, **more)
    make: Any = kind
    monkey = pytest.MonkeyPatch()
    monkey.setattr(auto_warm_start, "find", lambda _: make)
    model, tokenizer = make_start(config.model, make, seed=0)
    kept = asdict(replace(config, environment="word"))
    with (
        monkey.context(),
        Run.create(folder, recipe="grpo", config=kept) as run,
        Display("t", 1) as display,
    ):
        teach(model, tokenizer, config, run, display, rate=config.imitation_lr)
        events = run.events()
    monkey.undo()
    (found,) = (each["data"] for each in events if each["kind"] == EVENT)
    return found, fingerprint(model), events


@pytest.mark.slow
def test_an_expert_is_followed_until_most_of_the_tasks_are_solved_and_no_further(tmp_path: Path) -> None:
    found, weights, _ = taught(Taught, tmp_path / "a")
    updates, solved = found["success"][-1]
    assert solved >= auto_warm_start.TAUGHT > max([share for _, share in found["success"][:-1]], default=0.0)
    assert updates == found["updates"] < 60 and found["shown"] == 4 * updates
    assert taught(Taught, tmp_path / "b")[:2] == (found, weights), "it repeats bit for bit"


@pytest.mark.slow
def test_what_layers_of_lora_learn_is_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def success(name: str, factor: float) -> float:
        def adapt(model: Any, config: Any, rate: float | None) -> Learner:
            return imitator(model, replace(config, model="elsewhere"), factor * (rate or 0.0))

        monkeypatch.setattr(auto_warm_start, "imitator", adapt)
        found, _, _ = taught(Taught, tmp_path / name, lora_rank=16, lora_alpha=32.0)
        return found["success"][-1][1]

    assert success("learning", 1.0) >= 0.5 > success("resting", 1e-6)


def test_without_an_expert_the_best_of_random_play_is_followed(tmp_path: Path) -> None:
    found, weights, events = taught(Word, tmp_path / "a")
    (search,) = (each for each in events if each["kind"] == SEARCH)
    assert search["data"] == {"chunks": 3}, "a third of 96 episodes is right, 24 of them are kept"
    assert search["message"] == "96 random episodes, the best 24 returned 1 to 1"
    assert found["success"][-1][1] >= 0.5
    assert taught(Word, tmp_path / "b")[1] == weights


def test_where_nothing_is_ever_rewarded_only_the_form_is_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_warm_start, "MAX_TURNS", 64)
    found, _, events = taught(Hopeless, tmp_path / "a")
    (search,) = (each for each in events if each["kind"] == SEARCH)
    assert search["message"] == "64 random episodes, none of which was rewarded"
    assert (found["updates"], found["success"]) == (6, [[6, 0.0]])
    (said,) = (each["message"] for each in events if each["kind"] == EVENT)
    assert "because random play was never rewarded" in said and "lack of time" not in said
    assert "self.reward(found=0.2)" in said and "docs/it-does-not-learn.md" in said


def test_a_pretrained_model_that_solves_any_task_does_not_imitate_random_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_warm_start, "new_model", lambda _: None)
    monkeypatch.setattr(auto_warm_start.Probe, "success", lambda *_: 0.25)
    monkeypatch.setattr(auto_warm_start, "is_pretrained", lambda _: True)
    found, _, events = taught(Word, tmp_path / "elsewhere")
    assert (found["updates"], found["success"]) == (0, [[0, 0.25]])
    assert not [each for each in events if each["kind"] == SEARCH]
    monkeypatch.setattr(auto_warm_start, "is_pretrained", lambda _: False)
    monkeypatch.setattr(auto_warm_start, "MAX_TURNS", 64)
    assert taught(Word, tmp_path / "here")[0]["updates"] > 0


def test_how_long_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_warm_start, "MAX_UPDATES", 1000)
    assert most_updates(9_000_000, 3_000) == 123
    assert most_updates(60_000, 3_000) == 1000
    assert most_updates(135_000_000, 3_000) == auto_warm_start.MIN_UPDATES
    assert most_updates(200_000, 25_000, trained=40) == 100, "never less than half a minute"
    assert most_updates(2_000_000, 5_000, trained=400) == 100, "as much as the training after it"
    assert most_updates(2_000_000, 5_000, trained=40_000) == 333, "never more than three minutes"
    assert count_episodes(OnPolicyConfig(), None) is None
    config = GroupConfig(steps=3, tasks=4, group_size=2, num_epochs=2)
    assert count_episodes(config, config.episodes_of_step) == pytest.approx(3 * 8 * (2 + 1 / 3))
    assert is_taught(OnPolicyConfig())
    assert not is_taught(OnPolicyConfig(demonstrations=8)) and not is_taught(OnPolicyConfig(demonstrations=0))
    assert not is_taught(OnPolicyConfig(agent="mine.py:run")), (
        "an agent outside is not let play for a warm start"
    )


def test_how_it_went_in_words() -> None:
    assert str(ImitationReport(success=[(0, 0.75)])) == "75% of training tasks solved without any"
    lesson = ImitationReport(most=60, updates=60, shown=480, success=[(16, 0.0), (60, 0.25)])
    assert str(lesson).startswith(
        "480 episodes imitated in 60 updates: training tasks solved 25%, where it ends"
    )
    assert str(ImitationReport(most=60, updates=16, shown=128, success=[(16, 0.5)])).endswith(
        "training tasks solved 50%"
    )


def test_a_warm_start_that_stays_where_it_is_says_why() -> None:
    def said(*shares: float, **more: bool) -> str:
        return str(ImitationReport(enough=0.9, updates=9, success=list(enumerate(shares)), **more))

    level = (0.03, 0.14, 0.23, 0.22, 0.23, 0.22, 0.22)
    assert "where it stays: the expert knows what the agent is not shown" in said(*level, has_expert=True)
    assert "where it stays: the rest is too hard, or the model is too small" in said(*level)
    assert "for lack of time" in said(0.03, 0.14, 0.23, 0.22, 0.2) + said(0.2, 0.2, 0.2, 0.2)
    assert "where it" not in said(0.91, 0.91, 0.91, 0.91, 0.91, has_expert=True)


def played(name: str, value: float, turns: int, *, index: int = 0) -> Trajectory:
    return Trajectory(
        task=Task(id=name, environment="word", seed=0),
        turns=cast(Any, (None,) * turns),
        outcome=Score(value=value, is_success=value > 0.5),
        stop=Stop.TERMINATED,
        seed=0,
        group=name,
        index=index,
    )


def test_the_best_are_of_the_highest_return_and_of_those_the_shortest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    episodes = [played("a", 0.2, 1), played("b", 1.0, 5), played("c", 1.0, 3), played("d", 1.0, 3)]
    assert [each.task.id for each in best_of(episodes)] == ["c", "d", "b", "a"]
    monkeypatch.setattr(auto_warm_start, "KEPT", 2)
    assert [each.task.id for each in best_of(episodes)] == ["c", "d", "b"], "what solved its task stays"


def test_of_each_task_one_episode_is_kept() -> None:
    tries = [
        played("c", 0.7, 2),
        played("a", 0.2, 2),
        played("a", 1.0, 6, index=1),
        played("a", 1.0, 4, index=2),
        played("b", 0.0, 1),
    ]
    assert [(each.task.id, each.index) for each in best_of(tries)] == [("a", 2), ("c", 0), ("b", 0)]
    assert best_of([played("a", 1.0, 4, index=n) for n in range(3)])[0].index == 0, "the first of equal ones"


def test_a_fumbled_call_is_text_that_cannot_be_read() -> None:
    from random import Random

    call = Action(tool_calls=(ToolCall(name="look", arguments={}),))
    always, never = fumbling(lambda *_: call, 1.0), fumbling(lambda *_: call, 0.0)
    environment: Any = find("guess")()
    assert never(environment, Random(0), ()) == call
    broken = always(environment, Random(0), ())
    assert not broken.tool_calls and broken.text not in ("", '<tool_call>{"name": "look", "arguments": {}}')
