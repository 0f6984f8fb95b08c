"""ReST meets ReAct: a row for every step, ranked by text alone."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.data.pipeline import Pipeline, PipelineResult, as_example
from quintain.errors import ConfigError, UsageError
from quintain.methods.find import find_method
from quintain.methods.selftraining import rest_react
from quintain.store.run import Run
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn


def step(task: str, index: int, text: str, *, value: float = 0.0, logprob: float = -1.0) -> Trajectory:
    turn = Turn(
        observation=(),
        prompt_ids=(1,),
        completion=Completion(token_ids=(index + 2, 2), logprobs=(logprob, logprob), stop="stop"),
        action=Action(text=text),
    )
    return Trajectory(
        task=Task(id=task, environment="stream", seed=0),
        turns=(turn,),
        outcome=Score(value=value, is_success=value == 1.0),
        stop=Stop.CUT,
        seed=0,
        group=task,
        index=index,
    )


def test_answers_are_grounded_where_their_number_stands_beside_the_key() -> None:
    read = "2 pages. red = 3. blue = 5. blue = 6 (new). blue?"
    assert [rest_react.grounding(read, f"answer {n}") for n in (3, 5, 6)] == [0, 0, 1]
    assert rest_react.grounding(read, "read") == 0
    assert rest_react.grounding("2 pages. red = 3. blue?", "read") == 1
    assert rest_react.grounding("2 pages. red = 3. blue?", "answer 3") == 0
    assert rest_react.grounding("darkblue = 3. blue?", "answer 3") == 0
    assert rest_react.grounding("no question", "answer 3") == 0
    assert rest_react.grounding("blue?", "what") == 0


def test_one_sample_of_every_step_is_kept_and_ties_go_to_the_first() -> None:
    steps = [step(f"a@{k}", i, text) for k in range(2) for i, text in enumerate(("x", "yes", "yes"))]
    stage = rest_react.keep_first_ranked(lambda t: float(t.turns[0].action.text == "yes"))
    made = Pipeline(stage).run([as_example(t) for t in steps])
    assert [(e.trajectory.task.id, e.trajectory.index) for e in made.examples] == [("a@0", 1), ("a@1", 1)]


def test_outcomes_are_never_read() -> None:
    steps = [step("a@0", i, text) for i, text in enumerate(("answer 1", "read", "answer 2"))]
    noisy = [replace(t, outcome=Score(value=float(i == 2), is_success=i == 2)) for i, t in enumerate(steps)]
    stage = rest_react.keep_first_ranked(lambda t: rest_react.grounding("red?", t.turns[0].action.text))
    kept = [[e.trajectory.index for e in stage.apply([as_example(t) for t in own])] for own in (steps, noisy)]
    assert kept == [[1], [1]]


def test_the_least_perplexed_sample_is_the_likeliest_by_token() -> None:
    samples = [step("a@0", i, "x", logprob=p) for i, p in enumerate((-2.0, -0.5, -1.0))]
    method = rest_react.method(rest_react.Config(ranker="perplexity"))
    made = method.build([Group(task=samples[0].task, trajectories=tuple(samples))])
    assert isinstance(made, PipelineResult)
    (kept,) = made.examples
    assert kept.trajectory.index == 1
    with pytest.raises(UsageError, match="begin the round anew"):
        rest_react.method(rest_react.Config()).build(
            [Group(task=samples[0].task, trajectories=tuple(samples))]
        )
    with pytest.raises(ConfigError, match="2 or more"):
        rest_react.Config(samples=1).check()


@pytest.mark.parametrize("starts_over", [True, False])
def test_every_step_of_every_episode_is_sampled_again(
    starts_over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    rested: list[Sequence[float]] = []
    found = find_method("rest_react")
    config: Any = found.config_class(
        environment="stream?pages=2&facts=2", model="micro", demonstrations=8, imitation_epochs=1, steps=2,
        eval_every=5, eval_episodes=2, tasks=3, samples=3, max_turn_tokens=16, starts_over=starts_over,
    )  # fmt: skip
    config.check()
    with Run.create(tmp_path / "run", recipe="rest_react", config=asdict(config)) as run:
        found.make(config).train(run, config)
        rows = list(run.metrics())
    for row in rows[1:]:
        rested.append([row["data/in"], row["data/ranked_first"]])
        assert row["data/in"] == 3 * row["data/ranked_first"] >= 9
    assert len(rested) == 2
