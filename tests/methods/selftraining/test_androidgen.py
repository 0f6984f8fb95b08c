"""AndroidGen: where failures are cut, and that what is kept can be carried out again to the same state."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus
from tests.methods.test_training import rows, train
from transformers import AutoTokenizer

from quintain.agents.experience import TOLD, Experience
from quintain.agents.hints import Hints
from quintain.data.pipeline import Pipeline, as_example
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin
from quintain.methods.loops import rounds
from quintain.methods.rl.parts.contexts import ExpertLabels, ask_progress
from quintain.methods.selftraining import androidgen
from quintain.rollout.initial_states import first_observation
from quintain.store.run import Run
from quintain.testing.pupil import new_pupil, tasks_from
from quintain.types import (
    Action,
    Completion,
    Group,
    Sample,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
)

WORLD = "web?goal=order&popups=0.2"


@pytest.mark.parametrize(
    ("before", "num"),
    [
        ([0, 0, 0.5, 0, 0.5, 0.5], 4),
        ([0, 0.5, 0.25, 0.25], 0),
        ([0, 0.25, 0.5, 0.25], 1),
        ([0, 0.5], 1),
        ([0, 0, 0], 0),
        ([0.5], 0),
        ([], 0),
        ([0, None, 0.5, 0.5], 0),
        ([0, 0.5, None, 0.5], 1),
    ],
)
def test_what_is_kept_was_never_undone(before: list[float | None], num: int) -> None:
    assert androidgen.num_kept(before) == num


def test_failures_are_cut_whole_turns_and_lead_to_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_corpus(monkeypatch)
    pupil = new_pupil([WORLD], seed=0, model="micro?tokens=words")
    shown = pupil.show(WORLD, tasks_from(WORLD, 40), noisy(0.6), seed=0)
    critic = ExpertLabels(WORLD, ask_progress)
    made = Pipeline(androidgen.cut_behind_reached(critic.labels)).run([as_example(t) for t in shown])
    failed = [t for t in shown if not t.is_success]
    cut = [e.trajectory for e in made.examples if not e.trajectory.is_success]
    assert 0 < len(cut) < len(failed) < len(shown)
    assert len(made.examples) - len(cut) == len(shown) - len(failed)
    site = find(WORLD)()
    for t in cut:
        whole = next(own for own in failed if own.task.id == t.task.id)
        assert t.turns == whole.turns[: len(t.turns)] and len(t.turns) < len(whole.turns)
        begin(site, t.task)
        levels = [ask_progress(site)]
        for turn in t.turns:
            advance(site, turn.action)
            levels.append(ask_progress(site))
        assert levels[-1] == critic.labels(whole)[len(t.turns)]
        assert levels[-1] is not None and levels[-2] is not None and levels[-1] > levels[-2]
    none = Pipeline(androidgen.cut_behind_reached(critic.labels, has_failures=False)).run(
        [as_example(t) for t in shown]
    )
    assert all(e.trajectory.is_success for e in none.examples)


def test_one_subgoal_is_never_kept_by_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_corpus(monkeypatch)
    world = "web?goal=open&depth=1"
    pupil = new_pupil([world], seed=0, model="micro?tokens=words")
    critic = ExpertLabels(world, ask_progress)
    shown = pupil.show(world, tasks_from(world, 20), noisy(0.9), seed=0)
    failed = [t for t in shown if not t.is_success]
    assert all(androidgen.num_kept(critic.labels(t)) == 0 for t in failed)


def test_tasks_are_played_with_what_was_solved_from_easy_to_hard() -> None:
    config = androidgen.Config(environment=WORLD, tasks=3, group_size=2, oversample_factor=3)
    experience, told = Experience(), list[Hints]()
    collect = androidgen.sample_experienced(config, experience, androidgen.cut_behind_reached(lambda _: []))
    asked: list[tuple[int, list[str], bool, int]] = []
    site = find(WORLD)()

    class Played:
        """A collector that plays nothing."""

        def tasks(self, step: int, count: int) -> list[Task]:
            return [site.task("train", 100 * step + number) for number in range(count)]

        def sample(
            self, step: int, tasks: list[Task], *, size: int, agent: Any = None, again: int = 0
        ) -> list[Group]:
            asked.append((size, [task.id for task in tasks], agent is not None, again))
            if agent is not None:
                told.append(agent.__self__)
            return []

    collector: Any = Played()
    assert collect(collector, 1).groups == []
    assert asked == [(2, [f"web/train/{100 + n}" for n in range(3)], False, 0)], "nothing was solved yet"
    near = collector.tasks(2, 9)[7]
    solved = replace(near, id="web/train/7777")
    turn = Turn(
        observation=as_content(first_observation(find(WORLD), solved)), prompt_ids=(1,),
        completion=Completion(token_ids=(2,), logprobs=(), stop="stop"), action=Action(text="click lamps"),
    )  # fmt: skip
    lived = Trajectory(
        task=solved, turns=(turn,), outcome=Score(value=1.0, is_success=True), stop=Stop.TERMINATED, seed=0,
        group="g", index=0,
    )  # fmt: skip
    experience.update([Group(task=solved, trajectories=(lived,))])
    collect(collector, 2)
    size, names, is_told, again = asked[-1]
    assert (size, len(names), is_told, again) == (2, 3, True, 1) and names[0] == near.id, (
        "the nearest comes first"
    )
    (hints,) = told
    likes = [experience.find(name, hints.texts[name]) for name in names]
    assert all(each is not None for each in likes)
    assert all(text.startswith("A task like this one was solved: ") for text in hints.texts.values())
    assert hints.texts[near.id].endswith("Done: click lamps.") and len(asked) == 2


def test_what_is_learned_says_nothing_of_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    shorten_corpus(monkeypatch)
    learned: list[Sequence[Sample]] = []
    samples_of = rounds.samples_of

    def seen(data: Any) -> list[Sample]:
        learned.append(samples_of(data))
        return list(learned[-1])

    monkeypatch.setattr(rounds, "samples_of", seen)
    folder = train("androidgen", tmp_path / "run", tasks=8, group_size=2)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    with Run.open(folder, writable=False) as run:
        told = [
            t
            for t in run.trajectories(step=2, phase="train")
            if TOLD in text_of(tokenizer, t.turns[0].prompt_ids)
        ]
    assert told, "what was solved in the first step is told in the second"
    texts = [text_of(tokenizer, sample.token_ids.tolist()) for batch in learned for sample in batch]
    assert texts and not any(TOLD in text for text in texts)
    assert [row["androidgen/experience"] > 0 for row in rows(folder)[1:]] == [True, True]


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids)))
