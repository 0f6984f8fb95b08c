"""A policy that is its own Q: what the loss says by hand, and a chain of two states and three experts."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from quintain.credit.layout import Critic
from quintain.errors import UsageError
from quintain.losses.own_q import own_q
from quintain.methods.critic.moe_dialogue import choice_targets
from quintain.types import Action, Batch, Completion, Group, Outputs, Score, Stop, Task, Trajectory, Turn

REWARD = torch.tensor([[0.0, -0.1, 0.2], [1.0, 0.5, -0.1]], dtype=torch.float64)
"""[state, expert]; the first expert goes on from state 0 to 1, all others end the talk"""


def test_q_is_value_and_what_the_policy_gives(batch: Callable[..., Batch]) -> None:
    made = batch([0, 0.5, 0.5], returns=[0, 1.0, 1.0], turn_id=[-1, 0, 0])
    said = Outputs(
        logprobs=torch.tensor([-9.0, -1.0, -2.0], dtype=torch.float64),
        entropy=torch.tensor([9.0, 0.5, 0.5], dtype=torch.float64),
        values=torch.tensor([9.0, 0.4, 0.6], dtype=torch.float64),
    )
    # chosen: .1·(-3) = -.3; entropy: .1·1; Q: .2 and .4, errors .64 and .36
    report = own_q(0.1)(said, made)
    assert report.loss.item() == pytest.approx(0.25)
    assert report.metrics == {
        "q/error": pytest.approx(0.5), "q/mean": pytest.approx(0.3), "q/value": pytest.approx(0.5),
    }  # fmt: skip
    assert own_q(0.1, 2.0)(said, made).loss.item() == pytest.approx(0.25 + 2 * 0.3)
    with pytest.raises(UsageError, match="its own Q: got none; give the model a value head"):
        own_q(0.1)(replace(said, values=None), made)


def test_what_nobody_did_loses_and_what_was_done_does_not(batch: Callable[..., Batch]) -> None:
    made = batch([0, 1.0], returns=[0, 0.0])
    logs = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def gradient(conservatism: float) -> list[float]:
        pi = logs.log_softmax(-1)
        entropy = -(pi.exp() * pi).sum()
        said = Outputs(
            logprobs=torch.stack([torch.zeros((), dtype=torch.float64), pi[0]]),
            entropy=torch.stack([torch.zeros((), dtype=torch.float64), entropy]),
            values=torch.zeros(2, dtype=torch.float64),
        )
        return torch.autograd.grad(own_q(0.5, conservatism)(said, made).loss, logs)[0].tolist()

    assert gradient(0.0) == pytest.approx([0, 0, 0]), "uniform and V 0: every Q is 0, its target"
    first, *others = gradient(1.0)
    assert first < 0 < min(others)


def talked(steps: list[tuple[int, int]]) -> Trajectory:
    """Return a talk of (state, expert)."""
    turns = tuple(
        Turn(
            seat="manager", observation=(), prompt_ids=(state,), starts_segment=True,
            completion=Completion(token_ids=(expert,), logprobs=(0.0,), stop="stop"), action=Action(),
            reward=float(REWARD[state, expert]),
        )
        for state, expert in steps
    )  # fmt: skip
    task = Task(id=str(steps), environment="toy", seed=0)
    return Trajectory(
        task=task, turns=turns, outcome=Score(value=0.0, is_success=False), stop=Stop.TERMINATED, seed=0,
        group=task.id, index=0,
    )  # fmt: skip


def test_the_q_of_a_chain_is_exact(batch: Callable[..., Batch]) -> None:
    talks = [talked([(0, e)]) for e in (1, 2)] + [talked([(0, 0), (1, e)]) for e in range(3)]
    groups = [Group(task=t.task, trajectories=(t,)) for t in talks]
    steps = [(turn.prompt_ids[0], turn.completion.token_ids[0]) for t in talks for turn in t.turns]
    states, experts = (torch.tensor(each) for each in zip(*steps, strict=True))
    made = batch([1 / len(steps)] * len(steps), lengths=[1] * len(steps))
    table = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    values = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([table, values], lr=0.1)
    temperature, discount = 0.5, 0.9
    for _ in range(500):
        before = values.detach().numpy()
        critic = Critic(values=[[np.array([before[turn.prompt_ids[0]]]) for turn in t.turns] for t in talks])
        returns = choice_targets(groups, lambda _, said=critic: said, discount=discount).returns
        assert returns is not None
        targets = torch.tensor([float(turn[0]) for own in returns for turn in own], dtype=torch.float64)
        logs = table.log_softmax(-1)
        entropy = -(logs.exp() * logs).sum(-1)
        said = Outputs(logprobs=logs[states, experts], entropy=entropy[states], values=values[states])
        optimizer.zero_grad()
        own_q(temperature)(said, replace(made, returns=targets)).loss.backward()
        optimizer.step()
    logs = table.detach().log_softmax(-1)
    q = values.detach()[:, None] + temperature * (logs - (logs.exp() * logs).sum(-1, keepdim=True))
    last = REWARD[1]
    mean = float((last / temperature).softmax(-1) @ last)
    exact = torch.stack([torch.tensor([discount * mean, -0.1, 0.2], dtype=torch.float64), last])
    assert torch.allclose(q, exact, atol=1e-3), "Boltzmann's Q, without a bootstrap at the end"
