"""Whole actions: what is trained is the exact gradient of the policy over candidates, whatever the critic says.

A model of 8 tokens, a state with four legal actions of one to four words. Each action is taken once and weighs as much
as the policy over actions draws it, so the sum over them is the expectation.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from quintain.data.pack import micro_batches, pack
from quintain.data.samples import samples_from
from quintain.errors import DataError
from quintain.losses.actions import action_logprobs, by_action
from quintain.losses.entropy import entropy_bonus
from quintain.losses.policy import clip_ratio, reinforce
from quintain.types import (
    Action,
    Batch,
    Candidate,
    Completion,
    Credit,
    Loss,
    Outputs,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
)

ACTIONS: tuple[tuple[int, ...], ...] = ((1,), (1, 2), (3, 4, 5), (3, 4, 6, 7))
REWARDS = (0.0, 1.0, 0.2, 0.7)
PROMPT = (6, 0)


def token_logprobs(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """The log-probs of `ids` after the prompt, each after the one before; `logits` [8, 8]."""
    table = torch.log_softmax(logits, dim=-1)
    return torch.stack([table[before, token] for before, token in zip((PROMPT[-1], *ids), ids, strict=False)])


def policy(logits: Tensor, lengths: Sequence[float]) -> Tensor:
    """The policy over actions."""
    scores = [token_logprobs(logits, ids).sum() / n for ids, n in zip(ACTIONS, lengths, strict=True)]
    return torch.softmax(torch.stack(scores), dim=0)


def turn(logits: Tensor, index: int, lengths: Sequence[float]) -> Turn:
    candidates = tuple(
        Candidate(token_ids=ids, logprobs=tuple(token_logprobs(logits, ids).tolist()), length=n)
        for ids, n in zip(ACTIONS, lengths, strict=True)
    )
    own = candidates[index]
    completion = Completion(
        token_ids=own.token_ids, logprobs=own.logprobs, stop="stop", candidates=candidates
    )
    return Turn(observation=(), prompt_ids=PROMPT, completion=completion, action=Action(text="a"))


def episode(*turns: Turn) -> Trajectory:
    outcome = Score(value=1.0, is_success=True)
    task = Task(id="t", environment="w", seed=0)
    return Trajectory(
        task=task, turns=turns, outcome=outcome, stop=Stop.TERMINATED, seed=0, group="g", index=0
    )


def credit(trajectory: Trajectory, advantage: float) -> Credit:
    arrays = tuple(np.full(len(t.completion.token_ids), advantage, np.float32) for t in trajectory.turns)
    return Credit(trajectories=(trajectory,), advantages=(arrays,))


def say(logits: Tensor, batch: Batch) -> Outputs:
    """What the table says of the trained tokens of `batch`."""
    targets = (batch.turn_id >= 0).nonzero().squeeze(1)
    table = torch.log_softmax(logits, -1)[batch.token_ids[targets - 1]]
    logs = table.gather(1, batch.token_ids[targets][:, None]).squeeze(1)
    empty = torch.zeros(len(batch.token_ids), dtype=logits.dtype)
    entropy = -(table.exp() * table).sum(-1)
    return Outputs(logprobs=empty.index_copy(0, targets, logs), entropy=empty.index_copy(0, targets, entropy))


def compute_gradient(
    loss: Loss, logits: Tensor, lengths: Sequence[float], shift: float, *, is_whole: bool = True
) -> Tensor:
    """The gradient that the method climbs, in expectation, where its critic says `-shift` in place of 0."""
    total = torch.zeros_like(logits)
    for index, (probability, reward) in enumerate(
        zip(policy(logits, lengths).tolist(), REWARDS, strict=True)
    ):
        given = credit(episode(turn(logits, index, lengths)), reward + shift)
        batch = pack(samples_from(given, has_candidates=is_whole))
        (found,) = torch.autograd.grad(loss(say(logits, batch), batch).loss, logits)
        total -= probability * found * (1 if is_whole else len(ACTIONS[index]))
    return total


@pytest.mark.parametrize("lengths", [(1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, 4.0)])
@pytest.mark.parametrize("shift", [0.0, 2.0, -1.5])
@pytest.mark.parametrize("loss", [clip_ratio(), reinforce()])
def test_the_gradient_is_that_of_the_policy_over_actions(
    loss: Loss, shift: float, lengths: tuple[float, ...]
) -> None:
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn((8, 8), generator=generator, dtype=torch.float64).requires_grad_()
        (wanted,) = torch.autograd.grad((policy(logits, lengths) * torch.tensor(REWARDS)).sum(), logits)
        got = compute_gradient(by_action(loss), logits, lengths, shift)
        assert torch.allclose(got, wanted, atol=1e-6)
        by_token = compute_gradient(loss, logits, lengths, shift, is_whole=False)
        assert not torch.allclose(by_token, wanted, atol=1e-2)


def test_entropy_is_that_over_actions() -> None:
    logits = torch.randn((8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    lengths = (1.0, 2.0, 3.0, 4.0)
    batch = pack(samples_from(credit(episode(turn(logits, 2, lengths)), 1.0), has_candidates=True))
    odds = policy(logits, lengths)
    wanted = -(odds * odds.log()).sum()
    got = -by_action(entropy_bonus())(say(logits, batch), batch).loss
    assert got.item() == pytest.approx(wanted.item())
    (want,), (have,) = torch.autograd.grad(wanted, logits), torch.autograd.grad(got, logits)
    assert torch.allclose(want, have)


def test_ratio_and_reference_are_those_of_actions() -> None:
    logits = torch.randn((8, 8), generator=torch.Generator().manual_seed(1))
    lengths = (1.0, 2.0, 3.0, 4.0)
    now = (logits + 0.3 * torch.randn((8, 8), generator=torch.Generator().manual_seed(2))).requires_grad_()
    batch = pack(samples_from(credit(episode(turn(logits, 3, lengths)), 1.0), has_candidates=True))
    batch = replace(batch, extra=replace(batch.extra, reference_logprobs=say(logits, batch).logprobs))
    seen: list[tuple[Outputs, Batch]] = []

    def look(outputs: Outputs, given: Batch) -> object:
        seen.append((outputs, given))
        return reinforce()(outputs, given)

    by_action(look)(say(now, batch), batch)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    ((outputs, given),) = seen
    place = int((batch.loss_weight > 0).nonzero())
    assert given.extra.reference_logprobs is not None
    before, after = (policy(each, lengths).log()[3].item() for each in (logits, now))
    assert given.logprobs[place].item() == pytest.approx(before, abs=1e-5)
    assert given.extra.reference_logprobs[place].item() == pytest.approx(before, abs=1e-5)
    assert outputs.logprobs[place].item() == pytest.approx(after, abs=1e-5)


def test_streams_of_a_choice() -> None:
    logits = torch.zeros((8, 8))
    lengths = (1.0, 2.0, 3.0, 4.0)
    thought = Turn(
        seat="agent/plan",
        observation=(),
        prompt_ids=(5,),
        completion=Completion(token_ids=(4, 4), logprobs=(-1.0, -1.0), stop="stop"),
        action=Action(),
    )
    whole = episode(thought, turn(logits, 1, lengths), turn(logits, 2, lengths))
    main, *others = samples_from(credit(whole, 0.5), has_candidates=True)
    first, chosen = (5, 4, 4, *PROMPT), (1, 2)
    assert main.token_ids.tolist() == [*first, *chosen, *PROMPT, 3, 4, 5]
    assert (
        main.loss_weight.tolist() == [0, 1, 1] + [0] * 9
    )  # acts are trained in the streams of their choices
    assert [s.choice for s in others] == [0] * 4 + [1] * 4 and main.choice == -1
    assert [s.token_ids.tolist() for s in others[:4]] == [[*first, *ids] for ids in ACTIONS]
    assert [s.token_ids.tolist()[-4:] for s in others[4:]][3] == [3, 4, 6, 7]
    assert [s.loss_weight.sum() for s in others] == [0, 1, 0, 0, 0, 0, 1, 0]
    assert [int(s.loss_weight.argmax()) for s in (others[1], others[6])] == [len(first), len(first) + 4]
    assert all(s.advantages.sum() == 0.5 and s.score_length == lengths[i % 4] for i, s in enumerate(others))
    assert len(samples_from(credit(whole, 0.5))) == 1


def test_candidates_are_not_cut_apart() -> None:
    logits, lengths = torch.zeros((8, 8)), (1.0, 2.0, 3.0, 4.0)
    given = credit(episode(turn(logits, 1, lengths), turn(logits, 2, lengths)), 1.0)
    samples = samples_from(given, has_candidates=True)
    batches = micro_batches(samples, max_tokens=40)
    assert [
        sorted(set(batch.extra.choice.tolist())) for batch in batches if batch.extra.choice is not None
    ] == [
        [0],
        [1],
    ]
    with pytest.raises(DataError, match="a choice in a micro-batch"):
        micro_batches(samples, max_tokens=20)


def test_what_is_no_choice_stays_as_it_is() -> None:
    logits = torch.randn((8, 8), generator=torch.Generator().manual_seed(1)).requires_grad_()
    plain = pack(samples_from(credit(episode(turn(logits, 1, (1.0, 2.0, 3.0, 4.0))), 1.0)))
    assert plain.extra.choice is None
    outputs = say(logits, plain)
    assert by_action(clip_ratio())(outputs, plain) == clip_ratio()(outputs, plain)


def test_by_hand() -> None:
    def make_candidate(ids: tuple[int, ...], logs: tuple[float, ...]) -> Candidate:
        return Candidate(token_ids=ids, logprobs=logs, length=float(len(ids)))

    both = make_candidate((1, 2), (-1.0, -1.0)), make_candidate((3, 4, 5, 6), (-0.6,) * 4)
    completion = Completion(token_ids=(1, 2), logprobs=(-1.0, -1.0), stop="stop", candidates=both)
    one = Turn(observation=(), prompt_ids=PROMPT, completion=completion, action=Action())
    batch = pack(samples_from(credit(episode(one), 1.0), has_candidates=True))
    logs, entropy = action_logprobs(batch.logprobs, batch)
    assert logs.exp()[[2, -1]].tolist() == pytest.approx([0.4013, 0.5987], abs=1e-4)
    assert entropy[0].item() == pytest.approx(0.6736, abs=1e-4)
