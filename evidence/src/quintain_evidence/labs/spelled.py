"""A table of token logits that spells actions: what scoring whole actions changes, and what the words of an action do.

An action of an enumerated world is a word, which words without a meaning may follow; beside these the vocabulary has
words that mean nothing here. A row of the table is a place in the text: the beginning of a turn in a state, or the
place after a word of it. The policy either writes token by token, and what is no action costs a turn, or scores the
actions as wholes and draws one from softmax(Σ log p / length). What is trained are the tokens that were written, or
whole actions, by the stage values of a method, through `samples_from`, packing and the loss, as in training. J of
either policy is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.agents.scored import pad_action
from quintain.credit.layout import Critic
from quintain.errors import UsageError
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.types import (
    Action,
    Batch,
    Candidate,
    Completion,
    Group,
    Outputs,
    Score,
    Stop,
    Text,
    Trajectory,
    Turn,
    derive_seed,
    flatten_scored,
)
from quintain_evidence.labs.exact import END, World, exact_values
from quintain_evidence.labs.tabular import kept_samples, packed

Divide = Callable[[int, int], float]
"""(state, action) → what the score of the action is divided by there"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spelling:
    """How the actions of a world are written: ``spelled(world, pad=3, distractors=50)``."""

    world: World
    pad: int
    """words without a meaning that follow half of the actions, drawn by the task"""
    distractors: int
    """words that mean nothing"""
    num_pads: NDArray[np.int64]
    """[S, A] words that follow an action in a state"""

    @property
    def num_words(self) -> int:
        """Words of the vocabulary: actions, the word of the padding, distractors."""
        return len(self.world.actions) + (self.pad > 0) + self.distractors

    @property
    def per_state(self) -> int:
        """Rows of a state: the beginning, and the places after each action and its padding."""
        return 1 + len(self.world.actions) * self.pad

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return self.world.num_states * self.per_state

    def tokens(self, action: int, num_pads: int) -> tuple[int, ...]:
        """Return the words of an action."""
        return (action, *[len(self.world.actions)] * num_pads)

    def row(self, state: int, written: Sequence[int]) -> int:
        """Return the place after `written`, the beginning of an action, in `state`."""
        inner = 1 + written[0] * self.pad + len(written) - 1 if written else 0
        return state * self.per_state + inner

    def ids(self, state: int, words: Sequence[int]) -> tuple[int, ...]:
        """Return the token ids of `words` written in `state`; each id knows its row."""
        rows = [self.row(state, words[:place]) for place in range(len(words))]
        return tuple(
            self.world.num_states + row * self.num_words + word for row, word in zip(rows, words, strict=True)
        )


def spelled(world: World, *, pad: int = 0, distractors: int = 0) -> Spelling:
    """Return the spelling in which `pad` words follow the actions that `pad_action` draws for each task."""
    texts = [[pad_action(action, task, pad) != action for action in world.actions] for task in world.tasks]
    drawn = np.array(texts)[world.task_of] if pad else np.zeros(world.is_legal.shape, np.bool_)
    return Spelling(world=world, pad=pad, distractors=distractors, num_pads=pad * drawn.astype(np.int64))


