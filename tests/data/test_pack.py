from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.data.pack import Aggregation, imitation_samples, micro_batches, pack, pair_samples, samples_from
from quintain.errors import DataError, UsageError
from quintain.types import Credit, Pair, Sample, Trajectory

Make = Callable[..., Trajectory]


def sample(num_prompt: int, num: int, trajectory: int, pair: int = -1, is_chosen: bool = False) -> Sample:
    length = num_prompt + num
    mask = np.arange(length) >= num_prompt
    return Sample(
        token_ids=np.arange(length) + 10 * trajectory,
        loss_weight=mask.astype(np.float32),
        logprobs=np.zeros(length, np.float32),
        advantages=np.full(length, trajectory + 0.5, np.float32),
        returns=np.zeros(length, np.float32),
        turn_id=np.where(mask, 0, -1),
        turn_end=np.arange(length) == length - 1,
        trajectory=trajectory,
        pair=pair,
        is_chosen=is_chosen,
    )


def test_streams_lie_end_to_end_without_padding(trajectory: Make) -> None:
    batch = pack(imitation_samples([trajectory([((5, 9), (17,))]), trajectory([((4,), (2,))])]))
    assert batch.token_ids.numpy().tolist() == [5, 9, 17, 4, 2]
    assert batch.sequence_id.numpy().tolist() == [0, 0, 0, 1, 1]
    assert batch.position_ids.numpy().tolist() == [0, 1, 2, 0, 1]
    assert batch.lengths == (3, 2)
    assert batch.loss_weight.numpy().tolist() == [0, 0, 0.5, 0, 0.5]
    assert batch.logprobs.numpy().tolist() == pytest.approx([0, 0, -1.7, 0, -0.2])
    assert batch.advantages.numpy().tolist() == [0, 0, 1, 0, 1]
    assert batch.returns.numpy().tolist() == [0] * 5
    assert batch.turn_id.numpy().tolist() == [-1, -1, 0, -1, 0]
    assert batch.extra.turn_end.numpy().tolist() == [False, False, True, False, True]
    assert batch.extra.trajectory.numpy().tolist() == [0, 1]
    assert batch.extra.pair.numpy().tolist() == [-1, -1] and batch.extra.is_chosen.numpy().tolist() == [
        False,
        False,
    ]
    assert batch.extra.num_trained == 2 and batch.extra.num_pairs == 0


def test_types_are_what_the_nouns_say() -> None:
    batch = pack([sample(1, 2, 0)])
    assert batch.token_ids.dtype == batch.sequence_id.dtype == batch.position_ids.dtype == torch.int64
    assert batch.turn_id.dtype == batch.extra.trajectory.dtype == batch.extra.pair.dtype == torch.int64
    assert batch.loss_weight.dtype == batch.logprobs.dtype == batch.advantages.dtype == torch.float32
    assert batch.extra.turn_end.dtype == batch.extra.is_chosen.dtype == torch.bool


def test_the_three_aggregations() -> None:
    samples = [sample(1, 1, 0), sample(1, 3, 1)]

    def weights(aggregation: str, constant: float | None = None) -> list[float]:
        batch = pack(samples, aggregation=aggregation, constant=constant)  # type: ignore[arg-type]
        return batch.loss_weight[batch.loss_weight > 0].numpy().tolist()

    assert weights("token_mean") == pytest.approx([1 / 4] * 4)
    assert weights("sequence_mean") == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    assert weights("constant", 10) == pytest.approx([1 / 20] * 4)


def test_every_turn_weighs_the_same_whatever_its_tokens() -> None:
    """A loss that holds a turn's error at each of its tokens is the mean over turns, in any cut into micro-batches."""
    long, short = sample(1, 20, 0), sample(1, 2, 1)
    both = replace(
        sample(0, 22, 2), turn_id=np.array([0] * 20 + [1] * 2), loss_weight=np.ones(22, np.float32)
    )
    for batches in (
        [pack([long, short, both], aggregation="turn_mean")],
        micro_batches([long, short, both], max_tokens=24, aggregation="turn_mean"),
    ):
        totals: dict[tuple[int, int], float] = {}
        for batch in batches:
            for weight, stream, turn in zip(
                batch.loss_weight.tolist(), batch.sequence_id.tolist(), batch.turn_id.tolist(), strict=True
            ):
                key = int(batch.extra.trajectory[stream]), turn
                totals[key] = totals.get(key, 0.0) + weight
        assert {key: round(x, 6) for key, x in totals.items() if x} == {
            (0, 0): 0.25, (1, 0): 0.25, (2, 0): 0.25, (2, 1): 0.25,
        }  # fmt: skip


def test_streams_that_are_left_out_count_in_the_divisors_alone() -> None:
    first, other = sample(1, 1, 0), sample(1, 3, 1)
    kinds: tuple[tuple[Aggregation, float | None], ...] = (
        ("token_mean", None), ("sequence_mean", None), ("turn_mean", None), ("constant", 5.0),
    )  # fmt: skip
    for aggregation, constant in kinds:
        whole = pack([first, other], aggregation=aggregation, constant=constant)
        (part,) = micro_batches(
            [first], max_tokens=9, aggregation=aggregation, constant=constant, left_out=[other]
        )
        assert part.loss_weight.tolist() == whole.loss_weight[: len(first.token_ids)].tolist()
        assert part.extra.num_trained == 1, "metrics are of what is trained"
    with pytest.raises(DataError, match="without a trained token"):
        micro_batches([sample(2, 0, 0)], max_tokens=9, left_out=[other])


def test_the_sequence_is_the_trajectory_over_all_its_streams() -> None:
    batch = pack([sample(1, 1, 0), sample(1, 3, 0), sample(1, 2, 1)], aggregation="sequence_mean")
    assert batch.loss_weight[batch.loss_weight > 0].numpy().tolist() == pytest.approx(
        [1 / 8] * 4 + [1 / 4] * 2
    )


