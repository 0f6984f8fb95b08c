import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.text.pace import STEADY, growth

from quintain.data.pack import pack
from quintain.data.samples import (
    imitation_samples,
    limit_length,
    pair_samples,
    samples_from,
    unrelated_samples,
    whole_prompt,
)
from quintain.errors import DataError, InvariantError
from quintain.types import Credit, Pair, Sample, Trajectory

Make = Callable[..., Trajectory]
Turns = list[tuple[tuple[int, ...], tuple[int, ...]]]


def credit_for(*trajectories: Trajectory, returns: bool = False) -> Credit:
    """Advantages 1, 2, 3 … over the sampled tokens of each trajectory; returns are 10 times that."""

    def layout(scale: float) -> tuple[tuple[NDArray[np.float32], ...], ...]:
        rows: list[tuple[NDArray[np.float32], ...]] = []
        for trajectory in trajectories:
            counts = [len(turn.completion.token_ids) for turn in trajectory.turns]
            numbers = scale * np.arange(1, sum(counts) + 1, dtype=np.float32)
            rows.append(tuple(np.split(numbers, np.cumsum(counts)[:-1])))
        return tuple(rows)

    return Credit(trajectories=trajectories, advantages=layout(1), returns=layout(10) if returns else None)


def test_turns_that_are_left_out_of_imitation_stay_as_context(trajectory: Make) -> None:
    whole = trajectory([((1,), (2, 3)), ((4,), (5,)), ((6,), (7,))], logprobs=False)
    (sample,) = imitation_samples([whole], is_left_out=lambda turn: turn.completion.token_ids == (5,))
    assert sample.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert sample.loss_weight.tolist() == [0, 1, 1, 0, 0, 0, 1]
    assert sample.turn_id.tolist() == [-1, 0, 0, -1, 1, -1, 2]


def test_episodes_after_prompts_that_are_not_theirs(trajectory: Make) -> None:
    made = [
        trajectory([((1, 1), (2,)), ((3,), (4, 5))]),
        trajectory([((1, 1), (6,))]),
        trajectory([((9,), (7, 8))]),
    ]
    samples = samples_from(credit_for(*made, returns=True), has_versions=True)
    found = unrelated_samples(samples)
    assert [sample.token_ids.tolist() for sample in found] == [[9, 2, 3, 4, 5], [9, 6], [1, 1, 7, 8]]
    assert found[0].loss_weight.tolist() == [0, 1, 0, 1, 1] and found[0].turn_id.tolist() == [-1, 0, -1, 1, 1]
    assert found[0].turn_end.tolist() == [False, True, False, False, True]
    assert found[2].advantages.tolist() == [0, 0, 1, 2] and found[2].returns.tolist() == [0, 0, 10, 20]
    assert found[2].logprobs.tolist() == pytest.approx([0, 0, *samples[2].logprobs[1:].tolist()])
    assert found[2].versions is not None and len(found[2].versions) == 4
    assert [sample.trajectory for sample in found] == [0, 1, 2]
    longest = trajectory([((1, 1, 1, 1), (2,))])
    kept = unrelated_samples(samples_from(credit_for(longest, trajectory([((9,), (7, 8, 7))]))))
    assert [sample.token_ids.tolist() for sample in kept] == [[9, 2]], (
        "one is longer than all that there were"
    )
    alone = samples_from(credit_for(made[0]))
    assert unrelated_samples(alone)[0].token_ids.tolist() == alone[0].token_ids.tolist()
    assert unrelated_samples([]) == []


def test_a_stream_by_hand(trajectory: Make) -> None:
    made = trajectory([((5, 9), (17, 2)), ((4,), (8,))])
    (sample,) = samples_from(credit_for(made, returns=True))
    assert sample.token_ids.tolist() == [5, 9, 17, 2, 4, 8]
    assert sample.loss_weight.tolist() == [0, 0, 1, 1, 0, 1]
    assert sample.logprobs.tolist() == pytest.approx([0, 0, -1.7, -0.2, 0, -0.8])
    assert sample.advantages.tolist() == [0, 0, 1, 2, 0, 3]
    assert sample.returns.tolist() == [0, 0, 10, 20, 0, 30]
    assert sample.turn_id.tolist() == [-1, -1, 0, 0, -1, 1]
    assert sample.turn_end.tolist() == [False, False, False, True, False, True]
    assert (sample.trajectory, sample.pair, sample.is_chosen) == (0, -1, False)


