"""Agent Q: trees that grow in rounds, pairs of siblings, the logged reference, and who is asked as a critic."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines.chat_model import KEY, ChatModel
from tests.methods.preference.test_preference_rounds import WALK
from tests.methods.test_training import interrupting, resume, rows, train, weights

from quintain.errors import ConfigError, FailureRateError, UsageError
from quintain.methods.preference import agent_q
from quintain.store.run import Run
from quintain.types import Pair

FIELDS: dict[str, Any] = {
    "environment": WALK, "demonstrations": 16, "imitation_epochs": 6, "max_turn_tokens": 6, "tasks": 4,
    "branches": 3, "episodes": 5, "num_epochs": 1, "num_minibatches": 1,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """The pairs of all rounds, and no other reference is asked."""
    found: list[Pair] = []
    siblings = agent_q.siblings

    def kept(families: Any, **options: Any) -> Any:
        pairs = siblings(families, **options)
        found.extend(pairs)
        return pairs

    monkeypatch.setattr(agent_q, "siblings", kept)
    return found


@pytest.mark.slow
def test_siblings_are_compared_and_the_reference_is_who_sampled(tmp_path: Path, made: list[Pair]) -> None:
    folder = train("agent_q", tmp_path / "run", steps=1, **FIELDS)
    (row,) = rows(folder)[1:]
    assert row["data/pairs"] == len(made) > 0 and row["mcts/solved"] > 0
    assert row["preference/loss"] == pytest.approx(0.6931472, abs=1e-5), "nothing has moved yet"
    assert row["preference/margin"] == pytest.approx(0, abs=1e-4)
    assert row["mcts/agreement"] == 0.5, "who has learned nothing cannot tell"
    assert 0 <= row["mcts/followed"] <= row["mcts/solved"]
    for pair in made:
        one, other = pair.chosen.turns, pair.rejected.turns
        assert len(one) == len(other) and one[:-1] == other[:-1] and one[-1] != other[-1]
        assert pair.level == "turn" and pair.margin > 0.2
    with Run.open(folder, writable=False) as run:
        lengths = [len(t.turns) for t in run.trajectories(step=1, phase="train")]
    assert lengths[:12] == [1] * 12, "first all ways on from the roots"


@pytest.mark.slow
def test_a_broken_off_run_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = train("agent_q", tmp_path / "whole", **FIELDS), tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train("agent_q", stopped, **FIELDS)
    resume(stopped)
    assert weights(stopped / "model") == weights(whole / "model") and rows(stopped) == rows(whole)


def test_a_judge_ranks_the_ways_on(tmp_path: Path, made: list[Pair]) -> None:
    def judged(body: dict[str, Any]) -> str:
        (*_, last) = json.loads(body["messages"][-1]["content"])["turns"]
        return f"So.\nSCORE: {8 if last['said'] == 'up' else 2}"

    model = ChatModel(judged)
    (tmp_path / "key").write_text(KEY)
    try:
        spec = f"{model.url}?model=m&key_file={tmp_path}/key"
        folder = train("agent_q", tmp_path / "run", steps=1, judge=spec, exploration=3.0, **FIELDS)
    finally:
        model.listener.close()
    assert made and rows(folder)[1]["mcts/agreement"] > 0.5 and model.seen


def test_a_verdict_that_cannot_be_read_has_the_mean_rank_and_a_judge_without_any_ends_the_run(
    tmp_path: Path,
) -> None:
    def judged(body: dict[str, Any]) -> str:
        turns = json.loads(body["messages"][-1]["content"])["turns"]
        return "This is fine." if len(turns) == 2 else f"So.\nSCORE: {8 if turns[-1]['said'] == 'up' else 2}"

    model = ChatModel(judged)
    (tmp_path / "key").write_text(KEY)
    spec = f"{model.url}?model=m&key_file={tmp_path}/key"
    try:
        folder = train("agent_q", tmp_path / "run", steps=1, judge=spec, max_broken=0.9, **FIELDS)
        assert 0 < rows(folder)[1]["verdicts/unread"] < 0.9
        model.say = lambda _: "This is fine."
        with pytest.raises(FailureRateError, match=r"got (\d+) of \1 that cannot be used; .*'This is fine.'"):
            train("agent_q", tmp_path / "silent", steps=1, judge=spec, max_broken=0.9, **FIELDS)
    finally:
        model.listener.close()


def test_an_agent_that_speaks_to_itself_has_no_tree(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="a tree of what an agent does: got turns in which it speaks to itself"
    ):
        train("agent_q", tmp_path / "run", agent="plan", **FIELDS)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match="branches: got 1, of which no two could be compared"):
        agent_q.Config(branches=1).check()
    with pytest.raises(ConfigError, match="judge"):
        agent_q.Config(judge="nowhere").check()
