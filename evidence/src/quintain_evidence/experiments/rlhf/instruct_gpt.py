"""InstructGPT: does a likelihood of other data in the gradient keep what the reward does not ask for?

Three families of prompts share features, and the policy is linear in them: what is learned of one moves the others. The
start is the policy that wrote all demonstrations. Answers to prompts of the first family are ranked, four at a time, a
reward model is fitted to the rankings, and PPO maximises it. The number is how much less likely demonstrations of the
second family have become on prompts that nobody trained on (nats an answer, exactly). PPO-ptx mixes in demonstrations
of the second family; the control those of the third, as many, each gradient of theirs rescaled to the norm that the
second's had at that update. In the null world the families share nothing.

Beside it: what the answers are worth in truth against PPO without a corpus, how much that forgets, whether the control
does harm, and whether the KL falls as its price rises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.data.comparisons import Labeller, comparison_samples, label_groups
from quintain.data.pack import pack
from quintain.data.samples import imitation_samples
from quintain.learning.update import Corpus, minibatches
from quintain.losses.compose import combine
from quintain.losses.reward_model import bradley_terry
from quintain.losses.value import value
from quintain.methods.rlhf import instruct_gpt
from quintain.types import Group, Outputs, Task, derive_seed, flatten_scored
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.tabular import (
    TablePolicy,
    actions_of,
    estimate,
    kept_samples,
    packed,
    states_of,
)  # fmt: skip

ANSWERS, FEATURES, PROMPTS = 8, 18, 8
RANKED, CORPUS, OTHER, HELD_OUT = (range(k * PROMPTS, (k + 1) * PROMPTS) for k in range(4))
"""Prompts of the families; those that are held out are of the second."""
FAMILIES = (0, 1, 2, 1)
MAX_TOKENS = 1 << 20
DEAR = 1.0
"""a price of the KL beside that of the arms"""
CRITIC_RATE = 0.1


@dataclass(frozen=True)
class Prompts:
    """The prompts, what they have in common, and what their answers are worth."""

    world: World
    features: Tensor
    """[prompt, feature]"""
    start: Tensor
    """[feature, answer]"""
    worth: NDArray[np.float64]
    """[prompt, answer]"""

    def policy(self, weights: Tensor, values: Tensor | None = None) -> TablePolicy:
        """Return the table whose logits are features times `weights` [feature, answer]."""
        return TablePolicy(self.world, self.features @ weights, values)


def prompts(rng: np.random.Generator, *, shared: float) -> Prompts:
    """Return prompts of which a share `shared` of the features is that of all families."""
    families = np.zeros((3, FEATURES))
    common = rng.normal(size=FEATURES)
    if shared:
        families = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.normal(size=(3, FEATURES))
        own = 0.5 * rng.normal(size=(len(FAMILIES) * PROMPTS, FEATURES))
    else:  # each has features of its own
        own = np.zeros((len(FAMILIES) * PROMPTS, FEATURES))
        width = FEATURES // 3
        for row in range(len(own)):
            family = FAMILIES[row // PROMPTS]
            own[row, family * width : (family + 1) * width] = rng.normal(size=width)
    features = np.repeat(families[list(FAMILIES)], PROMPTS, axis=0) + own
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    num = len(features)
    world = World(
        tasks=tuple(Task(id=f"prompts/{n}", environment="prompts", seed=n) for n in range(num)),
        actions=tuple(map(str, range(ANSWERS))),
        horizon=1,
        start=np.arange(num),
        next=np.full((num, ANSWERS), END),
        reward=np.zeros((num, ANSWERS)),
        is_legal=np.ones((num, ANSWERS), np.bool_),
        is_success=np.zeros((num, ANSWERS), np.bool_),
        task_of=np.arange(num),
        keys=tuple(map(str, range(num))),
        expert=np.full(num, END),
        distance=np.full(num, np.nan),
    )
    worth = rng.normal(size=(num, ANSWERS))
    start = 2.0 * rng.normal(size=(FEATURES, ANSWERS))
    return Prompts(replace(world, reward=worth), torch.from_numpy(features), torch.from_numpy(start), worth)


def rewarded(made: Prompts, groups: Sequence[Group], temperature: float) -> NDArray[np.float64]:
    """Return the scores [prompt, answer] of a reward model that is fitted to rankings of the answers of `groups`."""
    comparisons = label_groups(groups, Labeller(temperature=temperature), size=4)
    batch = pack(comparison_samples(comparisons))
    marks = (batch.turn_id >= 0).nonzero().squeeze(1)
    answers = [answer for each in comparisons for answer in each.answers]
    states = [states_of(answer)[0] for answer in answers]
    actions = [actions_of(answer, made.world)[0] for answer in answers]
    scores = torch.zeros(made.worth.shape, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=200, line_search_fn="strong_wolfe")
    loss = bradley_terry()

    def closure() -> float:
        optimizer.zero_grad()
        values = scores.new_zeros(len(batch.token_ids)).index_copy(0, marks, scores[states, actions])
        said = Outputs(logprobs=values, entropy=values, values=values)
        total = loss(said, batch).loss + 1e-3 * scores.square().sum()
        total.backward()
        return float(total.detach())

    optimizer.step(closure)
    return scores.detach().numpy()


def trained(
    made: Prompts,
    scores: NDArray[np.float64],
    options: Mapping[str, Any],
    seed: int,
    *,
    beta: float,
    corpus: Corpus | None = None,
    norms: Sequence[float] = (),
) -> Learned:
    """Return what PPO on `scores` comes to with a corpus in every gradient, rescaled to `norms` where given."""
    method = instruct_gpt.method(instruct_gpt.Config(reward_model="table", kl_coef=beta))
    config = instruct_gpt.Config(reward_model="table")
    weights = made.start.clone()
    values = torch.zeros(len(made.worth), dtype=torch.float64)
    applied = torch.optim.SGD([weights], float(options["rate"]))
    critic = torch.optim.Adam([values], CRITIC_RATE)
    reference, loss = made.policy(made.start), combine((method.update.loss, 1.0), (value(), 1.0))
    needs = replace(method, needs=replace(method.needs, reward_model=None))
    told: list[float] = []
    for step in range(int(options["steps"])):
        own = derive_seed(seed, step)
        policy = made.policy(weights, values)
        groups = policy.sample(size=int(options["episodes"]), seed=own, tasks=RANKED)
        said = [float(scores[states_of(t)[0], actions_of(t, made.world)[0]]) for t in flatten_scored(groups)]
        credit = method.credit(groups, replace(estimate(policy, needs, groups, reference), scores=said))
        samples = kept_samples(credit, method.update)
        for number, chosen in enumerate(minibatches(samples, config.num_minibatches, own)):
            policy = made.policy(weights, values)
            batch = packed([samples[i] for i in chosen], method.update)
            loss(policy(batch), batch).loss.backward()
            assert policy.theta.grad is not None and policy.values is not None, "both are learned"
            gradient = made.features.T @ policy.theta.grad
            if corpus is not None:
                beside = slope(made, weights, corpus, derive_seed(own, "corpus", number))
                if norms:
                    beside = beside * norms[len(told)] / beside.norm()
                told.append(float(beside.norm()))
                gradient = gradient + beside
            weights.grad, values.grad = gradient, policy.values.grad
            applied.step()
            critic.step()
    return Learned(weights.detach(), told)


@dataclass(frozen=True)
class Learned:
    """Weights [feature, answer], and the norm of the corpus' gradient at each update."""

    weights: Tensor
    norms: Sequence[float]


