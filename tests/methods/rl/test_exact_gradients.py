"""Where actions are scored as a whole: the gradient of what is trained is that of the policy that is drawn from.

A model of 8 tokens, a state with four legal actions of one to four words. Episodes are drawn as often as the policy
over actions draws them, so the sum over them is the expectation; the advantages come from the method itself.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quintain.agents.catalog import score_length
from quintain.credit.layout import Critic
from quintain.errors import UsageError
from quintain.methods.find import find_method
from quintain.methods.loops.on_policy import Estimates
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn

ACTIONS: dict[str, tuple[int, ...]] = {
    "go": (1,),
    "go on": (1, 2),
    "turn to left": (3, 4, 5),
    "turn to right now": (3, 4, 6, 7),
}
REWARDS = (0.0, 1.0, 0.2, 0.7)
NUM = 1500
TASK = Task(id="t", environment="w", seed=0)


def token_logprobs(logits: Tensor, ids: tuple[int, ...]) -> Tensor:
    """The log-probs of `ids`, each after the one before; `logits` [8, 8], the prompt ends with token 0."""
    table = torch.log_softmax(logits, dim=-1)
    return torch.stack([table[before, token] for before, token in zip((0, *ids), ids, strict=False)])


def drawn(spec: str, logits: Tensor) -> Tensor:
    """The policy over actions."""
    length = score_length(spec)
    scores = [token_logprobs(logits, ids).sum() / length(TASK, text, ids) for text, ids in ACTIONS.items()]
    return torch.softmax(torch.stack(scores), dim=0)


def episodes(probabilities: Tensor) -> Group:
    found: list[Trajectory] = []
    for (text, ids), reward, probability in zip(
        ACTIONS.items(), REWARDS, probabilities.tolist(), strict=True
    ):
        turn = Turn(
            observation=(),
            prompt_ids=(0,),
            completion=Completion(token_ids=ids, logprobs=(-1.0,) * len(ids), stop="stop"),
            action=Action(text=text),
            reward=reward,
        )
        for _ in range(round(probability * NUM)):
            found.append(
                Trajectory(
                    task=TASK,
                    turns=(turn,),
                    outcome=Score(value=reward, is_success=True),
                    stop=Stop.TERMINATED,
                    seed=0,
                    group=str(len(found)),
                    index=0,
                )
            )
    return Group(task=TASK, trajectories=tuple(found))


@pytest.mark.parametrize(
    ("method", "agent"),
    [
        ("twosome", "twosome"),
        ("twosome", "scored?normalization=token"),
        ("twosome", "twosome?pad=2"),
        ("twosome", "glam"),
        ("glam", "glam"),
    ],
)
@pytest.mark.slow
def test_what_is_trained_is_what_is_drawn_from(method: str, agent: str) -> None:
    found = find_method(method)
    config: Any = found.config_class(environment="w", agent=agent)
    credit = found.make(config).credit  # type: ignore[union-attr] # pyright: ignore
    cosines: list[float] = []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn((8, 8), generator=generator).requires_grad_()
        policy = drawn(agent, logits)
        (wanted,) = torch.autograd.grad((policy * torch.tensor(REWARDS)).sum(), logits)
        group = episodes(policy.detach())
        values = [[np.zeros(len(t.turns[0].completion.token_ids))] for t in group.trajectories]
        given = credit([group], Estimates(values=Critic(values=values)))
        weights = {ids: np.zeros(len(ids)) for ids in ACTIONS.values()}
        for t, own in zip(given.trajectories, given.advantages, strict=True):
            weights[t.turns[0].completion.token_ids] += own[0]
        trained = torch.stack(
            [(token_logprobs(logits, ids) * torch.from_numpy(w)).sum() for ids, w in weights.items()]
        ).sum()
        (got,) = torch.autograd.grad(trained, logits)
        cosines.append(float(torch.cosine_similarity(wanted.flatten(), got.flatten(), dim=0)))
    assert min(cosines) > 0.999


def test_the_length_of_a_score_is_the_agents() -> None:
    for spec, expected in (("twosome", 2.0), ("glam", 1.0), ("scored", 3.0), ("choice", 1.0), ("auto", 1.0)):
        assert score_length(spec)(TASK, "go on", (1, 2, 3)) == expected
    with pytest.raises(UsageError, match="unknown"):
        score_length("scorde")
