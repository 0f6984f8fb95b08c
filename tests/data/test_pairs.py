"""Pairs by their sources: which side is chosen, what is refused and counted, and what is computed once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.build import make_episode, make_turn

from quintain.data.pack import pack
from quintain.data.pairs import (
    Deviation,
    Estimate,
    Pairs,
    across_halves,
    best_and_lower,
    best_and_worst,
    check_pairs,
    expert_and_agent,
    extremes,
    halves,
    pair_wins_with_losses,
    refusal,
    siblings,
    step_pairs,
    top_share,
)
from quintain.data.samples import pair_samples
from quintain.errors import UsageError
from quintain.models.layout import layout
from quintain.types import (
    Failure,
    Group,
    Pair,
    Score,
    Stop,
    Task,
    Trajectory,
)


def episode(
    *said: int | Sequence[int],
    value: float = 0.0,
    task: str = "t",
    index: int = 0,
    stop: Stop = Stop.TERMINATED,
    shown: int = 50,
) -> Trajectory:
    """An episode whose turns sampled `said`, one token or several each."""
    turns = tuple(
        make_turn(
            (ids,) if isinstance(ids, int) else tuple(ids),
            logprob=None,
            prompt=(shown + number,),
            starts_segment=number == 0,
        )
        for number, ids in enumerate(said)
    )
    return make_episode(
        *turns,
        task=Task(id=task, environment="toy", seed=0),
        outcome=Score(value=value, is_success=value > 0.5),
        stop=stop,
        seed=100 + index,
        group=task,
        index=index,
    )


def group(*values: float, task: str = "t") -> Group:
    """Episodes with these outcomes, each of one token of its own."""
    members = tuple(episode(k, value=v, task=task, index=k) for k, v in enumerate(values))
    return Group(task=members[0].task, trajectories=members)


def places(pairs: Pairs) -> list[tuple[int, int]]:
    return [(pair.chosen.index, pair.rejected.index) for pair in pairs]


WON, LOST = episode(1, value=1.0), episode(2)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (Pair(chosen=WON, rejected=episode(2, task="u"), margin=1.0), "other_task"),
        (Pair(chosen=WON, rejected=WON, margin=1.0), "identical"),
        (Pair(chosen=WON, rejected=episode(()), margin=1.0), "one_sided"),
        (Pair(chosen=episode(1), rejected=episode(1, 2), level="turn", margin=1.0), "one_sided"),
        (Pair(chosen=WON, rejected=episode(2, stop=Stop.MAX_TOKENS), margin=1.0), "cut"),
        (Pair(chosen=WON, rejected=LOST, margin=0.0), "margin"),
        (Pair(chosen=WON, rejected=episode(2, stop=Stop.MAX_TURNS), margin=1.0), None),
        (Pair(chosen=episode(1, stop=Stop.CUT), rejected=LOST, margin=1.0), None),
    ],
)
def test_what_no_pair_can_be_is_refused(pair: Pair, reason: str | None) -> None:
    assert refusal(pair) == reason
    assert check_pairs([pair]).refused == ({} if reason is None else {reason: 1})


def test_a_broken_side_is_on_no_side() -> None:
    import dataclasses

    broken = dataclasses.replace(LOST, outcome=Failure(owner="tool", kind="timeout", message=""))
    assert refusal(Pair(chosen=WON, rejected=broken, margin=1.0)) == "failure"


def test_preferences_of_people_have_no_margin_and_may_not_contradict_each_other() -> None:
    given = [
        Pair(chosen=WON, rejected=LOST),
        Pair(chosen=LOST, rejected=WON),
        Pair(chosen=WON, rejected=episode(3)),
    ]
    found = check_pairs(given, margin=None)
    assert list(found) == given[2:] and found.refused == {"contradicting": 2}
    assert str(found) == "1 pairs; 2 refused, because another pair says the opposite"
    assert found[0] is given[2] and found[:1] == (given[2],)
    assert found.metrics == {
        "data/pairs": 1.0,
        "data/refused/contradicting": 2.0,
        "data/chosen_turns": 1.0,
        "data/rejected_turns": 1.0,
    }
    assert check_pairs([]).metrics == {"data/pairs": 0.0}


def test_the_best_against_the_worst_with_ties_to_the_lower_index() -> None:
    found = best_and_worst([group(0.2, 1.0, 1.0, 0.0, 0.0), group(0.5, 0.5), group(1.0)])
    assert places(found) == [(1, 4)] and found.refused == {"margin": 1}


def test_halves_pair_inwards() -> None:
    assert places(halves([group(0.1, 0.9, 0.5, 0.7, 0.3)])) == [(1, 0), (3, 4)]
    assert places(halves([group(0.1, 0.9, 0.5, 0.7)], share=0.25)) == [(1, 0)]
    assert halves([group(0.4, 0.4)]).refused == {"margin": 1}
    with pytest.raises(UsageError, match=r"share of the better side: got 0.6"):
        halves([], share=0.6)


def test_one_that_won_against_one_that_lost_is_drawn_by_seeds() -> None:
    mixed = group(1.0, 0.0, 1.0, 0.0, 0.0)
    found = pair_wins_with_losses([mixed, group(1.0, 1.0)], count=9)
    assert len(found) == 2 and found == pair_wins_with_losses([mixed], count=9)
    assert {pair.chosen.index for pair in found} == {0, 2}
    assert len({pair.rejected.index for pair in found}) == 2
    assert all(pair.chosen.is_success and not pair.rejected.is_success for pair in found)
    assert len(pair_wins_with_losses([mixed])) == 1


def test_the_expert_is_chosen_where_it_is_better_and_rejected_where_it_is_worse() -> None:
    expert = episode(90, value=0.5, index=-1)
    found = expert_and_agent([group(0.0, 0.5, 1.0), group(0.0, task="unknown")], {"t": expert})
    assert places(found) == [(-1, 0), (2, -1)]
    assert [pair.margin for pair in found] == [0.5, 0.5] and found.refused == {"margin": 1}


def deviation(outcomes: tuple[float, float], steps: tuple[float, float], said: int = 7) -> Deviation:
    """The agent's and the expert's outcome, and the values of their steps; the agent says `said` at the turn."""
    return Deviation(
        expert=episode(1, 2, 3, value=outcomes[1]),
        agent=episode(1, said, 8, 9, value=outcomes[0]),
        turn=1,
        agent_value=Estimate((steps[0],)),
        expert_value=Estimate((steps[1],)),
    )


def test_a_step_is_preferred_where_outcome_and_value_agree() -> None:
    given = [
        deviation((1, 0), (0.8, 0.6)),
        deviation((1, 0), (0.5, 0.6)),
        deviation((0, 1), (0.2, 0.9), 6),
        deviation((0, 1), (0.6, 0.605)),
        deviation((1, 1), (0.2, 0.9)),
    ]
    found = step_pairs(given, margin=0.01)
    assert [(len(p.chosen.turns), len(p.rejected.turns)) for p in found] == [(4, 3), (3, 4)]
    assert [p.margin for p in found] == pytest.approx([0.2, 0.7]) and found.refused == {"margin": 3}
    only = step_pairs(given, margin=0.01, is_action_only=True)
    assert [(len(p.chosen.turns), len(p.rejected.turns)) for p in only] == [(2, 2), (2, 2)]
    samples = pair_samples(only[:1])
    assert [sample.loss_weight.tolist() for sample in samples] == [[0, 0, 0, 1], [0, 0, 0, 1]]


def test_the_variance_of_a_monte_carlo_value() -> None:
    assert Estimate((1.0, 0.0, 1.0, 1.0, 0.0)).mean == 0.6
    assert Estimate((1.0, 0.0, 1.0, 1.0, 0.0)).variance == pytest.approx(0.3 / 5)
    assert Estimate((1.0,)).variance == 0.0


def test_children_of_a_node_are_paired_beyond_the_margin() -> None:
    children = [(episode(1, k, index=k), value) for k, value in ((10, 0.85), (11, 0.3), (12, 0.9))]
    found = siblings([children, []], margin=0.2)
    assert places(found) == [(12, 11), (10, 11)] and found.refused == {"margin": 1}
    assert {pair.level for pair in found} == {"turn"}


def test_the_best_child_against_the_worst_with_ties_by_chance() -> None:
    def family(*values: float) -> list[tuple[Trajectory, float]]:
        return [(episode(1, 10 + k, index=k), value) for k, value in enumerate(values)]

    (pair,) = extremes([family(0.2, 0.9, 0.4), family(0.5), []])
    assert (pair.chosen.index, pair.rejected.index, pair.margin) == (1, 0, pytest.approx(0.7))
    found = extremes([family(0.5, 0.5), family(0.25, 0.75)], margin=0.5)
    assert not found and found.refused == {"margin": 2}
    drawn = [extremes([family(*[0.8] * num, 0.1)])[0].chosen.index for num in range(2, 9)]
    assert any(drawn), "not the first of equals"
    assert drawn == [extremes([family(*[0.8] * num, 0.1)])[0].chosen.index for num in range(2, 9)]


def test_ways_on_of_the_better_half_are_paired_with_some_of_the_worse() -> None:
    worth = (0.1, 0.9, 0.5, 0.7, 0.1)
    ways = [(episode(1, 10 + k, index=k), value) for k, value in enumerate(worth)]
    every = across_halves([ways, ways[:1], []], 9)
    assert sorted(places(every)) == [(1, 0), (1, 4), (3, 0), (3, 4)], "the one in the middle is in no half"
    assert {pair.level for pair in every} == {"turn"}
    few = across_halves([ways], 2)
    assert len(set(places(few))) == 2 and set(places(few)) < set(places(every))
    assert places(few) == places(across_halves([ways], 2)), "drawn by their seeds"
    even = across_halves([[ways[0], ways[4]]], 4)
    assert not even and even.refused == {"margin": 1}, "equal ones are no pair"


def test_the_best_of_a_task_that_was_solved_against_all_that_are_lower() -> None:
    solved, unsolved = group(0.2, 1.0, 1.0, 0.6), group(0.4, 0.2, task="u")
    assert places(best_and_lower([solved, unsolved])) == [(1, 3), (1, 0)]
    dear = group(1.0, 0.96, 0.5)
    assert places(best_and_lower([dear])) == [(0, 1), (0, 2)]
    assert places(best_and_lower([dear], margin=0.05)) == [(0, 2)], "a question more is no failure"


def test_turns_may_be_no_more_than_were_asked_for() -> None:
    ways = [episode(1, said, value=said, stop=Stop.CUT) for said in (1, 0)]
    pair = Pair(chosen=ways[0], rejected=ways[1], level="turn", margin=1.0)
    assert refusal(pair) is None
    assert refusal(replace(pair, level="trajectory")) == "cut"
    assert refusal(replace(pair, rejected=replace(ways[1], stop=Stop.MAX_TOKENS))) == "cut"


def test_the_share_of_pairs_with_the_largest_margins() -> None:
    pairs = best_and_worst([group(0.0, v, task=f"t{v}") for v in (0.3, 0.9, 0.5, 0.5)] + [group(0.0, 0.0)])
    assert [p.margin for p in top_share(pairs, 0.5)] == [0.9, 0.5, 0.5]
    assert [p.margin for p in top_share(pairs, 0.01)] == [0.9] and not top_share(Pairs(()), 0.5)
    assert top_share(pairs, 0.5).refused == {"margin": 1}
    with pytest.raises(UsageError, match=r"share of pairs: got 0; give"):
        top_share(pairs, 0)


def test_what_both_sides_of_a_step_share_is_computed_once() -> None:
    ways = [episode(range(9), range(5), said, value=said) for said in (1, 0)]
    pair = Pair(chosen=ways[0], rejected=ways[1], level="turn", margin=1.0)
    batch = pack(pair_samples([pair]))
    assert batch.lengths == (18, 18) and len(layout(batch, share=True).token_ids) == 36 - 16
