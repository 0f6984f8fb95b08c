import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from quintain.data import stages
from quintain.data.pipeline import Pipeline, PipelineResult, Stage, as_example, example_samples
from quintain.errors import DataError, InvariantError, UsageError
from quintain.types import Action, Failure, Score, Stop, Trajectory, Turn

Make = Callable[..., Trajectory]
Build = Callable[..., list[Trajectory]]


def run(stage: Stage, trajectories: Sequence[Trajectory]) -> PipelineResult:
    return Pipeline(stage).run([as_example(t) for t in trajectories])


def kept(stage: Stage, trajectories: Sequence[Trajectory]) -> list[str]:
    return [e.trajectory.id for e in run(stage, trajectories).examples]


def with_turns(trajectory: Trajectory, *changes: Mapping[str, Any]) -> Trajectory:
    turns = [replace(turn, **change) for turn, change in zip(trajectory.turns, changes, strict=True)]
    return replace(trajectory, turns=tuple(turns))


def weights(stage: Stage, trajectory: Trajectory) -> list[list[float]]:
    [example] = run(stage, [trajectory]).examples
    assert example.weights is not None
    return [own.tolist() for own in example.weights]


def test_solved_and_threshold_which_is_strict(episodes: Build) -> None:
    made = episodes([0.1, 0.5, 0.7, 0.9, 0.0])
    assert kept(stages.keep_solved(), made) == ["t0", "t1", "t2", "t3"]
    assert [len(kept(stages.threshold(cut), made)) for cut in (0.4, 0.6, 0.8)] == [3, 2, 1]
    assert kept(stages.threshold(0.5), made) == ["t2", "t3"]
    broken = replace(made[0], outcome=Failure(owner="tool", kind="timeout", message="30 s"))
    assert kept(stages.threshold(-1e9), [broken]) == []
    assert run(stages.threshold(0.5), made).funnel.passages[0].says == "has an outcome of 0.5 or less"


def test_a_quantile_keeps_what_ties_with_its_last(episodes: Build) -> None:
    assert kept(stages.quantile(0.25), episodes([0, 0, 0, 1])) == ["t3"]
    assert kept(stages.quantile(0.25), episodes([0, 1, 1, 1])) == ["t1", "t2", "t3"]
    assert kept(stages.quantile(0.01), episodes([0.1, 0.3, 0.2])) == ["t1"]
    assert len(kept(stages.quantile(1), episodes([0, 0.5, 1]))) == 3
    both = episodes([0.1, 0.2]) + episodes([0.8, 0.9], task="u")
    assert kept(stages.quantile(0.5), both) == ["u0", "u1"]
    assert kept(stages.quantile(0.5, per_task=True), both) == ["t1", "u1"]
    assert kept(stages.quantile(0.5), []) == []
    with pytest.raises(UsageError, match="best episodes: got 0; give a number above 0 and at most 1"):
        stages.quantile(0)


def test_the_shortest_fifth_of_a_task(episodes: Build) -> None:
    assert kept(stages.shortest(), episodes([1, 1, 1], [4, 6, 10])) == ["t0"]
    assert kept(stages.shortest(), episodes([1], [9])) == ["t0"]
    assert kept(stages.shortest(), episodes([1, 1, 1], [3, 3, 9])) == ["t0", "t1"]
    far = episodes([1, 1], [4, 6]) + episodes([1, 1], [20, 30], task="u")
    assert kept(stages.shortest(), far) == ["t0", "u0"]
    assert kept(stages.shortest(per_task=False), far) == ["t0"]


def test_groups_of_a_task_that_were_collected_twice_are_one_task(episodes: Build) -> None:
    again = [replace(t, group="later", id=f"l{t.index}") for t in episodes([1, 1], [2, 8])]
    assert kept(stages.shortest(), episodes([1, 1], [4, 6]) + again) == ["l0"]


def test_best_distinct_and_what_tells_of_a_group(episodes: Build) -> None:
    made = episodes([0.5, 1, 1], [1, 2, 1])
    assert kept(stages.best(), made) == ["t2"]
    assert kept(stages.best(2), made) == ["t1", "t2"]
    assert kept(stages.distinct(), [made[0], replace(made[0], id="again"), made[1]]) == ["t0", "t1"]
    mixed, same = episodes([0, 1]), episodes([1, 1], task="u")
    assert kept(stages.group_spread(), mixed + same) == ["t0", "t1"]
    assert kept(stages.group_spread(0.5), mixed) == []
    assert kept(stages.widest(0.5), same + mixed) == ["t0", "t1"]
    assert kept(stages.keep_solved_share(0.1, 0.9), mixed + same) == ["t0", "t1"]
    for wrong in (
        lambda: stages.best(0),
        lambda: stages.group_spread(-1),
        lambda: stages.widest(2),
        lambda: stages.keep_solved_share(0.5, 0.1),
        lambda: stages.num_turns(3, 2),
        lambda: stages.num_turns(0),
    ):
        with pytest.raises(UsageError, match="give"):
            wrong()


