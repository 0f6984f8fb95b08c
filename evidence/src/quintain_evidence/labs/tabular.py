"""A table of logits in the place of the model: all else is what ships, and training takes a fraction of a second.

The policy is π(a|s) = softmax(θ_s), one row for each (task, state) of an enumerated world. An episode is a
`Trajectory` whose turns are one prompt token (the state) and one sampled token (the action). Rewards, filters, credit
and update are the stage values of a method (`OnPolicy`), and go through `samples_from`, `micro_batches` and the loss as
in training, so what is measured is what ships. Because the world is a table, too, the gradient that is estimated can be
compared with the exact one.

Episodes of equal `seed` and different tables have common random numbers: the uniform that decides turn k of episode i
is the same. The horizon is the task's: an episode that reaches it is terminated, with nothing beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.credit.layout import Critic
from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.errors import UsageError
from quintain.learning.update import Update, minibatches
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.types import (
    NOTHING,
    Action,
    Batch,
    Completion,
    Credit,
    Group,
    Loss,
    LossReport,
    Outputs,
    Sample,
    Score,
    Stop,
    Text,
    Trajectory,
    Turn,
    derive_seed,
    flatten_scored,
)
from quintain_evidence.labs.exact import END, World, exact_gradient, exact_values, log_policy

MAX_TOKENS = 1 << 30
"""Tokens of a batch: a table has no memory to spare."""


class TablePolicy:
    """A table of logits, and where there is a critic of values, that answers batches as a model does.

    Args:
        world: whose states and actions the rows and columns are.
        theta: logits [S, A]; copied, in float64.
        values: the critic's value of each state [S]; None for a policy without one.
    """

    def __init__(self, world: World, theta: Tensor, values: Tensor | None = None) -> None:
        self.world = world
        self.theta = theta.detach().to(torch.float64).clone().requires_grad_()
        self.values = None if values is None else values.detach().to(torch.float64).clone().requires_grad_()

    @property
    def parameters(self) -> list[Tensor]:
        """What is trained: logits, and values where there are some."""
        return [self.theta] if self.values is None else [self.theta, self.values]

    def logs(self) -> Tensor:
        """Return log π(a|s) [S, A] in float32, as they are recorded at sampling and computed in training."""
        return log_policy(self.world, self.theta).float()

    def probabilities(self) -> Tensor:
        """Return π(a|s) [S, A] in float64, without gradient."""
        return log_policy(self.world, self.theta.detach()).exp()

    def objective(self, outcome: str = "return") -> float:
        """Return J exactly: the expected return, or success, of an episode of a task drawn evenly."""
        return float(exact_values(self.world, self.probabilities(), outcome=outcome).objective)

    def copy(self) -> TablePolicy:
        """Return a policy of the same numbers."""
        return TablePolicy(self.world, self.theta, self.values)

    def __call__(self, batch: Batch) -> Outputs:
        """Return log-probs, entropies and values [N] of the trained tokens of `batch`, with gradients."""
        targets = (batch.turn_id >= 0).nonzero().squeeze(1)
        states = batch.token_ids[targets - 1]
        logs = self.logs()[states]
        chosen = logs.gather(1, (batch.token_ids[targets] - self.world.num_states)[:, None]).squeeze(1)
        entropy = -(logs.exp() * logs.where(logs.isfinite(), 0.0)).sum(-1)
        empty = chosen.new_zeros(len(batch.token_ids))
        values = None if self.values is None else empty.index_copy(0, targets, self.values[states].float())
        return Outputs(
            logprobs=empty.index_copy(0, targets, chosen),
            entropy=empty.index_copy(0, targets, entropy),
            values=values,
        )

    def sample(self, *, size: int, seed: int, tasks: Sequence[int] | None = None) -> list[Group]:
        """Return `size` episodes of each of `tasks`, numbers of tasks of the world; None: of every task once.

        A task may be named more than once: each time is a group of its own.
        """
        chosen = np.arange(len(self.world.tasks)) if tasks is None else np.array(tasks, np.int64)
        if size < 1 or not len(chosen):
            raise UsageError(f"episodes: got {size} of each of {len(chosen)} tasks; give 1 or more of each")
        return _Episodes(self.world, self.logs().detach().numpy()).play(chosen, size, seed)


class _Episodes:
    """Plays episodes of a table side by side; equal turns are one object."""

    def __init__(self, world: World, logs: NDArray[np.float32]) -> None:
        self.world, self.logs = world, logs
        self.sums = np.exp(logs.astype(np.float64)).cumsum(1)
        self.turns: dict[tuple[int, int, bool, float], Turn] = {}

    def play(self, tasks: NDArray[np.int64], size: int, seed: int) -> list[Group]:
        """Return the groups."""
        world = self.world
        num = len(tasks) * size
        rng = np.random.default_rng(seed)
        uniforms, luck = rng.random((world.horizon, num)), None
        if world.chance is not None:
            luck = rng.random((world.horizon, num))
        state = np.repeat(world.start[tasks], size)
        alive = np.arange(num)
        lived: list[list[Turn]] = [[] for _ in range(num)]
        solved = np.zeros(num, np.bool_)
        for number in range(world.horizon):
            here = state[alive]
            sums = self.sums[here]
            drawn = uniforms[number, alive] * sums[:, -1]
            action = (drawn[:, None] >= sums).sum(1)
            paid = world.reward[here, action]
            won = world.is_success[here, action]
            if world.chance is not None and luck is not None:
                won = luck[number, alive] < world.chance[here, action]
                paid = won.astype(np.float64)
            for i, s, a, r in zip(alive.tolist(), here.tolist(), action.tolist(), paid.tolist(), strict=True):
                lived[i].append(self._turn(s, a, number == 0, r))
            solved[alive] = won
            after = world.next[here, action]
            state[alive] = after
            alive = alive[after != END]
            if not len(alive):
                break
        first = derive_seed("episodes", seed)
        return [
            Group(
                task=world.tasks[task],
                trajectories=tuple(
                    self._trajectory(place, task, index, lived[i], bool(solved[i]), first + i)
                    for index, i in enumerate(range(place * size, (place + 1) * size))
                ),
            )
            for place, task in enumerate(tasks.tolist())
        ]

    def _turn(self, state: int, action: int, is_first: bool, reward: float) -> Turn:
        key = (state, action, is_first, reward)
        found = self.turns.get(key)
        if found is None:
            world = self.world
            found = self.turns[key] = Turn(
                observation=(Text(text=world.keys[state]),),
                prompt_ids=(state,),
                completion=Completion(
                    token_ids=(world.num_states + action,),
                    logprobs=(float(self.logs[state, action]),),
                    stop="stop",
                ),
                action=Action(text=world.actions[action]),
                reward=reward,
                state_key=world.keys[state],
                starts_segment=is_first,
            )
        return found

    def _trajectory(
        self, place: int, task: int, index: int, turns: list[Turn], solved: bool, seed: int
    ) -> Trajectory:
        return Trajectory(
            task=self.world.tasks[task],
            turns=tuple(turns),
            outcome=Score(value=float(sum(turn.reward for turn in turns)), is_success=solved),
            stop=Stop.TERMINATED,
            seed=seed,
            group=f"{place}:{self.world.tasks[task].id}",
            index=index,
        )


def states_of(trajectory: Trajectory) -> list[int]:
    """Return the state (row of the table) before each turn of an episode that a table sampled."""
    return [turn.prompt_ids[0] for turn in trajectory.turns]


def actions_of(trajectory: Trajectory, world: World) -> list[int]:
    """Return the action (column of the table) of each turn of an episode that a table sampled."""
    return [turn.completion.token_ids[0] - world.num_states for turn in trajectory.turns]


def per_turn(credit: Credit) -> NDArray[np.float64]:
    """Return the advantage of every turn of `credit`, episode by episode, [turns]."""
    return np.array([float(array[0]) for arrays in credit.advantages for array in arrays], np.float64)


def true_advantages(groups: Sequence[Group], policy: TablePolicy) -> NDArray[np.float64]:
    """Return the exact A^π(s, a, turns left) of every turn of the scored episodes of `groups`, [turns]."""
    exact = exact_values(policy.world, policy.probabilities()).advantage.numpy()
    return np.array(
        [
            exact[policy.world.horizon - number, state, action]
            for t in flatten_scored(groups)
            for number, (state, action) in enumerate(
                zip(states_of(t), actions_of(t, policy.world), strict=True)
            )
        ],
        np.float64,
    )


def estimate(
    policy: TablePolicy, method: OnPolicy, groups: Sequence[Group], reference: TablePolicy | None = None
) -> Estimates:
    """Return what `method` reads beside the episodes: values of the table's critic, log-probs of `reference`.

    Raises:
        UsageError: the method reads a critic and the policy has none, or a reference and none is given.
    """
    trajectories = flatten_scored(groups)
    values = found = None
    if method.needs.critic:
        if policy.values is None:
            raise UsageError("values of a critic: got a table without them; give TablePolicy values")
        table = policy.values.detach().numpy()
        values = Critic(values=[[table[[state]] for state in states_of(t)] for t in trajectories])
    if method.needs.reference_logprobs:
        if reference is None:
            raise UsageError("log-probs of a reference: got none; give the table that the policy began with")
        logs = reference.logs().detach().numpy()
        found = [
            [
                logs[[state], [action]]
                for state, action in zip(states_of(t), actions_of(t, policy.world), strict=True)
            ]
            for t in trajectories
        ]
    return Estimates(values=values, reference=found)


def assign(
    policy: TablePolicy, method: OnPolicy, groups: Sequence[Group], reference: TablePolicy | None = None
) -> Credit:
    """Return the credit of `method` for `groups`: its own reward, filter and credit, in the order of the loop."""
    method.state.update(groups)
    kept = method.keep(method.reward(groups))
    return method.credit(kept, estimate(policy, method, kept, reference))


def kept_samples(credit: Credit, update: Update) -> list[Sample]:
    """Return the token streams that `update` trains on: all, or those whose advantages are not all 0."""
    samples = samples_from(credit, has_candidates=update.has_candidates)
    return [sample for sample in samples if update.trains(sample)]


def packed(
    samples: Sequence[Sample],
    update: Update,
    reference: TablePolicy | None = None,
    left_out: Sequence[Sample] = (),
) -> Batch:
    """Return `samples` as one batch, weighted as `update` says, with log-probs of `reference` where it needs them."""
    (batch,) = micro_batches(
        samples,
        max_tokens=MAX_TOKENS,
        aggregation=update.aggregation,
        constant=update.constant,
        left_out=left_out,
    )
    if not update.has_reference or reference is None:
        return batch
    with torch.no_grad():
        return replace(batch, extra=replace(batch.extra, reference_logprobs=reference(batch).logprobs))


def loss_gradient(
    policy: TablePolicy,
    credit: Credit,
    update: Update,
    *,
    loss: Loss | None = None,
    reference: TablePolicy | None = None,
) -> Tensor:
    """Return the direction [S, A] in which `update` moves the logits: minus the gradient of its loss, in float64.

    `loss` stands in for that of `update`. All zeros where nothing is trained.
    """
    samples = kept_samples(credit, update)
    if not samples:
        return torch.zeros_like(policy.theta)
    left_out = [s for s in samples_from(credit) if update.counts(s) and not update.trains(s)]
    batch = packed(samples, update, reference, left_out)
    report: LossReport = (loss or update.loss)(policy(batch), batch)
    (gradient,) = torch.autograd.grad(report.loss, policy.theta)
    return -gradient


def cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of two gradients of equal shape; 0 where one of them is 0."""
    norms = one.norm() * other.norm()
    return float((one * other).sum() / norms) if norms > 0 else 0.0


