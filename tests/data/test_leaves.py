"""Which leaves are trained, why the others are not, and that a rollout weighs 1 however many streams it is."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from quintain.data.leaves import LeafRule, choose_leaves, keep_leaves
from quintain.data.pack import imitation_samples, micro_batches, pack
from quintain.types import Trajectory

Make = Callable[..., Trajectory]
HISTORY = [
    ((5,), (1,)),
    ((6,), (2,)),
    ((5, 1, 7), (3, 3, 3)),  # starts a segment under turn 0
    ((9,), (4,)),  # starts a segment that is a root
]


@pytest.fixture
def rewritten(trajectory: Make) -> Trajectory:
    """Leaves 1 (4 tokens in its walk), 2 (6 tokens) and 3 (2 tokens)."""
    return trajectory(HISTORY, segments=(2, 3))


@pytest.mark.parametrize(
    ("rule", "trained", "weights"),
    [
        ("all", (1, 2, 3), [1, 1, 3, 1]),
        ("last", (3,), [0, 0, 0, 1]),
        ("longest", (2,), [1, 0, 3, 0]),
        ("root", (1,), [1, 1, 0, 0]),
    ],
)
def test_a_rule_by_hand(
    rewritten: Trajectory, rule: LeafRule, trained: tuple[int, ...], weights: list[int]
) -> None:
    leaves = choose_leaves(rewritten.turns, rule)
    assert leaves.trained == trained
    assert set(leaves.left_out) == {1, 2, 3} - {*trained}
    word = {"root": "first"}.get(rule, rule)
    assert all(
        told == f"not the {word} of 'agent', which is {trained[0]}" for told in leaves.left_out.values()
    )
    kept, reasons = keep_leaves(imitation_samples([rewritten]), [rewritten], rule)
    assert reasons == {(0, leaf): told for leaf, told in leaves.left_out.items()}
    found = [sum(float(s.loss_weight[s.turn_id == turn].sum()) for s in kept) for turn in range(4)]
    assert found == weights
    assert all(sample.loss_weight.any() for sample in kept)


def test_what_no_rule_touches_is_the_same_object(trajectory: Make) -> None:
    plain = trajectory([((5,), (1,)), ((6,), (2,))])
    samples = imitation_samples([plain])
    for rule in ("all", "last", "longest", "root"):
        kept, reasons = keep_leaves(samples, [plain], rule)
        assert kept[0] is samples[0] and reasons == {}


def test_each_speaker_has_its_own(trajectory: Make) -> None:
    whole = trajectory([((5,), (1,)), ((6,), (2,)), ((7,), (3,))], segments=(2,))
    first, second, third = whole.turns
    both = replace(
        whole, turns=(replace(first, seat="a"), replace(second, seat="b"), replace(third, seat="a"))
    )
    assert choose_leaves(both.turns, "last").trained == (1, 2)
    assert choose_leaves(both.turns, "root").trained == (0, 1)


def test_three_streams_of_one_token_weigh_as_one_of_three(trajectory: Make) -> None:
    several = trajectory([((5,), (1,)), ((5,), (2,)), ((5,), (3,))], segments=(1, 2))
    single = trajectory([((5,), (1, 2, 3))])
    other = trajectory([((5,), (1,) * 7)])
    samples = imitation_samples([several, single, other])
    assert len(samples) == 5
    batch = pack(samples, aggregation="sequence_mean")
    of_rollout = [
        float(batch.loss_weight[torch.isin(batch.sequence_id, streams)].sum())
        for streams in (torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([4]))
    ]
    assert of_rollout == pytest.approx([1 / 3] * 3), "by rollout, then by token"
    assert batch.loss_weight[batch.turn_id >= 0][:6].tolist() == pytest.approx([1 / 9] * 6)


def test_the_gradients_of_three_streams_and_of_one_are_the_same(trajectory: Make) -> None:
    several = trajectory([((5,), (1,)), ((5,), (2,)), ((5,), (3,))], segments=(1, 2))
    single = trajectory([((5,), (1, 2, 3))])
    others = [trajectory([((5,), (4, 4))]), trajectory([((5,), (0,))])]

    def gradient(rollout: Trajectory, max_tokens: int) -> torch.Tensor:
        """Return the gradient of a model that knows no context, so that only the weights differ."""
        logits = torch.zeros(6, requires_grad=True)
        samples = imitation_samples([rollout, *others])
        for batch in micro_batches(samples, max_tokens=max_tokens, aggregation="sequence_mean"):
            loss = -(batch.loss_weight * logits.log_softmax(0)[batch.token_ids]).sum()
            loss.backward()
        assert logits.grad is not None
        return logits.grad

    for max_tokens in (4, 100):
        torch.testing.assert_close(gradient(several, max_tokens), gradient(single, max_tokens))
    scale = np.abs(gradient(single, 100)[[1, 2, 3]].numpy())
    assert scale == pytest.approx(np.full(3, 1 / 6 - 1 / 9), abs=1e-6)