class SpelledPolicy:
    """Logits over the next word, and a critic, by place.

    Args:
        spelling: whose places and words the rows and columns are.
        theta: logits [R, V]; copied, in float64.
        values: the critic's value of each place [R].
        divide: length that divides the score of an action; None: the policy writes token by token.
        order: for each state the action whose score stands for that of an action [S, A]; None: its own.
    """

    def __init__(
        self,
        spelling: Spelling,
        theta: Tensor,
        values: Tensor | None = None,
        *,
        divide: Divide | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.spelling, self.divide, self.order = spelling, divide, order
        self.theta = theta.detach().to(torch.float64).clone().requires_grad_()
        start = torch.zeros(spelling.num_rows) if values is None else values
        self.values = start.detach().to(torch.float64).clone().requires_grad_()
        world = spelling.world
        shape = world.is_legal.shape
        self._pads = torch.as_tensor(spelling.num_pads)
        self._begin = torch.arange(shape[0]) * spelling.per_state
        lengths = np.ones(shape)
        if divide is not None:
            lengths = np.array([[divide(s, a) for a in range(shape[1])] for s in range(shape[0])])
        self._lengths = torch.as_tensor(lengths, dtype=torch.float64)

    def action_logs(self) -> Tensor:
        """Return Σ log p of the words of each action in each state, [S, A]."""
        logs = torch.log_softmax(self.theta, -1)
        num = len(self.spelling.world.actions)
        total = logs[self._begin, :num]
        for place in range(self.spelling.pad):
            rows = self._begin[:, None] + 1 + torch.arange(num) * self.spelling.pad + place
            total = total + logs[rows, num] * (self._pads > place)
        return total

    def probabilities(self) -> Tensor:
        """Return the probability of each action [S, A]; written token by token they may add up to less than 1."""
        sums = self.action_logs()
        if self.divide is None:
            return sums.exp()
        scores = sums / self._lengths
        if self.order is not None:
            scores = scores.gather(1, torch.as_tensor(self.order))
        return torch.softmax(scores, -1)

    def objective(self) -> Tensor:
        """Return J, with gradients: the expected return of an episode of a task drawn evenly."""
        found = self.probabilities()
        left = (1 - found.sum(1, keepdim=True)).clamp(min=0.0)
        return exact_values(with_nothing(self.spelling.world), torch.cat([found, left], 1)).objective

    def __call__(self, batch: Batch) -> Outputs:
        """Return log-probs, entropies and values [N] of the trained tokens of `batch`, with gradients."""
        first, words = self.spelling.world.num_states, self.spelling.num_words
        targets = (batch.turn_id >= 0).nonzero().squeeze(1)
        ids = batch.token_ids[targets] - first
        rows = ids // words
        logs = torch.log_softmax(self.theta[rows], -1)
        empty = torch.zeros(len(batch.token_ids))
        chosen = logs.gather(1, (ids % words)[:, None]).squeeze(1).float()
        entropy = -(logs.exp() * logs).sum(-1).float()
        return Outputs(
            logprobs=empty.index_copy(0, targets, chosen),
            entropy=empty.index_copy(0, targets, entropy),
            values=empty.index_copy(0, targets, self.values[rows].float()),
        )

    def critic(self, groups: Sequence[Group]) -> Critic:
        """Return the value before each sampled token of the scored episodes of `groups`."""
        table, first, words = (
            self.values.detach().numpy(),
            self.spelling.world.num_states,
            self.spelling.num_words,
        )
        return Critic(
            values=[
                [table[(np.array(turn.completion.token_ids) - first) // words] for turn in t.turns]
                for t in flatten_scored(groups)
            ]
        )

    def sample(self, *, size: int, seed: int) -> list[Group]:
        """Return `size` episodes of each task, each a group of its own."""
        world = self.spelling.world
        logs = torch.log_softmax(self.theta.detach(), -1)
        wholes = self.probabilities().detach().numpy().cumsum(1)
        table = logs.float().numpy()
        draws = np.random.default_rng(seed).random((len(world.tasks) * size, world.horizon))
        groups: list[Group] = []
        for place in range(len(world.tasks) * size):
            task = world.tasks[place // size]
            turns, total, is_success = self._played(
                int(world.start[place // size]), table, wholes, draws[place]
            )
            trajectory = Trajectory(
                task=task,
                turns=turns,
                outcome=Score(value=total, is_success=is_success),
                stop=Stop.TERMINATED,
                seed=derive_seed("spelled", seed, place),
                group=f"{place}:{task.id}",
                index=0,
            )
            groups.append(Group(task=task, trajectories=(trajectory,)))
        return groups

    def _played(
        self, state: int, table: NDArray[np.float32], wholes: NDArray[np.float64], draws: NDArray[np.float64]
    ) -> tuple[tuple[Turn, ...], float, bool]:
        """Return the turns of an episode, its return, and whether it was solved."""
        world, spelling = self.spelling.world, self.spelling
        turns: list[Turn] = []
        total = 0.0
        for uniform in draws.tolist():
            action = int(
                np.searchsorted(wholes[state], uniform * (wholes[state, -1] if self.divide else 1.0), "right")
            )
            is_action = action < len(world.actions)
            if not is_action and self.divide:
                action, is_action = len(world.actions) - 1, True
            if is_action:
                words: tuple[int, ...] = spelling.tokens(action, int(spelling.num_pads[state, action]))
            else:
                words = self._nothing(state, table, uniform)
            reward = float(world.reward[state, action]) if is_action else 0.0
            total += reward
            rows = [spelling.row(state, words[:k]) for k in range(len(words))]
            turns.append(
                Turn(
                    observation=(Text(text=world.keys[state]),),
                    prompt_ids=(state,),
                    completion=Completion(
                        token_ids=spelling.ids(state, words),
                        logprobs=tuple(
                            float(table[row, word]) for row, word in zip(rows, words, strict=True)
                        ),
                        stop="stop",
                        candidates=self._candidates(state, table) if self.divide else (),
                    ),
                    action=Action(
                        text=world.actions[action] if is_action else "", error=None if is_action else "?"
                    ),
                    reward=reward,
                    state_key=world.keys[state],
                    is_valid=is_action,
                    starts_segment=not turns,
                )
            )
            if is_action and world.next[state, action] == END:
                return tuple(turns), total, bool(world.is_success[state, action])
            state = int(world.next[state, action]) if is_action else state
        return tuple(turns), total, False

    def _candidates(self, state: int, table: NDArray[np.float32]) -> tuple[Candidate, ...]:
        """Return the actions of `state` as they are written and what divides their scores."""
        found: list[Candidate] = []
        for action, num_pads in enumerate(self.spelling.num_pads[state].tolist()):
            words = self.spelling.tokens(action, num_pads)
            rows = [self.spelling.row(state, words[:k]) for k in range(len(words))]
            logs = tuple(float(table[row, word]) for row, word in zip(rows, words, strict=True))
            ids, length = self.spelling.ids(state, words), float(self._lengths[state, action])
            found.append(Candidate(token_ids=ids, logprobs=logs, length=length))
        return tuple(found)

    def _nothing(self, state: int, table: NDArray[np.float32], uniform: float) -> tuple[int, ...]:
        """Return a word that begins no action, drawn by its odds; `uniform` lies beyond those of the actions."""
        if self.spelling.pad:
            raise UsageError(
                "padded actions: got a policy that writes token by token; give it what divides scores"
            )
        num = len(self.spelling.world.actions)
        odds = np.exp(table[state * self.spelling.per_state].astype(np.float64))
        sums = odds.cumsum()
        word = int(np.searchsorted(sums, uniform * sums[-1], "right"))
        return (min(max(word, num), len(sums) - 1),)


def with_nothing(world: World) -> World:
    """Return `world` with one more action, which does nothing and costs a turn."""
    num = world.num_states

    def more(table: NDArray[np.float64], column: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([table, column[:, None]], 1)

    return replace(
        world,
        actions=(*world.actions, "nothing"),
        next=more(world.next.astype(np.float64), np.arange(num, dtype=np.float64)).astype(np.int64),
        reward=more(world.reward, np.zeros(num)),
        is_legal=more(world.is_legal.astype(np.float64), np.ones(num)).astype(np.bool_),
        is_success=more(world.is_success.astype(np.float64), np.zeros(num)).astype(np.bool_),
    )


def train_spelled(
    start: SpelledPolicy,
    method: OnPolicy,
    *,
    num_batches: int,
    size: int,
    seed: int,
    rate: float,
    num_epochs: int = 2,
    optimizer: Literal["adam", "sgd"] = "adam",
) -> SpelledPolicy:
    """Return what becomes of `start` by `method`: its reward, credit and loss on `size` episodes of each task a batch.

    Epochs of a batch end where the method's `target_kl` is passed; entropy, value and policy losses are its own.
    """
    policy = SpelledPolicy(start.spelling, start.theta, start.values, divide=start.divide, order=start.order)
    parameters = [policy.theta, policy.values]
    applied = torch.optim.Adam(parameters, rate) if optimizer == "adam" else torch.optim.SGD(parameters, rate)
    update = method.update
    for number in range(1, num_batches + 1):
        groups = method.keep(
            method.reward(policy.sample(size=size, seed=derive_seed("spelled", seed, number)))
        )
        credit = method.credit(groups, Estimates(values=policy.critic(groups)))
        samples = kept_samples(credit, update)
        if not samples:
            continue
        batch = packed(samples, update)
        if update.has_values:
            with torch.no_grad():
                batch = replace(batch, extra=replace(batch.extra, values=policy(batch).values))
        for _ in range(num_epochs):
            applied.zero_grad()
            report = update.loss(policy(batch), batch)
            if (
                update.target_kl is not None
                and report.metrics.get("policy/approx_kl", 0.0) > update.target_kl
            ):
                break
            report.loss.backward()
            applied.step()
    return policy