def test_ended_and_lengths(episodes: Build) -> None:
    made = episodes([1, 1, 1], [1, 2, 3])
    assert kept(stages.keep_ended(), [replace(made[0], stop=Stop.CUT), *made[1:]]) == ["t1", "t2"]
    assert kept(stages.num_turns(2), made) == ["t1", "t2"]
    assert kept(stages.num_turns(most=2), made) == ["t0", "t1"]


def test_episodes_that_went_through_the_same_states(episodes: Build) -> None:
    def through(trajectory: Trajectory, *states: str) -> Trajectory:
        return with_turns(trajectory, *({"state_key": state} for state in states))

    a, b, c = episodes([1, 1, 1], [2, 2, 2])
    other = replace(through(a, "s", "x"), task=replace(a.task, id="u"), id="u0")
    walked = [through(a, "s", "x"), through(b, "s", "x"), through(c, "s", "y"), other]
    assert kept(stages.distinct_states(), walked) == ["t0", "t2", "u0"]
    with pytest.raises(
        DataError, match=r"states of t0 \(e\): got 0 of 2 turns with one; collect with state keys"
    ):
        kept(stages.distinct_states(), [a])


def test_masks_by_seat_role_place_and_validity(trajectory: Make) -> None:
    three = trajectory([((1,), (2,)), ((3,), (4,)), ((5,), (6, 7))])
    played = with_turns(
        three,
        {"seat": "buyer/plan"},
        {"seat": "buyer", "is_valid": False},
        {"seat": "seller", "action": Action(error="no JSON")},
    )
    assert weights(stages.seat("buyer"), played) == [[1], [1], [0, 0]]
    assert weights(stages.role("plan"), played) == [[1], [0], [0, 0]]
    assert weights(stages.role("act"), played) == [[0], [1], [1, 1]]
    assert weights(stages.last_turn(), played) == [[0], [0], [1, 1]]
    assert weights(stages.valid_turns(), played) == [[1], [0], [0, 0]]
    gone = run(stages.seat("nobody"), [replace(played, id="a")])
    assert gone.examples == () and gone.funnel.passages[0].lost == ("a",)


def test_turns_are_discounted_from_the_last_and_masks_multiply(trajectory: Make) -> None:
    three = trajectory([((1,), (2,)), ((3,), (4,)), ((5,), (6, 7))])
    assert weights(stages.turn_discount(0.5), three) == [[0.25], [0.5], [1, 1]]
    made = Pipeline(stages.turn_discount(0.5), stages.without_end()).run([as_example(three)])
    assert [w.tolist() for w in made.examples[0].weights or ()] == [[0], [0], [1, 0]]
    assert made.funnel.num_tokens == 1
    with pytest.raises(UsageError, match="discount of a turn: got 0"):
        stages.turn_discount(0)


def test_the_end_of_a_turn_that_was_cut_has_no_token_of_its_own(trajectory: Make) -> None:
    one = trajectory([((1,), (2, 3)), ((4,), ())])
    cut = with_turns(one, {"completion": replace(one.turns[0].completion, stop="length")}, {})
    assert weights(stages.without_end(), one) == [[1, 0], []]
    assert weights(stages.without_end(), cut) == [[1, 1], []]


def test_critical_turns_carry_all_the_loss_and_the_others_none(trajectory: Make) -> None:
    three = trajectory([((1,), (2,)), ((3,), (4, 5)), ((6,), (7,))])
    made = run(stages.critical(lambda t: {1}), [three])
    [sample] = example_samples(made.examples)
    assert sample.loss_weight.tolist() == [0, 0, 0, 1, 1, 0, 0]
    assert made.funnel.num_tokens == 2
    assert run(stages.critical(lambda t: ()), [three]).examples == ()
    every = run(stages.critical(lambda t: range(3)), [three])
    assert example_samples(every.examples)[0].loss_weight.tolist() == [0, 1, 0, 1, 1, 0, 1]
    with pytest.raises(DataError, match="critical turns of t#0: got turn 3 of 3; count turns from 0"):
        run(stages.critical(lambda t: [0, 3]), [three])


