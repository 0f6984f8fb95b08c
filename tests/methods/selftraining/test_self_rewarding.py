"""Self-Rewarding LM: scores are read, averaged and compared within a task; the judge's drift raises an alarm."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.errors import ConfigError
from quintain.learning.thresholds import Thresholds
from quintain.methods.find import find_method
from quintain.methods.selftraining import self_rewarding
from quintain.methods.selftraining.self_rewarding import (
    agreement,
    measure_judge,
    prefer_best,
    read_score,
    score_of,
)
from quintain.runs.monitors.alarms import alarms
from quintain.store.run import Run
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn


def answer(
    task: str, number: int, verdicts: Sequence[str], *, is_right: bool = False, tokens: int = 1
) -> Group:
    """One answer to `task` with each of its judgements."""

    def turn(text: str, count: int, **terms: float) -> Turn:
        return Turn(
            observation=(),
            prompt_ids=(1,),
            completion=Completion(token_ids=(number,) * count, logprobs=(-1.0,) * count, stop="stop"),
            action=Action(text=text),
            reward_terms=terms,
        )

    made = Task(id=task, environment="sums", seed=0)
    return Group(
        task=made,
        trajectories=tuple(
            Trajectory(
                task=made,
                turns=(turn(str(number), tokens, answer=float(is_right)), turn(verdict, 1)),
                outcome=Score(value=float(is_right), is_success=is_right),
                stop=Stop.CUT,
                seed=0,
                group=task,
                index=index,
            )
            for index, verdict in enumerate(verdicts)
        ),
    )


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("right", 1.0),
        ("Wrong.", 0.0),
        ("Score: 4.5", 0.9),
        ("All points. 5/5", 1.0),
        ("score : 3 / 5, for 1/2 is missing", 0.6),
        ("Score: 2, no. Score: 3", 0.6),
        ("Score: 6", None),
        ("15/50", None),
        ("It is right", None),
        ("", None),
    ],
)
def test_a_score_is_read_and_what_has_none_is_not_guessed(text: str, score: float | None) -> None:
    assert read_score(text) == score


def test_scores_are_averaged_over_the_judgements_that_can_be_read() -> None:
    assert score_of(answer("a", 7, ["Score: 3", "hm", "5/5"])) == pytest.approx(0.8)
    assert score_of(answer("a", 7, ["hm", "?"])) is None


def test_the_best_is_preferred_to_the_worst_and_ties_make_no_pair() -> None:
    said = {
        3: ["right", "wrong"],
        4: ["hm", "hm"],
        5: ["right", "right"],
        6: ["wrong", "wrong"],
        7: ["wrong"] * 2,
    }
    (pair,) = prefer_best([answer("a", number, verdicts) for number, verdicts in said.items()])
    assert (pair.chosen.turns[0].action.text, pair.rejected.turns[0].action.text) == ("5", "6")
    assert pair.margin == 1.0 and len(pair.chosen.turns) == len(pair.rejected.turns) == 1
    assert prefer_best([answer("a", number, ["Score: 3"] * 3) for number in range(4)]) == []
    assert prefer_best([answer("a", 1, ["right"]), answer("b", 2, ["wrong"])]) == [], "of different tasks"


def test_the_truth_is_in_no_pair_and_in_the_agreement() -> None:
    judged = [
        answer("a", 1, ["right"], is_right=True, tokens=3),
        answer("a", 2, ["wrong"]),
        answer("a", 3, ["hm"]),
    ]
    found = measure_judge(judged, lambda _: "")
    assert found == {
        "judge/agreement": 1.0,
        "judge/unread": pytest.approx(1 / 3),
        "judge/score": 0.5,
        "judge/answer_tokens": 2.0,
        "judge/preferred_tokens": 2.0,
    }
    fooled = [answer("a", 1, ["right"]), answer("a", 2, ["wrong"], is_right=True)]
    assert [p.chosen.turns[0].action.text for p in prefer_best(fooled)] == ["1"]
    assert measure_judge(fooled, lambda _: "")["judge/agreement"] == 0.0
    assert "judge/agreement" not in measure_judge(judged[:1], lambda _: "")


def test_agreement_is_the_share_of_pairs_ranked_rightly() -> None:
    assert agreement([(0.9, True), (0.5, True), (0.5, False), (0.7, False)]) == pytest.approx(2.5 / 4)
    assert agreement([(0.9, True)]) is None


def test_a_fall_of_the_agreement_raises_an_alarm_in_the_second_round() -> None:
    def said(*values: float) -> list[str]:
        return [
            a.name
            for a in alarms([{"monitor/failures": 0.0, "judge/agreement": v} for v in values], Thresholds())
        ]

    assert said(0.8) == said(0.8, 0.71) == []
    assert said(0.8, 0.9, 0.69) == ["judge"]


def test_an_answer_alone_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="no two could be compared"):
        self_rewarding.Config(group_size=1).check()


def test_each_round_learns_from_its_own_judgements_and_begins_at_equality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    found = find_method("self_rewarding")
    config: Any = found.config_class(
        environment="sums?digits=1", model="micro", demonstrations=48, imitation_epochs=6, steps=2, eval_every=5,
        eval_episodes=2, tasks=12, group_size=3, judgements=2, max_turn_tokens=8, learning_rate=5e-4,
    )  # fmt: skip
    config.check()
    with Run.create(tmp_path / "run", recipe="self_rewarding", config=asdict(config)) as run:
        found.make(config).train(run, config)
        rows = list(run.metrics())[1:]
    assert len(rows) == 2
    for row in rows:
        assert row["data/pairs"] > 0 and 0 <= row["judge/unread"] < 1
        # One minibatch and one epoch: M_t is its own reference, in the second round as in the first.
        assert row["preference/loss"] == pytest.approx(math.log(2), abs=1e-4)