def test_a_segment_begins_a_new_stream(trajectory: Make) -> None:
    made = trajectory([((1,), (2,)), ((1, 3), (4, 5)), ((6,), (7,))], segments=[1])
    other = trajectory([((9,), (8,))], segments=[0])
    first, second, third = samples_from(credit_for(made, other))
    assert first.token_ids.tolist() == [1, 2]
    assert second.token_ids.tolist() == [1, 3, 4, 5, 6, 7]
    assert second.turn_id.tolist() == [-1, -1, 1, 1, -1, 2]
    assert second.advantages.tolist() == [0, 0, 2, 3, 0, 4]
    assert third.token_ids.tolist() == [9, 8]
    assert [s.trajectory for s in (first, second, third)] == [0, 0, 1]


def test_the_whole_prompt_of_a_turn_begins_with_its_segment(trajectory: Make) -> None:
    turns = trajectory([((1,), (2,)), ((1, 3), (4, 5)), ((6,), (7,))], segments=[1]).turns
    assert [whole_prompt(turns[:n], turns[n]) for n in range(3)] == [(1,), (1, 3), (1, 3, 4, 5, 6)]


def test_a_stream_without_sampled_tokens_goes(trajectory: Make) -> None:
    made = trajectory([((1,), (2,)), ((3, 4), ()), ((5,), (6,))], segments=[1, 2])
    assert [s.token_ids.tolist() for s in samples_from(credit_for(made))] == [[1, 2], [5, 6]]
    (kept,) = samples_from(credit_for(trajectory([((1,), ()), ((3,), (4,))])))
    assert kept.turn_end.tolist() == [False, False, True]
    assert samples_from(credit_for(trajectory([((1,), ())]))) == []
    assert samples_from(Credit(trajectories=(), advantages=())) == []


def test_demonstrations_have_no_log_probs(trajectory: Make) -> None:
    (sample,) = imitation_samples([trajectory([((1,), (2, 3))], logprobs=False)])
    assert sample.logprobs.tolist() == [0, 0, 0]
    assert sample.advantages.tolist() == [0, 1, 1]
    with pytest.raises(DataError, match="samples to imitate: got none from 0"):
        imitation_samples([])


def broken(made: Trajectory, **changes: object) -> Trajectory:
    completion = dataclasses.replace(made.turns[0].completion, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(made, turns=(dataclasses.replace(made.turns[0], completion=completion),))


def test_what_does_not_fit_stops_the_run(trajectory: Make) -> None:
    made = trajectory([((1,), (2, 3))])
    good = credit_for(made)
    with pytest.raises(InvariantError, match="advantages of the sampled tokens: got"):
        samples_from(dataclasses.replace(good, advantages=((np.zeros(1, np.float32),),)))
    with pytest.raises(InvariantError, match="advantages of the sampled tokens: got"):
        samples_from(dataclasses.replace(good, advantages=()))
    with pytest.raises(InvariantError, match="returns of the sampled tokens: got"):
        samples_from(dataclasses.replace(good, returns=((),)))
    with pytest.raises(InvariantError, match="advantages of the sampled tokens: got one that is not finite"):
        samples_from(dataclasses.replace(good, advantages=((np.array([0, np.nan], np.float32),),)))
    with pytest.raises(InvariantError, match=r"log-probs of the 2 tokens of turn 0: got 1"):
        samples_from(credit_for(broken(made, logprobs=(-0.5,))))
    with pytest.raises(InvariantError, match="log-probs of sampled tokens: got one that is not finite"):
        samples_from(credit_for(broken(made, logprobs=(-0.5, float("nan")))))
    with pytest.raises(InvariantError, match="cannot begin with a sampled token"):
        samples_from(credit_for(trajectory([((), (2,))])))


def test_trained_tokens_are_the_sampled_ones(trajectory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trajectory([((1,), (2, 3))])
    monkeypatch.setattr(Trajectory, "num_sampled", property(lambda self: 3))
    with pytest.raises(InvariantError, match=r"trained tokens by trajectory: got \[2\]; sampled were \[3\]"):
        samples_from(credit_for(made))


turn_shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.booleans()), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(turn_shapes, min_size=1, max_size=4))
def test_random_layouts(trajectory: Make, shapes: list[list[tuple[int, int, bool]]]) -> None:
    made: list[Trajectory] = []
    number = iter(range(1, 10_000))
    for shape in shapes:
        turns = [
            (tuple(next(number) for _ in range(p)), tuple(next(number) for _ in range(n)))
            for p, n, _ in shape
        ]
        made.append(trajectory(turns, segments=[i for i, (_, _, starts) in enumerate(shape) if starts]))
    samples = samples_from(credit_for(*made))
    if not samples:
        return
    batch = pack(samples)
    mask = batch.loss_weight.numpy() > 0
    sampled = [token for t in made for turn in t.turns for token in turn.completion.token_ids]
    assert batch.token_ids.numpy()[mask].tolist() == sampled
    assert batch.logprobs.numpy()[mask].tolist() == pytest.approx(
        [-0.1 * token for token in sampled], rel=1e-6
    )
    want = [float(i + 1) for t in made for i in range(t.num_sampled)]
    assert batch.advantages.numpy()[mask].tolist() == want
    assert ((batch.turn_id.numpy() >= 0) == mask).all()
    assert int(batch.extra.turn_end.sum()) == sum(
        len(turn.completion.token_ids) > 0 for t in made for turn in t.turns
    )
    assert (batch.position_ids.numpy()[mask] > 0).all()
    assert (batch.logprobs.numpy()[~mask] == 0).all() and (batch.advantages.numpy()[~mask] == 0).all()