def cosine_with_exact(
    policy: TablePolicy,
    method: OnPolicy,
    groups: Sequence[Group],
    *,
    change: Callable[[Credit], Credit] = lambda credit: credit,
    reference: TablePolicy | None = None,
    exact: Tensor | None = None,
) -> float:
    """Return the cosine of the gradient that `method` takes from `groups` with ∇J.

    `change` replaces the credit, for a control; `exact` is ∇J where it is known already.
    """
    credit = change(assign(policy, method, groups, reference))
    found = loss_gradient(policy, credit, method.update, reference=reference)
    return cosine(found, exact_gradient(policy.world, policy.theta)[1] if exact is None else exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step of a run: ``Step(number=3, objective=0.41, metrics={"policy/clip_fraction": 0.08}, …)``."""

    number: int
    """steps of the run up to and with this, from 1"""
    batch: int
    """number of the batch that it learned from, from 1"""
    objective: float
    """J after it, exactly"""
    norm: float
    """norm of the gradient that was applied"""
    metrics: Mapping[str, float] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TabularRun:
    """What came of training a table: ``run.objective`` is J at the end."""

    policy: TablePolicy
    start: float
    """J before the first step"""
    steps: Sequence[Step]

    @property
    def objective(self) -> float:
        """J at the end."""
        return self.steps[-1].objective if self.steps else self.start

    @property
    def by_batch(self) -> list[float]:
        """J after each batch; a batch that nothing was learned from leaves it as it was."""
        last: dict[int, float] = {step.batch: step.objective for step in self.steps}
        curve: list[float] = []
        for number in range(1, max(last, default=0) + 1):
            curve.append(last.get(number, curve[-1] if curve else self.start))
        return curve

    def mean(self, name: str) -> float:
        """Return the mean over the steps of the metric `name` of the loss."""
        found = [step.metrics[name] for step in self.steps if name in step.metrics]
        return sum(found) / len(found) if found else 0.0

    def steps_until(self, level: float) -> int:
        """Return the optimizer steps after which J was at least `level` for the first time; all plus one if never."""
        found = [step.number for step in self.steps if step.objective >= level]
        return min(found, default=len(self.steps) + 1)


def train_table(
    start: TablePolicy,
    method: OnPolicy,
    *,
    num_batches: int,
    size: int,
    seed: int,
    rate: float,
    tasks: Sequence[int] | None = None,
    tasks_per_batch: int | None = None,
    optimizer: Callable[[list[Tensor], float], torch.optim.Optimizer] = lambda p, rate: torch.optim.SGD(
        p, rate
    ),
    loss: Loss | None = None,
    norm_like: Loss | None = None,
    num_epochs: int | None = None,
    num_minibatches: int | None = None,
    collect: Callable[[TablePolicy, int], list[Group]] | None = None,
) -> TabularRun:
    """Train a copy of `start` by `method` and return what came of it.

    Args:
        start: the policy before the first step; it is not changed.
        method: whose reward, filter, credit and update are used.
        num_batches: times that episodes are sampled and learned from.
        size: episodes of each task in a batch.
        seed: names the episodes, the tasks that are drawn and the minibatches.
        rate: learning rate, of the plain gradient unless `optimizer` says otherwise.
        tasks: numbers of the tasks of every batch; None: all of the world.
        tasks_per_batch: tasks that are drawn, with repetition, from `tasks` for each batch; None: all of them.
        optimizer: makes what applies the gradient, of the parameters and the rate.
        loss: stands in for the loss of the method.
        norm_like: rescale every gradient to the norm that this loss has on the same batch and weights, so that arms
            whose losses differ take steps of equal length.
        num_epochs: times that a batch is gone through; None: as the method says, else once.
        num_minibatches: optimizer steps of an epoch; None: as the method says, else one.
        collect: stands in for sampling: (policy, number of the batch from 1) → groups.
    """
    policy, reference = start.copy(), start.copy()
    update = method.update
    applied = optimizer(policy.parameters, rate)
    epochs = num_epochs or update.num_epochs or 1
    parts = num_minibatches or update.num_minibatches or 1
    pool = np.arange(len(start.world.tasks)) if tasks is None else np.array(tasks, np.int64)
    steps: list[Step] = []
    for batch_number in range(1, num_batches + 1):
        own = derive_seed("tabular", seed, batch_number)
        chosen = (
            pool
            if tasks_per_batch is None
            else np.random.default_rng(derive_seed(own, "tasks")).choice(pool, tasks_per_batch)
        )
        groups = (
            collect(policy, batch_number)
            if collect is not None
            else policy.sample(size=size, seed=own, tasks=chosen.tolist())
        )
        samples = kept_samples(assign(policy, method, groups, reference), update)
        if not samples:
            continue
        whole = [packed(samples, update, reference)] if parts == 1 else []
        for epoch in range(epochs):
            reports: list[float] = []
            cut = whole or [
                packed([samples[i] for i in numbers], update, reference)
                for numbers in minibatches(samples, parts, derive_seed(own, epoch))
            ]
            for batch in cut:
                report = _apply(policy, applied, loss or update.loss, batch, norm_like)
                reports.append(report.metrics.get("policy/approx_kl", 0.0))
                steps.append(
                    replace(report, number=len(steps) + 1, batch=batch_number, objective=policy.objective())
                )
            if update.target_kl is not None and max(reports) > update.target_kl:
                break
    return TabularRun(policy=policy, start=start.objective(), steps=steps)


def _apply(
    policy: TablePolicy,
    applied: torch.optim.Optimizer,
    loss: Loss,
    batch: Batch,
    norm_like: Loss | None,
) -> Step:
    """Take one step on `batch`; its number and J are filled in by the caller."""
    applied.zero_grad()
    outputs = policy(batch)
    report = loss(outputs, batch)
    report.loss.backward(retain_graph=norm_like is not None)
    assert policy.theta.grad is not None, "every policy loss reaches the logits"
    if norm_like is not None:
        (other,) = torch.autograd.grad(norm_like(outputs, batch).loss, policy.theta)
        own = policy.theta.grad.norm()
        if own > 0:
            policy.theta.grad.mul_(other.norm() / own)
    norm = float(policy.theta.grad.norm())
    applied.step()
    return Step(number=0, batch=0, objective=0.0, norm=norm, metrics=report.metrics)
