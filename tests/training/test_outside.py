"""A run whose episodes are played by an agent outside: through training, evaluation and resuming."""

import sys
import types
from pathlib import Path
from typing import Any

import openai
import pytest

from quintain import api
from quintain.agents.harness import PlainText
from quintain.errors import ConfigError
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.training.context import check_run
from quintain.training.job import GroupJob, Job
from quintain.training.outside import find_source
from quintain.types import Score, Task
from quintain.worlds.guess.game import Guess

MODULE = "agents_outside_of_a_test"


def run_agent(base_url: str, api_key: str, task: Task) -> float:
    """Ask for a number, and be paid for an even number of letters: chance decides, so there is something to learn."""
    with openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
        found = client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": str(Guess().reset(task))}]
        )
    return float(len(found.choices[0].message.content or "") % 2)


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType(MODULE)
    vars(made)["run_agent"] = run_agent
    monkeypatch.setitem(sys.modules, MODULE, made)


def test_a_run_and_its_evaluation(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "environment": "guess", "agent": f"{MODULE}:run_agent", "model": "micro", "steps": 1, "tasks": 2,
        "group_size": 3, "eval_every": 1, "eval_episodes": 2, "demonstrations": 2, "imitation_epochs": 1,
        "max_turn_tokens": 6, "max_broken": 1.0,
    }  # fmt: skip
    folder = api.train("grpo", run="one", root=tmp_path, config=settings)
    with Run.open(folder, writable=False) as run:
        rows = run.metrics()
        assert [row["step"] for row in rows] == [0, 1]
        assert rows[1]["endpoint/calls"] == rows[1]["endpoint/delivered"] == 1.0
        episodes = list(run.trajectories(step=1, phase="train"))
        assert [(t.group, t.index) for t in sorted(episodes, key=lambda t: (t.group, t.index))] == [
            (f"{place}:guess/train/{place + 2}", index) for place in range(2) for index in range(3)
        ]
        for episode in episodes:
            (turn,) = episode.turns
            assert isinstance(episode.outcome, Score) and turn.reward == episode.outcome.value
            assert turn.facts["delivery"] == "whole" and len(turn.completion.logprobs) > 0
            assert turn.completion.policy_version == 0
        held_out = list(run.trajectories(step=1, phase="eval"))
        assert (
            {t.turns[0].completion.policy_version for t in held_out} == {1} if rows[1]["train/loss"] else True
        )
    found, trajectories = api.evaluate(folder, episodes=2)
    assert found.num == 2 and all(turn.facts for t in trajectories for turn in t.turns)


def test_what_plays_episodes() -> None:
    chat = Chat(train_tokenizer(["<|user|>A wall.<|assistant|>left<|end|>"], 300))
    assert find_source(PlainText(chat), "async") == "async"
    assert Job(agent="mine.py:run_agent").plays_apart and Job(rollout="async").plays_apart
    assert not Job().plays_apart
    with pytest.raises(ConfigError, match="which plays by itself; leave seats out"):
        check_run(GroupJob(agent="mine.py:run_agent", seats={"agent": "policy"}), {})
