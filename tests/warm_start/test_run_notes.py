"""What is said of a run before it begins."""

from dataclasses import replace
from pathlib import Path

import pytest

from quintain.environments.catalog import find
from quintain.errors import ConfigError
from quintain.methods.rl import grpo
from quintain.store.run import Run
from quintain.types import Action, Completion, Score, Stop, Task, Text, Trajectory, Turn
from quintain.warm_start.run_notes import (
    after_first_evaluation,
    before_imitation,
    before_teaching,
    find_trained_format,
)

TRADE = str(Path(__file__).resolve().parents[2] / "examples" / "trade.py") + ":Trade"


def run_of(folder: Path, environment: str) -> Path:
    with Run.create(folder, recipe="grpo", config={"environment": environment}):
        return folder


def test_random_demonstrations_are_named() -> None:
    (note,) = before_teaching(grpo.Config(environment=TRADE), find(TRADE))
    assert "has no expert_action(): the best episodes of random play are imitated" in note
    (note,) = before_teaching(grpo.Config(environment=TRADE, demonstrations=48), find(TRADE))
    assert "has no expert_action(): its 48 demonstrations are random valid actions" in note
    assert "docs/own-environment.md" in note
    (note,) = before_teaching(grpo.Config(environment="guess", tokens_per_microbatch=10**11), find("guess"))
    assert "up to 100,000,000,000 tokens" in note and "lower tokens_per_microbatch (usual: 16,384)" in note
    assert not list(before_teaching(grpo.Config(environment="guess", model="tiny"), find("guess")))
    assert not list(before_teaching(grpo.Config(environment="x", demonstrations=0), find(TRADE)))
    assert not list(before_teaching(grpo.Config(environment="x", demonstrations="a.jsonl"), find(TRADE)))


@pytest.mark.parametrize(
    ("agent", "environment", "said"),
    [
        (
            "mine.py:run?expert=expert",
            "guess",
            "48 episodes are imitated that the agent plays with its expert=",
        ),
        ("mine.py:run", "guess", "48 episodes of the environment's expert are imitated, through the harness"),
        ("mine.py:run", TRADE, "48 episodes of random valid actions are imitated, through the harness"),
    ],
)
def test_what_an_agent_outside_imitates_is_named(agent: str, environment: str, said: str) -> None:
    (note,) = before_teaching(grpo.Config(environment=environment, agent=agent), find(environment))
    assert note.startswith(said) and "--demonstrations" in note
    (note,) = before_teaching(
        grpo.Config(environment=environment, agent=agent, demonstrations=9), find(environment)
    )
    assert note.startswith(said.replace("48", "9"))
    assert not list(before_teaching(grpo.Config(agent=agent, demonstrations=0), find(environment)))


def test_a_model_that_was_taught_elsewhere_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path / "first", "keydoor?rooms=2")
    assert find_trained_format(str(run / "model")) == find_trained_format(str(run)) == "keydoor?rooms=2"
    assert (
        find_trained_format("tiny") == find_trained_format(str(tmp_path / "first" / "model" / "deep")) == ""
    )
    (note,) = before_teaching(grpo.Config(environment="guess", model=str(run / "model")), find("guess"))
    assert "was taught in keydoor?rooms=2, and this run is in guess" in note
    harder = grpo.Config(environment="keydoor?rooms=4", model=str(run / "model"))
    assert not list(before_teaching(harder, find("keydoor")))


def test_a_warm_start_that_is_more_than_the_run_is_named() -> None:
    config = grpo.Config(environment="guess", steps=2, tasks=2, group_size=2, imitation_epochs=6)
    (note,) = before_imitation(config, config, 4, [10] * 4)
    assert "goes 6 times through 40 tokens, 3.0 times what 2 steps will train on" in note
    assert not list(before_imitation(config, replace(config, steps=6), 4, [10] * 4)), (
        "240 tokens, and 240 are trained on"
    )
    assert not list(before_imitation(config, config, 4, []))


@pytest.fixture
def played() -> list[Trajectory]:
    task = Task(id="t", environment="guess", seed=0)
    turn = Turn(
        observation=(Text(text="?"),),
        prompt_ids=(1, 2),
        completion=Completion(token_ids=(3,), logprobs=(-1.0,), stop="stop"),
        action=Action(text="guess"),
        reward=0.0,
    )
    score = Score(value=1.0, is_success=True)
    solved = Trajectory(
        task=task, turns=(turn,), stop=Stop.TERMINATED, outcome=score, seed=1, group="g", index=0
    )
    return [solved, replace(solved, outcome=Score(value=0.0, is_success=False))]


def test_prompts_that_do_not_fit_are_refused(played: list[Trajectory]) -> None:
    config = grpo.Config(environment="guess", max_turn_tokens=32)
    full = [replace(t, turns=(), stop=Stop.MAX_TOKENS) for t in played]
    with pytest.raises(
        ConfigError, match=r"guess: got 2 tasks, none of whose first prompts fits into the 1,024"
    ):
        list(after_first_evaluation(config, full, (0.0, 1.0), 1024))
    (note,) = after_first_evaluation(
        config, [replace(t, stop=Stop.MAX_TOKENS) for t in played], (0.0, 1.0), 64
    )
    assert "2 of 2 held-out episodes ended because their stream was full (64 tokens)" in note
    assert not list(after_first_evaluation(config, played, (0.0, 1.0), 64))
    assert not list(after_first_evaluation(config, [], (0.0, 1.0), 64))


def test_rewards_that_leave_their_range_are_named(played: list[Trajectory]) -> None:
    config = grpo.Config(environment="guess")
    (note,) = after_first_evaluation(config, played, (0.0, 0.5), 64)
    assert (
        "returns from 0 to 1 leave the range 0 to 0.5 that the environment names; set its return_range"
        in note
    )
