"""STaR: hints that nothing imitated shows, loops that begin with the base, and steps that grow."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.methods.test_training import rows, train
from transformers import AutoTokenizer

from quintain.agents.hints import Hints, strip_hints
from quintain.data.pipeline import Pipeline, PipelineResult, as_example
from quintain.errors import ConfigError
from quintain.methods.loops import rounds
from quintain.methods.loops.rounds import as_collected
from quintain.methods.method import Collector
from quintain.methods.selftraining.star import Config, keep_unhinted, method, right, updates
from quintain.testing.episodes import Lived, record_cases
from quintain.text.parse import parse_react
from quintain.types import Example, Group, Sample, Task, Trajectory, Turn

SMALL: dict[str, Any] = {"tasks": 8, "first_updates": 2, "batch_size": 4, "max_turn_tokens": 8}


pytestmark = pytest.mark.usefixtures("quick")


def test_steps_grow_by_a_fifth() -> None:
    assert [updates(number, 40, 1.2) for number in range(1, 5)] == [40, 48, 57, 69]
    assert updates(1, 10, 2.0) == 10 and updates(4, 10, 2.0) == 80


def test_what_speaks_of_the_hint_is_not_imitated_and_prompts_lose_it() -> None:
    (group,) = record_cases([Lived(task=0, value=1.0, is_success=True, num_turns=2)])
    (good,) = group.trajectories
    told = saying(good, SAID.index("By the HINT it is 4"), index=1)
    failed = replace(good, outcome=replace(good.outcome, is_success=False), index=2)  # type: ignore[arg-type] # pyright: ignore
    hints = Hints(plain={(1,): ((7, 8), True)})
    made = Pipeline(right(), keep_unhinted(said), strip_hints(hints)).run(
        [as_example(t) for t in (good, told, failed)]
    )
    (kept,) = made.examples
    assert [turn.prompt_ids for turn in kept.trajectory.turns] == [(7, 8), (7, 8)]
    assert all(turn.completion.logprobs == () for turn in kept.trajectory.turns)
    assert [p.num_out for p in made.funnel.passages] == [2, 1, 1]
    untouched = strip_hints(Hints()).apply([as_example(good)])
    assert untouched[0].trajectory == good


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("Thought: The hint says the answer is 4.\nAction: answer[4]", False),
        ("<think>I was given a Hint: 4.</think><answer>4</answer>", False),
        ('I follow the hint. {"name": "answer", "arguments": {"value": 4}}', False),
        ('{"name": "answer", "arguments": {"why": "the hint", "value": 4}}', False),
        ("Thought: I think 2 and 2 are 4.\nAction: answer[4]", True),
        ("<think>2 and 2</think><answer>4</answer>", True),
    ],
)
def test_a_thought_that_speaks_of_the_hint_is_seen_whatever_the_harness_makes_of_it(
    text: str, is_kept: bool
) -> None:
    made = method(Config(rationalises=False))
    (group,) = record_cases([Lived(task=0, value=1.0, is_success=True, num_turns=1)])
    turn = replace(group.trajectories[0].turns[0], action=parse_react("Action: answer[4]"))
    group = replace(group, trajectories=(replace(group.trajectories[0], turns=(turn,)),))

    class Collecting:
        def tasks(self, step: int, count: int) -> list[Task]:
            return [group.task]

        def sample(self, step: int, tasks: Sequence[Task], *, size: int) -> list[Group]:
            return [group]

        def decode(self, token_ids: Sequence[int]) -> str:
            return text

    (chosen,) = as_collected(made.collect(cast(Collector, Collecting()), 1)).data
    assert isinstance(chosen, PipelineResult) and len(chosen.examples) == is_kept
    assert chosen.funnel.metrics["data/right"] == 1 and chosen.funnel.metrics["data/unhinted"] == is_kept


SAID = ("", "", "four", "By the HINT it is 4")
"""What tokens say."""


def said(turn: Turn) -> str:
    return " ".join(SAID[i] for i in turn.completion.token_ids)


def saying(trajectory: Trajectory, token: int, *, index: int) -> Trajectory:
    first, *rest = trajectory.turns
    completion = replace(first.completion, token_ids=(token,))
    return replace(trajectory, turns=(replace(first, completion=completion), *rest), index=index)


def test_hinted_episodes_are_learned_without_the_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[Sequence[Sample]] = []
    from_samples = rounds.learn_from
    monkeypatch.setattr(
        rounds,
        "learn_from",
        lambda policies, samples, update, **more: (
            learned.append(samples) or from_samples(policies, samples, update, **more)
        ),
    )
    folder = train("star", tmp_path / "star", **SMALL)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    played = [t for t in rows_of(folder) if "Hint: the answer is" in prompt(tokenizer, t)]
    assert played, "some tasks failed and were tried again"
    texts = [str(tokenizer.decode(sample.token_ids.tolist())) for batch in learned for sample in batch]
    assert texts and not any("hint" in text.lower() for text in texts)
    assert len(learned) in (2, 4) and all("data/stripped" in row for row in rows(folder)[1:])


def rows_of(folder: Path) -> list[Any]:
    from quintain.store.run import Run

    with Run.open(folder) as run:
        return [t for step in (1, 2) for t in run.trajectories(step=step, phase="train")]


def prompt(tokenizer: Any, trajectory: Any) -> str:
    return str(tokenizer.decode(list(trajectory.turns[0].prompt_ids)))


def test_every_loop_begins_with_the_start_on_its_own_data() -> None:
    made = method(Config())
    assert made.starts_over and made.memory == 1
    assert made.steps is not None and made.steps.count(3) == 57 and made.steps.batch_size == 8
    assert method(Config(rationalises=False)).needs.expert is False


def test_playing_apart_is_refused() -> None:
    with pytest.raises(ConfigError, match="use rollout=lockstep"):
        Config(rollout="async").check()


def test_examples_are_of_tasks_that_failed_or_did_not() -> None:
    groups = record_cases([Lived(task=0, value=1.0, is_success=True, num_turns=1)])
    made = Pipeline(right(), keep_unhinted(said), strip_hints(Hints()))(groups)
    assert [type(e) for e in made.examples] == [Example]