def test_pairs_lie_side_by_side(trajectory: Make) -> None:
    pairs = [
        Pair(
            chosen=trajectory([((1,), (2,)), ((3,), (4,))], segments=[1]), rejected=trajectory([((1,), (5,))])
        ),
        Pair(chosen=trajectory([((1,), (6,))]), rejected=trajectory([((1,), (7,))])),
    ]
    samples = pair_samples(pairs)
    assert [(s.pair, s.is_chosen, s.trajectory) for s in samples] == [
        (0, True, 0),
        (0, True, 0),
        (0, False, 1),
        (1, True, 2),
        (1, False, 3),
    ]


def test_at_turn_level_the_shared_turns_are_context(trajectory: Make) -> None:
    shared = ((1,), (2,))
    pair = Pair(
        chosen=trajectory([shared, ((3,), (4,)), ((5,), (6,))]),
        rejected=trajectory([shared, ((3,), (7,))]),
        level="turn",
    )
    chosen, rejected = pair_samples([pair])
    assert chosen.loss_weight.tolist() == [0, 0, 0, 1, 0, 1]
    assert rejected.loss_weight.tolist() == [0, 0, 0, 1]
    whole, _ = pair_samples([dataclasses.replace(pair, level="trajectory")])
    assert whole.loss_weight.tolist() == [0, 1, 0, 1, 0, 1]


def test_empty_sides_and_no_pairs_are_refused(trajectory: Make) -> None:
    with pytest.raises(DataError, match="preference pairs: got none"):
        pair_samples([])
    same = trajectory([((1,), (2,))])
    with pytest.raises(DataError, match=r"pair 0 \(t\): got a side without tokens"):
        pair_samples([Pair(chosen=same, rejected=same, level="turn")])


def test_streams_that_are_too_long_are_never_cut(trajectory: Make) -> None:
    short = trajectory([((1,), (2,))])
    long = trajectory([((1,), (2,)), ((1, 2, 3), (4, 5))], segments=[1])
    samples = imitation_samples([short, long])
    assert limit_length(samples, 5) == (samples, 0)
    with pytest.raises(DataError, match="got 1 longer ones, up to 5"):
        limit_length(samples, 4)
    kept, dropped = limit_length(samples, 4, overlong="drop")
    assert [s.trajectory for s in kept] == [0] and dropped == 2
    with pytest.raises(DataError, match="got none of 3"):
        limit_length(samples, 1, overlong="drop")
    pairs = pair_samples([Pair(chosen=long, rejected=short), Pair(chosen=short, rejected=short)])
    kept, dropped = limit_length(pairs, 4, overlong="drop")
    assert [s.pair for s in kept] == [1, 1] and dropped == 3


def test_packing_takes_time_in_proportion_to_what_is_packed(trajectory: Make) -> None:
    turns: Turns = [(tuple(range(10)), tuple(range(10)))] * 5

    def samples(number: int) -> list[Sample]:
        return samples_from(credit_for(*(trajectory(turns) for _ in range(number))))

    assert growth(samples, pack, 512) < STEADY
