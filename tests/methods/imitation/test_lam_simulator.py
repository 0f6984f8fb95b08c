"""LAM Simulator: which turns count, which calls are compared, and that a silent tool is nobody's mistake."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.build import shorten_corpus

from quintain.data.pipeline import Pipeline, as_example
from quintain.data.samples import pair_samples
from quintain.data.stages import keep_solved, valid_turns
from quintain.environments.noisy import noisy
from quintain.losses.preference import dpo_value
from quintain.methods.imitation import lam_simulator as lam
from quintain.testing.pupil import new_pupil, tasks_from
from quintain.types import Group, Pair, Trajectory

Make = Callable[..., Trajectory]
WORLD = "toolbox?steps=1&tools=2"


def played(
    make: Make, said: list[tuple[int, ...]], wrong: tuple[int, ...] = (), value: float = 1.0
) -> Trajectory:
    """Return an episode that says the tokens `said`; the turns `wrong` were refused, and it is told so."""
    shown = [(1,), *((9,) if number in wrong else (3,) for number in range(len(said) - 1))]
    found = make(list(zip(shown, said, strict=True)), value=value)
    turns = tuple(replace(t, is_valid=number not in wrong) for number, t in enumerate(found.turns))
    return replace(found, turns=turns)


def group(*episodes: Trajectory) -> Group:
    return Group(
        task=episodes[0].task,
        trajectories=tuple(replace(t, index=k) for k, t in enumerate(episodes)),
    )


def test_recoveries_are_imitated_and_refused_calls_are_not(trajectory: Make) -> None:
    recovered = played(trajectory, [(5, 2), (6, 2), (7, 2)], wrong=(0,))
    failed = played(trajectory, [(6, 2), (8, 2)], value=0.0)
    made = Pipeline(keep_solved(), valid_turns())([group(recovered, failed)])
    (example,) = made.examples
    assert example.weights is not None
    assert [own.tolist() for own in example.weights] == [[0, 0], [1, 1], [1, 1]]
    assert example.trajectory.turns[0].prompt_ids == (1,), "the refused call stays as context"
    plain = lam.method(lam.Config(filters=False)).build([group(recovered, failed)])
    assert [e.weights for e in getattr(plain, "examples")] == [None, None]  # noqa: B009 - a pipeline's result


def test_calls_are_compared_where_episodes_part_behind_the_same_tokens(trajectory: Make) -> None:
    right = played(trajectory, [(5, 2), (7, 2)])
    refused = played(trajectory, [(6, 2), (5, 2), (7, 2)], wrong=(0,))
    (pair,) = lam.call_pairs([group(right, refused)])
    assert [len(side.turns) for side in (pair.chosen, pair.rejected)] == [1, 1]
    assert pair.chosen.turns[0].completion.token_ids == (5, 2)
    assert pair.rejected.turns[0].completion.token_ids == (6, 2) and pair.level == "turn"
    chosen, rejected = pair_samples([pair])
    assert chosen.token_ids.tolist() == [1, 5, 2] and rejected.token_ids.tolist() == [1, 6, 2]
    assert chosen.loss_weight.tolist() == rejected.loss_weight.tolist() == [0, 1, 1]


def test_only_the_turn_where_they_part_has_weight(trajectory: Make) -> None:
    right = played(trajectory, [(5, 2), (7, 2), (8, 2)])
    refused = played(trajectory, [(5, 2), (6, 2), (7, 2)], wrong=(1,))
    (pair,) = lam.call_pairs([group(right, refused)])
    chosen, rejected = pair_samples([pair])
    assert chosen.token_ids.tolist() == [1, 5, 2, 3, 7, 2]
    assert chosen.loss_weight.tolist() == rejected.loss_weight.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (([(5, 2), (7, 2)], (), 1.0), ([(6, 2), (7, 2)], (), 1.0)),
        (([(5, 2), (7, 2)], (), 0.0), ([(6, 2), (7, 2)], (0,), 1.0)),
        (([(5, 2), (7, 2)], (0,), 1.0), ([(6, 2), (7, 2)], (0,), 1.0)),
        (([(5, 2), (7, 2)], (), 1.0), ([(5, 2), (7, 2)], (), 1.0)),
    ],
)
def test_calls_of_one_worth_and_of_failures_are_not_compared(trajectory: Make, left: Any, right: Any) -> None:
    one, other = (played(trajectory, said, wrong=wrong, value=value) for said, wrong, value in (left, right))
    assert lam.call_pairs([group(one, other)]) == []


def test_episodes_that_were_shown_other_things_have_no_common_turn(trajectory: Make) -> None:
    one, other = trajectory([((1,), (5, 2))]), trajectory([((4,), (6, 2))])
    assert lam.parting(one, other) is None and lam.parting(one, one) is None


def test_the_same_comparison_is_made_once(trajectory: Make) -> None:
    right, refused = played(trajectory, [(5, 2), (7, 2)]), played(trajectory, [(6, 2), (7, 2)], wrong=(0,))
    assert len(lam.call_pairs([group(right, right, refused, refused)])) == 1


def test_an_even_pair_costs_log_two_and_halves_the_slope(trajectory: Make) -> None:
    import torch

    margin = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    loss = dpo_value(0.1)(margin)
    (slope,) = torch.autograd.grad(loss, margin)
    assert loss.item() == pytest.approx(0.6931471806) and slope.item() == pytest.approx(-0.05)


def test_a_tool_that_does_not_answer_is_no_wrong_call(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_corpus(monkeypatch)
    pupil = new_pupil([WORLD], seed=0, model="micro?tokens=words", agent="text")
    tasks = tasks_from(WORLD, 12)
    shown = pupil.show(f"{WORLD}&vague=0&failures=0.5", tasks, noisy(0.0), seed=0)
    assert any("did not answer" in str(turn.observation) for t in shown for turn in t.turns)
    assert all(turn.is_valid for t in shown for turn in t.turns)
    assert lam.measure_refusals([group(*shown)], pupil.decode)["lam/refused"] == 0
    erring = pupil.show(f"{WORLD}&vague=1", tasks, noisy(0.0), seed=0)
    told = lam.measure_refusals([group(*erring)], pupil.decode)
    assert 0 < told["lam/refused"] < 1 and told["lam/recovered"] == 1
    assert all(t.is_success for t in erring)
    kept = Pipeline(keep_solved(), valid_turns()).run([as_example(t) for t in erring])
    assert len(kept.examples) == 12


def test_a_round_imitates_and_then_compares(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def any_two(groups: Any) -> list[Pair]:
        return [Pair(chosen=g.scored[0], rejected=g.scored[1], margin=1.0) for g in groups]

    monkeypatch.setattr(lam, "call_pairs", any_two)
    fields = {"steps": 1, "tasks": 4, "group_size": 2, "demonstrations": 8, "filters": False}
    rows = train("lam_simulator", environment=WORLD, agent="text", model="micro?tokens=words", **fields)
    last = rows[-1]
    assert last["data/kept"] == 8 and last["data/2/pairs"] == 4
    assert last["preference/loss"] == pytest.approx(0.6931, abs=0.05), "the loss of the last training, DPO"
    assert {"lam/refused", "lam/recovered"} <= last.keys()