def test_a_segment_weighs_its_score(trajectory: Make) -> None:
    four = trajectory([((1,), (2,)), ((3,), (4,)), ((5,), (6,)), ((7,), (8,))], segments=(0, 2, 3))
    scores: dict[tuple[int, ...], float] = {(2, 4): 0.5, (6,): -1.0, (8,): 2.0}

    def score(turns: Sequence[Turn]) -> float:
        return scores[tuple(i for turn in turns for i in turn.completion.token_ids)]

    assert weights(stages.segment_score(score), four) == [[0.5], [0.5], [0], [2]]


def test_perplexity_under_whoever_sampled_or_under_a_scorer(trajectory: Make) -> None:
    one = replace(trajectory([((1,), (10, 20))]), id="a")  # log-probs -1 and -2
    assert stages.sampling_perplexity(one) == pytest.approx(math.exp(1.5))
    assert kept(stages.perplexity(4.4, 4.5), [one]) == ["a"]
    assert kept(stages.perplexity(high=4.4), [one]) == []
    assert kept(stages.perplexity(1, 2, score=lambda t: 1.5), [one]) == ["a"]
    shown = trajectory([((1,), (10,))], logprobs=False)
    with pytest.raises(
        DataError, match="perplexity of t#0: got 0 log-probs of 1 tokens, as in demonstrations"
    ):
        kept(stages.perplexity(), [shown])
    with pytest.raises(UsageError, match="got 3 to 2; give low <= high"):
        stages.perplexity(3, 2)


def test_verifiers_and_tasks_that_are_held_out(episodes: Build) -> None:
    made = episodes([1, 1, 1], [1, 2, 3])
    assert kept(stages.keep_verified(lambda t: len(t.turns) == 2), made) == ["t1"]
    held_out = replace(made[0], task=replace(made[0].task, split="eval"))
    assert kept(stages.training_tasks(), [held_out, *made[1:]]) == ["t1", "t2"]
    assert kept(stages.training_tasks(lambda task: task.id == "t"), made) == []


def test_words_in_a_row_that_are_held_out(episodes: Build) -> None:
    said = {"t0": "Put the red ball, into the box!", "t1": "put the red box into the ball"}
    stage = stages.without_overlap(
        ["Now put the RED ball into the box now."], lambda t: said[t.id], size=5, name="apart"
    )
    assert kept(stage, episodes([1, 1])) == ["t1"]
    assert run(stage, episodes([1, 1])).funnel.passages[0].stage == "apart"
    assert kept(stages.without_overlap(["short"], lambda t: "short"), episodes([1])) == ["t0"]
    with pytest.raises(UsageError, match="got 0; give at least 1"):
        stages.without_overlap([], lambda t: "", size=0)


def test_a_hint_is_taken_out_of_what_was_shown_and_never_of_what_was_said(trajectory: Make) -> None:
    hinted, says_it = (
        replace(trajectory([((1, 99), (2,))]), id="a"),
        replace(trajectory([((1, 99), (99,))]), id="b"),
    )

    def strip(turn: Turn) -> Turn:
        return replace(turn, prompt_ids=tuple(i for i in turn.prompt_ids if i != 99))

    def has_hint(turn: Turn) -> bool:
        return 99 in turn.prompt_ids + turn.completion.token_ids

    made = run(stages.strip_hints(strip, has_hint), [hinted, says_it])
    assert [e.trajectory.turns[0].prompt_ids for e in made.examples] == [(1,)]
    assert made.funnel.passages[0].lost == ("b",) and made.examples[0].sources == ("a",)
    assert kept(stages.strip_hints(lambda turn: turn, has_hint), [hinted]) == []

    def rewrite(turn: Turn) -> Turn:
        return replace(turn, completion=replace(turn.completion, token_ids=(3,)))

    with pytest.raises(InvariantError, match="turns of a: got other sampled tokens"):
        run(stages.strip_hints(rewrite, has_hint), [hinted])


def test_what_was_not_asked_for_is_asked_for_in_hindsight(episodes: Build) -> None:
    made = episodes([0, 0])

    def other(t: Trajectory) -> Trajectory | None:
        task = replace(t.task, id="instead")
        return replace(t, task=task, outcome=Score(value=1.0, is_success=True)) if t.index else None

    [example] = run(stages.relabel_tasks(other), made).examples
    assert example.trajectory.task.id == "instead" and example.trajectory.is_success
    assert example.sources == ("t1",)


def test_nothing_said_has_no_perplexity() -> None:
    with pytest.raises(DataError, match="perplexity of one#0: got no token that was said"):
        stages.perplexity_of([], "one#0")
