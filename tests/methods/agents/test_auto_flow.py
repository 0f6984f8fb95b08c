"""AutoFlow keeps what earned more on the same tasks, and a score belongs to the text that was followed."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.build import make_episode, make_group, make_turn
from tests.methods.test_training import rows, train

from quintain.agents.workflow import Follow, Workflow, read_workflow
from quintain.methods.agents.auto_flow import (
    INVALID,
    PLAIN,
    Tried,
    kept_workflow,
    mean_score,
    question_text,
    read_history,
    try_texts,
)
from quintain.runs.collector import Collector
from quintain.store.run import Run
from quintain.types import Failure, Score


def flow(says: str) -> str:
    return f"a ::: terminal ::: {says} :::"


def test_the_best_of_a_step_is_kept_and_a_tie_keeps_the_old_one() -> None:
    seen: list[str] = []

    def follow(flows: Sequence[Workflow]) -> list[float]:
        seen.extend(each.text for each in flows)
        return [0.5, 0.5, 0.75][: len(flows)]

    kept = read_workflow(flow("Old."))
    tried = try_texts([flow("Same."), "Well, I would look.", flow("New.")], kept, follow)
    assert seen == [flow("Old."), flow("Same."), flow("New.")], "what cannot be read is followed by nobody"
    assert [each.score for each in tried] == [0.5, 0.5, 0.75, INVALID]
    assert [each.is_kept for each in tried] == [False, False, True, False]
    assert tried[-1].text == "Well, I would look." and "1 parts" in tried[-1].fault
    assert kept_workflow(tried).text == flow("New.")
    assert try_texts([flow("Same.")], kept, follow)[0].is_kept, "a tie keeps the old one"
    assert kept_workflow([]).text == read_workflow(PLAIN).text


def test_the_question_shows_good_ones_and_the_kept_one_with_its_mean() -> None:
    history = [
        Tried(text=flow("Kept."), score=0.5, is_kept=True),
        Tried(text=flow("Lucky."), score=0.9),
        Tried(text=flow("Bad."), score=0.1),
        Tried(text=flow("Kept."), score=0.75, is_kept=True),
        Tried(text="?", score=INVALID, fault="line 1 with 1 parts"),
    ]
    text = question_text(history, 1, "Hello.")
    assert text == (
        f"A task begins:\nHello.\n\nWorkflow with score 0.90:\n{flow('Lucky.')}\n\n"
        f"Best workflow, with score 0.62:\n{flow('Kept.')}\n\nOne could not be read: line 1 with 1 parts"
    )
    assert "Bad." in question_text(history, 2, "Hello.") and "score" not in question_text([], 2, "Hello.")


def test_failures_of_the_machinery_are_no_scores() -> None:
    broken = make_episode(make_turn(), outcome=Failure(owner="environment", kind="timeout", message="gone"))
    group = make_group(make_episode(make_turn(), outcome=Score(value=0.5, is_success=False)), broken)
    assert mean_score([group]) == 0.5 and mean_score([]) == 0.0


@pytest.mark.slow
def test_a_resumed_run_knows_its_workflows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(
        _self: Collector, _told: str, questions: Sequence[str], *, seed: int, max_tokens: int
    ) -> list[str]:
        asked.extend(questions)
        return [flow(f"Say {seed % 97 + k}.") if k else "?" for k, _ in enumerate(questions)]

    monkeypatch.setattr(Collector, "ask", answer)
    sizes = {"tasks": 2, "candidates": 3, "environment": "guess"}
    whole = train("auto_flow", tmp_path / "whole", steps=2, **sizes)
    with Run.open(whole) as run:
        history = read_history(run)
        assert [each.fault != "" for each in history] == [False, False, False, True] * 2
        assert len({*run.weights().values()}) == 1, "no weight changed"
        kept = kept_workflow(history)
        assert len(read_history(run, before=2)) == 4
        played = [t.group for t in run.trajectories(step=1, phase="train")]
    assert len(played) == len(set(played)) == 3 * 2, "each workflow has its own groups of the same tasks"
    assert "One could not be read" in asked[-1] and "Best workflow" in asked[-1]
    assert Follow(None, None, file=str(whole / "flow.txt")).flow == kept  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert [row.get("flow/unread") for row in rows(whole)][-1] == pytest.approx(1 / 3)