def slope(made: Prompts, weights: Tensor, corpus: Corpus, seed: int) -> Tensor:
    """Return the gradient [feature, answer] of the corpus' loss."""
    policy = made.policy(weights)
    (batch,) = corpus.draw(seed, MAX_TOKENS)
    corpus.loss(policy(batch), batch).loss.backward()
    assert policy.theta.grad is not None, "a likelihood reaches the logits"
    return made.features.T @ policy.theta.grad


def divergence(made: Prompts, weights: Tensor, rows: Sequence[int]) -> float:
    """Return by how much answers of the start have become less likely on the prompts `rows`: KL(start, now)."""
    first, now = (made.policy(each).probabilities()[list(rows)] for each in (made.start, weights))
    return float((first * (first.log() - now.log())).sum(-1).mean())


def moved(made: Prompts, weights: Tensor) -> float:
    """Return KL(now, start) on the prompts whose answers are ranked."""
    first, now = (made.policy(each).probabilities()[list(RANKED)] for each in (made.start, weights))
    return float((now * (now.log() - first.log())).sum(-1).mean())


def worth_of(made: Prompts, weights: Tensor) -> float:
    """Return what answers to the ranked prompts are worth in truth."""
    rows = list(RANKED)
    return float((made.policy(weights).probabilities()[rows].numpy() * made.worth[rows]).sum(-1).mean())


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with prompts, a start and rankings of its own."""
    return [replication(options, derive_seed(seed, number)) for number in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what is forgotten with either corpus, and without one."""
    made, arms = arms_of(options, seed, shared=float(options["shared"]))
    apart, null = arms_of(options, seed, shared=0.0)
    scores, plain = arms["scores"], arms["plain"]
    dear = trained(made, scores.numpy(), options, derive_seed(seed, "ppo"), beta=DEAR).weights
    return {
        "method": divergence(made, arms["method"], HELD_OUT),
        "control": divergence(made, arms["control"], HELD_OUT),
        "null_method": divergence(apart, null["method"], HELD_OUT),
        "null_control": divergence(apart, null["control"], HELD_OUT),
        "extra.forgets": divergence(made, plain, HELD_OUT),
        "extra.harms": divergence(made, arms["control"], HELD_OUT) - divergence(made, plain, HELD_OUT),
        "extra.reward": worth_of(made, arms["method"]) - worth_of(made, plain),
        "extra.gain": worth_of(made, plain) - worth_of(made, made.start),
        "extra.price": moved(made, plain) - moved(made, dear),
    }


def arms_of(options: Mapping[str, Any], seed: int, *, shared: float) -> tuple[Prompts, dict[str, Tensor]]:
    """Return the prompts, and the weights after PPO with the corpus, with the other one, and without."""
    made = prompts(np.random.default_rng(seed % (1 << 63)), shared=shared)
    start = made.policy(made.start)
    ranked = start.sample(size=int(options["answers"]), seed=derive_seed(seed, "ranked"), tasks=RANKED)
    scores = rewarded(made, ranked, float(options["temperature"]))

    def corpus(rows: Sequence[int]) -> Corpus:
        shown = start.sample(size=int(options["shown"]), seed=derive_seed(seed, "shown"), tasks=rows)
        samples = imitation_samples(flatten_scored(shown))
        return Corpus(samples, int(options["ptx_batch"]), float(options["ptx_coef"]))

    def run(mixed: Corpus | None, norms: Sequence[float] = ()) -> Learned:
        beta = float(options["beta"])
        return trained(made, scores, options, derive_seed(seed, "ppo"), beta=beta, corpus=mixed, norms=norms)

    own = run(corpus(CORPUS))
    arms = {"plain": run(None), "method": own, "control": run(corpus(OTHER), own.norms)}
    return made, {
        **{name: arm.weights for name, arm in arms.items()},
        "scores": torch.from_numpy(scores),
    }