def test_weights_of_a_token_are_kept_in_proportion() -> None:
    doubled = replace(sample(0, 2, 0), loss_weight=np.array([2, 1], np.float32))
    assert pack([doubled]).loss_weight.numpy().tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("aggregation", "constant"), [("token_mean", 3.0), ("constant", None), ("constant", 0.0)]
)
def test_the_constant_belongs_to_its_aggregation(aggregation: str, constant: float | None) -> None:
    with pytest.raises(UsageError, match="constant of a loss"):
        pack([sample(1, 1, 0)], aggregation=aggregation, constant=constant)  # type: ignore[arg-type]


def test_unknown_aggregation_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'token_mean'"):
        pack([sample(1, 1, 0)], aggregation="token_men")  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [[], [sample(2, 0, 0)]])
def test_nothing_to_train_on_is_refused(samples: list[Sample]) -> None:
    with pytest.raises(DataError, match="without a trained token"):
        pack(samples)
    with pytest.raises(DataError, match="without a trained token"):
        micro_batches(samples, max_tokens=9)


def test_an_empty_step_is_refused_at_packing() -> None:
    with pytest.raises(DataError, match="got 0 samples"):
        pack(samples_from(Credit(trajectories=(), advantages=())))


def test_micro_batches_keep_order_and_the_limit() -> None:
    samples = [sample(1, 2, 0), sample(1, 2, 1), sample(1, 1, 2), sample(3, 3, 3)]
    batches = micro_batches(samples, max_tokens=6)
    assert [batch.lengths for batch in batches] == [(3, 3), (2,), (6,)]
    assert {batch.extra.num_trained for batch in batches} == {8}
    assert sum(float(batch.loss_weight.sum()) for batch in batches) == pytest.approx(1)


@pytest.mark.parametrize(("num_parts", "most"), [(1, 64), (2, 42), (3, 35), (4, 22), (8, 15)])
def test_what_is_computed_at_once_is_cut_evenly(num_parts: int, most: int) -> None:
    samples = [sample(2, num, i) for i, num in enumerate([13, 3, 8, 8, 5, 1, 9, 11])]
    batches = micro_batches(samples, max_tokens=64, num_parts=num_parts)
    assert [n for batch in batches for n in batch.lengths] == [len(each.token_ids) for each in samples]
    sizes = [len(batch.token_ids) for batch in batches]
    assert max(sizes) <= most and len(sizes) <= -(-2 // num_parts) * num_parts
    assert len(micro_batches(samples, max_tokens=20, num_parts=num_parts)) >= 4
    paired = [
        sample(2, 8, 0, pair=0),
        sample(2, 9, 0, pair=0),
        sample(2, 4, 1, pair=1),
        sample(2, 4, 1, pair=1),
    ]
    for batch in micro_batches(paired, max_tokens=64, num_parts=num_parts):
        assert len(batch.lengths) % 2 == 0


def test_a_stream_that_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="a stream in a micro-batch of 5 tokens: got 6"):
        micro_batches([sample(3, 3, 0)], max_tokens=5)


def test_pairs_are_never_split() -> None:
    sides = [sample(1, 1, 2 * p + s, pair=p, is_chosen=not s) for p in range(3) for s in (0, 1)]
    batches = micro_batches(sides, max_tokens=5)
    assert [batch.extra.pair.numpy().tolist() for batch in batches] == [[0, 0], [1, 1], [2, 2]]
    assert {batch.extra.num_pairs for batch in batches} == {3}
    with pytest.raises(DataError, match="a pair in a micro-batch of 3 tokens: got 4"):
        micro_batches(sides, max_tokens=3)


def test_pairs_carry_their_side(trajectory: Make) -> None:
    chosen, rejected = trajectory([((1,), (2, 3))]), trajectory([((1,), (4,))])
    extra = pack(pair_samples([Pair(chosen=chosen, rejected=rejected)])).extra
    assert extra.pair.numpy().tolist() == [0, 0] and extra.is_chosen.numpy().tolist() == [True, False]
    assert extra.trajectory.numpy().tolist() == [0, 1] and extra.num_pairs == 1


shapes = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=8)


@settings(deadline=None, max_examples=50)
@given(shapes, st.integers(11, 40), st.sampled_from(["token_mean", "sequence_mean", "constant"]))
def test_micro_batches_add_up_to_the_batch(
    shape: list[tuple[int, int, int]], max_tokens: int, aggregation: str
) -> None:
    samples = [sample(*each) for each in shape]
    if not any(num for _, num, _ in shape):
        return
    constant = 7.0 if aggregation == "constant" else None
    whole = pack(samples, aggregation=aggregation, constant=constant)  # type: ignore[arg-type]
    parts = micro_batches(samples, max_tokens=max_tokens, aggregation=aggregation, constant=constant)  # type: ignore[arg-type]

    def total(weight: torch.Tensor, term: torch.Tensor) -> float:
        return float((weight.double() * torch.sin(term.double())).sum())

    assert sum(total(p.loss_weight, p.token_ids) for p in parts) == pytest.approx(
        total(whole.loss_weight, whole.token_ids), abs=1e-12
    )
    assert torch.cat([p.token_ids for p in parts]).equal(whole.token_ids)
    assert all(sum(p.lengths) <= max_tokens for p in parts)
    for batch in [whole, *parts]:
        ends = np.cumsum(batch.lengths).tolist()
        assert batch.position_ids[[end - 1 for end in ends]].numpy().tolist() == [
            n - 1 for n in batch.lengths
        ]
        assert torch.bincount(batch.sequence_id).numpy().tolist() == list(batch.lengths)
