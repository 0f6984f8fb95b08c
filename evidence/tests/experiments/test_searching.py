"""Experiments on agents that search: what they measure is what they say, by value, on small sizes."""

import numpy as np
import pytest
import torch

pytest.importorskip("bm25s")

from quintain.data.samples import samples_from
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.toolrl import search_r1 as method
from quintain.rewards.retrieval import first_stage, has_searched, is_well_formed
from quintain.types import Task
from quintain_evidence.experiments.toolrl import r1_searcher, research, search_o1, search_r1
from quintain_evidence.labs.observed import play_games

GRPO = method.method(method.Config(kl_coef=0.0))


@pytest.fixture(scope="module")
def reader() -> search_r1.Reader:
    return search_r1.Reader(seed=1, noise=2, mistakes=0.4, updates=2)


def test_a_reader_asks_reads_and_answers(reader: search_r1.Reader) -> None:
    [group, *_] = reader.batch(3, 4, seed=5)
    for t in group.trajectories:
        first, last = t.turns
        assert (
            len(first.prompt_ids) == 3 and len(last.prompt_ids) == 6 and last.prompt_ids[0] == search_r1.FOUND
        )
        query, word = last.prompt_ids[1] - search_r1.FIRST_KEY, last.prompt_ids[2]
        assert 0 <= query < search_r1.KEYS and 0 <= word - search_r1.FIRST_WORD < search_r1.WORDS
        asked = first.completion.token_ids[0] - search_r1.FIRST_KEY
        assert query == asked or not 0 <= asked < search_r1.KEYS
        if t.is_success and query == first.prompt_ids[1] - search_r1.FIRST_KEY:
            assert t.turns[1].completion.token_ids == (word,)


def test_without_a_mask_documents_are_trained_and_the_control_masks_as_many(reader: search_r1.Reader) -> None:
    groups = [g for g in reader.batch(8, 8, seed=7) if len({t.is_success for t in g.trajectories}) > 1]
    plain = GRPO.credit(GRPO.reward(groups), Estimates())
    whole = GRPO.credit(GRPO.reward(search_r1.unmasked(reader, groups)), Estimates())
    own, every = samples_from(plain), samples_from(whole)
    for few, many in zip(own, every, strict=True):
        assert (few.token_ids == many.token_ids).all()
        assert few.loss_weight.sum() == 2 and many.loss_weight.sum() == 8
    assert [s.loss_weight.sum() for s in search_r1.masked(every, own, 3)] == [2] * len(own)
    other = search_r1.with_other_documents(every, plain, 3)
    for sample, before, few in zip(other, every, own, strict=True):
        is_own = few.loss_weight > 0
        assert (sample.advantages[is_own] == before.advantages[is_own]).all()


def test_the_gradient_of_right_answers_is_exact() -> None:
    policy, golds = research.writer(3, 0.5)
    found = research.exact_gradient(policy, golds)
    theta = policy.theta.detach()
    step = torch.zeros_like(theta)
    step[0, golds[0, 0]] = 1e-5
    slope = (research.chance(theta + step, golds) - research.chance(theta - step, golds)) / 2e-5
    assert float(found[0, golds[0, 0]]) == pytest.approx(float(slope), rel=1e-4)
    assert not (research.elsewhere(golds, 1) == golds).all()
    groups = research.graded(policy.sample(size=4, seed=1), policy, golds, research.token_f1)
    for group in groups:
        for t in group.trajectories:
            written = [turn.completion.token_ids[0] - policy.world.num_states for turn in t.turns]
            right = np.mean(np.array(written) == golds[group.task.seed])
            assert t.is_success == (right == 1) and (t.turns[-1].reward >= right)


def test_an_answer_takes_two_searches_that_find() -> None:
    game = r1_searcher.Question(r1_searcher.NO_TASK, closed=False, finds=0.8, known=0.9, guessed=0.1)
    assert game.row() == 0 and not game.act(r1_searcher.SEARCH, 0.9).is_over
    assert game.row() == 1, "searched once, found nothing"
    for _ in range(2):
        game.act(r1_searcher.SEARCH, 0.5)
    moved = game.act(r1_searcher.ANSWER, 0.85)
    assert moved.is_success and moved.is_over and dict(moved.terms) == {"answer": 1.0}
    closed = r1_searcher.Question(r1_searcher.NO_TASK, closed=True, finds=0.8, known=0.9, guessed=0.1)
    assert closed.act(r1_searcher.ANSWER, 0.5).is_success and closed.key() == ""


def test_luck_is_paid_in_the_first_stage_alone() -> None:
    def made(task: Task) -> r1_searcher.Question:
        return r1_searcher.Question(task, closed=False, finds=0.8, known=0.9, guessed=0.1)

    def paid(arm: OnPolicy) -> list[float]:
        arm.state.update(groups)
        return [value for group in arm.reward(groups) for value in group.returns]

    start = r1_searcher.shy_start(1, 0.5)
    groups = play_games(start, made, r1_searcher.tasks("train", 1, 16), size=8, seed=2)
    arm = r1_searcher.unrelated(1, 3, 0.5)
    first, second = paid(arm), paid(arm)
    assert first != second == paid(r1_searcher.made(0))
    searched = [first_stage(has_searched(t), is_well_formed(t)) for g in groups for t in g.trajectories]
    assert paid(r1_searcher.made(5)) == searched and np.corrcoef(first, searched)[0, 1] < 0.9
    assert abs(np.mean(first) - np.mean(searched)) < 0.1, "as often, in other episodes"


def test_no_document_enters_the_chain() -> None:
    [row] = search_o1.measure({"episodes": 4}, 11)
    assert row["trials"] == row["control_trials"] == row["control_violations"] == 4 and row["violations"] == 0
    assert row["extra.saved"] > 0.2 > row["extra.null_saved"]
    [raw] = search_o1.played(search_o1.LONG, "tags", 1, 3)
    assert search_o1.returned(raw) and len(search_o1.queries(raw)) == search_o1.num_asked(raw)
