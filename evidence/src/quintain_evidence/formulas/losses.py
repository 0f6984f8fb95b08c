"""Losses, each beside a plain second version that loops over tokens; gradients by central differences of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from types import ModuleType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from quintain.losses.entropy import entropy_bonus
from quintain.losses.imitation import imitation
from quintain.types import Batch, BatchExtra, Loss, LossReport, Outputs
from quintain_evidence.formulas.formula import Formula, Rng, flatten

STEP = 1e-5
"""Half the width of a central difference, in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token in plain numbers; `weight` 0 is not trained."""

    stream: int
    turn: int
    weight: float
    behaviour: float
    advantage: float
    target: float
    reference: float
    old_value: float
    proximal: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A packed batch, with what the model says of it."""

    tokens: list[Token]
    logprobs: list[float]
    entropy: list[float]
    values: list[float]
    pairs: list[tuple[int, bool]]
    """pair and side of each stream"""

    @property
    def trained(self) -> list[int]:
        """Return the places of trained tokens."""
        return [place for place, token in enumerate(self.tokens) if token.weight > 0]

    def batch(self) -> Batch:
        """Return the batch as the code that ships takes it, in float64."""

        def floats(numbers: Sequence[float]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.float64)

        streams = [token.stream for token in self.tokens]
        lengths = [streams.count(k) for k in range(streams[-1] + 1)]
        extra = BatchExtra(
            num_trained=len(self.trained),
            turn_end=torch.zeros(len(streams), dtype=torch.bool),
            trajectory=torch.arange(len(lengths)),
            pair=torch.tensor([pair for pair, _ in self.pairs]),
            is_chosen=torch.tensor([side for _, side in self.pairs]),
            num_pairs=len({pair for pair, _ in self.pairs}),
            reference_logprobs=floats([token.reference for token in self.tokens]),
            values=floats([token.old_value for token in self.tokens]),
        )
        return Batch(
            token_ids=torch.arange(len(streams)),
            sequence_id=torch.tensor(streams),
            position_ids=torch.tensor([k for length in lengths for k in range(length)]),
            lengths=tuple(lengths),
            loss_weight=floats([token.weight for token in self.tokens]),
            logprobs=floats([token.behaviour for token in self.tokens]),
            advantages=floats([token.advantage for token in self.tokens]),
            returns=floats([token.target for token in self.tokens]),
            turn_id=torch.tensor([token.turn if token.weight > 0 else -1 for token in self.tokens]),
            extra=extra,
        )


def draw(rng: Rng) -> Case:
    """Return an even number of streams of 3 to 9 tokens, the first of them untrained; ratios from .3 to 3."""
    tokens, pairs = list[Token](), list[tuple[int, bool]]()
    for stream in range(2 * int(rng.integers(1, 4))):
        length = int(rng.integers(3, 10))
        turns = np.sort(rng.integers(0, 3, length))
        turns = turns - turns[1]
        for place in range(length):
            is_trained = place == 1 or (place > 1 and rng.random() < 0.7)
            behaviour = -float(rng.exponential())
            tokens.append(
                Token(
                    stream=stream,
                    turn=int(turns[place]),
                    weight=float(rng.uniform(0.05, 0.5)) if is_trained else 0.0,
                    behaviour=behaviour,
                    advantage=float(rng.normal()),
                    target=float(rng.normal()),
                    reference=behaviour + float(rng.normal()) * 0.3,
                    old_value=float(rng.normal()),
                    proximal=behaviour + float(rng.normal()) * 0.5,
                )
            )
        pairs.append((stream // 2, stream % 2 == 0))
    num = len(tokens)
    return Case(
        tokens=tokens,
        logprobs=[token.behaviour + float(rng.normal()) * 0.5 for token in tokens],
        entropy=rng.exponential(size=num).tolist(),
        values=rng.normal(size=num).tolist(),
        pairs=pairs,
    )


Plain = Callable[[Case, list[float], list[float], list[float]], float]
"""(case, log-probs, entropies, values) → the loss"""


def against(
    name: str, place: str, function: str, make: Callable[[ModuleType], Loss], plain: Plain
) -> Formula:
    """Return the formula of a loss: its value and gradients, by log-probs, entropies and values, beside `plain`."""

    def ours(module: ModuleType, case: Case) -> list[float]:
        inputs = [
            torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
            for numbers in (case.logprobs, case.entropy, case.values)
        ]
        outputs = Outputs(logprobs=inputs[0], entropy=inputs[1], values=inputs[2])
        found = make(module)(outputs, case.batch()).loss
        slopes = cast("Sequence[Tensor | None]", torch.autograd.grad(found, inputs, allow_unused=True))
        return flatten(
            [
                found.item(),
                *(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, slopes, strict=True)),
            ]
        )

    def reference(case: Case) -> list[float]:
        given = [list(case.logprobs), list(case.entropy), list(case.values)]
        found = [plain(case, *given)]
        for which in given:
            for place in range(len(which)):
                centre = which[place]
                around: list[float] = []
                for shift in (STEP, -STEP):
                    which[place] = centre + shift
                    around.append(plain(case, *given))
                which[place] = centre
                found.append((around[0] - around[1]) / (2 * STEP))
        return found

    return Formula(f"losses.{name}", f"losses.{place}", (function,), draw, ours, reference,
        exact=exact_of(make) if place == "policy" else None,
        aside=("_report", "log_ratio") if function == "reinforce" else ("_report",))  # fmt: skip


def exact_of(make: Callable[[ModuleType], Loss]) -> Callable[[ModuleType], float]:
    """Return the cosine of the loss's gradient with that of the expected advantage, all actions of a toy enumerated."""

    def cosine(module: ModuleType) -> float:
        theta = torch.tensor([[0.3, -0.2, 0.9], [-1.0, 0.4, 0.1]], dtype=torch.float64, requires_grad=True)
        logs = torch.log_softmax(theta, -1)
        behaviour = logs.detach()
        advantages = torch.tensor([[1.0, -0.5, 0.25], [0.0, 2.0, -1.0]], dtype=torch.float64)
        advantages = advantages - (behaviour.exp() * advantages).sum(-1, keepdim=True)
        tokens = [
            Token(
                stream=k,
                turn=0,
                weight=w,
                behaviour=b,
                advantage=a,
                target=0,
                reference=0,
                old_value=0,
                proximal=0,
            )
            for k, (w, b, a) in enumerate(
                zip(flatten(behaviour.exp() / 2), flatten(behaviour), flatten(advantages), strict=True)
            )
        ]
        case = Case(tokens=tokens, logprobs=[], entropy=[], values=[], pairs=[(-1, False)] * 6)
        outputs = Outputs(logprobs=logs.flatten(), entropy=torch.zeros(6, dtype=torch.float64))
        (found,) = torch.autograd.grad(make(module)(outputs, case.batch()).loss, theta, retain_graph=True)
        (wanted,) = torch.autograd.grad((logs.exp() * advantages).sum(), theta)
        return float(torch.cosine_similarity(-found.flatten(), wanted.flatten(), dim=0))

    return cosine


def summed(term: Callable[[Case, int, list[float], list[float], list[float]], float]) -> Plain:
    """Return Σ w_t · term over trained tokens."""
    return lambda case, logs, entropy, values: sum(
        case.tokens[t].weight * term(case, t, logs, entropy, values) for t in case.trained
    )


def ratio(case: Case, t: int, logs: list[float]) -> float:
    """Return π / π_behaviour of a token."""
    return exp(logs[t] - case.tokens[t].behaviour)


def surrogate(r: float, advantage: float, low: float, high: float) -> float:
    """Return minus the smaller of r·A and its clipped form."""
    return -min(r * advantage, min(max(r, 1 - low), 1 + high) * advantage)


def clipped(case: Case, t: int, logs: list[float], _e: list[float], _v: list[float]) -> float:
    """Return PPO's term, .2 and .28."""
    return surrogate(ratio(case, t, logs), case.tokens[t].advantage, 0.2, 0.28)


HIGHS = (0.2, 0.3, 0.25, 0.05, 0.6, 0.28)
"""upper bound of each stream"""


def clipped_each(case: Case, t: int, logs: list[float], _e: list[float], _v: list[float]) -> float:
    """Return PPO's term, .2 and the upper bound of the token's stream."""
    token = case.tokens[t]
    return surrogate(ratio(case, t, logs), token.advantage, 0.2, HIGHS[token.stream])


def dual(case: Case, t: int, logs: list[float], entropy: list[float], values: list[float]) -> float:
    """Return PPO's term with .2 and .28, at most 1.5 |A| where A < 0."""
    found, advantage = clipped(case, t, logs, entropy, values), case.tokens[t].advantage
    return min(found, -1.5 * advantage) if advantage < 0 else found


def units(case: Case, key: Callable[[Token], object]) -> list[list[int]]:
    """Return the trained tokens of each unit."""
    found: dict[object, list[int]] = {}
    for t in case.trained:
        found.setdefault(key(case.tokens[t]), []).append(t)
    return list(found.values())


def shared(key: Callable[[Token], object], *, is_mean: bool, low: float, high: float) -> Plain:
    """Return the clipped surrogate with one ratio for each unit, in token form.

    Its value takes the unit's ratio for each token; its gradient is that of log π of the token alone, so a token's
    term is the ratio of the unit at the centre times π / π_centre.
    """

    def plain(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
        total = 0.0
        for unit in units(case, key):
            centre = [case.logprobs[t] - case.tokens[t].behaviour for t in unit]
            whole = sum(centre) / (len(unit) if is_mean else 1)
            for t in unit:
                token = case.tokens[t]
                r = exp(whole + logs[t] - case.logprobs[t])
                total += token.weight * surrogate(r, token.advantage, low, high)
        return total

    return plain


def cispo(case: Case, t: int, logs: list[float], _e: list[float], _v: list[float]) -> float:
    """Return CISPO's term: the clipped ratio at the centre weighs log π."""
    weight = min(max(ratio(case, t, case.logprobs), 0.5), 1.28)
    return -weight * case.tokens[t].advantage * logs[t]


def difference(case: Case, t: int, logs: list[float]) -> float:
    """Return log π - log π_ref."""
    return logs[t] - case.tokens[t].reference


def one_sided(case: Case, t: int, _l: list[float], _e: list[float], values: list[float]) -> float:
    """Return |τ - 1(G < V)|·(G - V)² with τ = .8."""
    miss = case.tokens[t].target - values[t]
    return (0.8 if miss > 0 else 0.2) * miss**2


def bend(case: Case, t: int, _l: list[float], _e: list[float], values: list[float]) -> float:
    """Return Huber's loss of the value with δ .7."""
    miss = abs(values[t] - case.tokens[t].target)
    return miss**2 / 2 if miss <= 0.7 else 0.7 * (miss - 0.35)


def squared(case: Case, t: int, _l: list[float], _e: list[float], values: list[float]) -> float:
    """Return half the larger squared error, of the value and of the value within ±.2 of the old one."""
    token = case.tokens[t]
    near = token.old_value + min(max(values[t] - token.old_value, -0.2), 0.2)
    return max((values[t] - token.target) ** 2, (near - token.target) ** 2) / 2


def truncated(case: Case, t: int, logs: list[float], _e: list[float], _v: list[float]) -> float:
    """Return REINFORCE's term, weighed by the ratio at the centre, at most 1.5."""
    return -min(ratio(case, t, case.logprobs), 1.5) * case.tokens[t].advantage * logs[t]


def dropped(case: Case, t: int, logs: list[float], _e: list[float], _v: list[float]) -> float:
    """Return REINFORCE's term, weighed by the ratio at the centre, left out where that is above 1.5."""
    weight = ratio(case, t, case.logprobs)
    return -weight * case.tokens[t].advantage * logs[t] if weight <= 1.5 else 0.0


def masked(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
    """Return REINFORCE's loss over turns whose mean ratio is within .7 and 1.4."""
    total = 0.0
    for unit in units(case, lambda token: (token.stream, token.turn)):
        r = exp(sum(case.logprobs[t] - case.tokens[t].behaviour for t in unit) / len(unit))
        if 0.7 <= r <= 1.4:
            total -= sum(case.tokens[t].weight * case.tokens[t].advantage * logs[t] for t in unit)
    return total


def decoupled(case: Case, t: int, logs: list[float], _e: list[float], _v: list[float]) -> float:
    """Return PPO's term with ratios to a proximal policy, weighed by its ratio to behaviour, at most 1.5."""
    token = case.tokens[t]
    weight = min(exp(token.proximal - token.behaviour), 1.5)
    return weight * surrogate(exp(logs[t] - token.proximal), token.advantage, 0.2, 0.28)


def margins(case: Case, logs: list[float], weight: Callable[[Case, int], float]) -> list[float]:
    """Return Δ of each pair: weighed log-ratios of the chosen side less those of the rejected one."""
    found: dict[int, float] = {}
    for t in case.trained:
        pair, is_chosen = case.pairs[case.tokens[t].stream]
        change = weight(case, t) * difference(case, t, logs)
        found[pair] = found.get(pair, 0.0) + (change if is_chosen else -change)
    return list(found.values())


def one(_case: Case, _t: int) -> float:
    """Return 1."""
    return 1.0


def by_turn(case: Case, t: int) -> float:
    """Return DMPO's weight of a token's turn, γ .7."""
    token = case.tokens[t]
    last = max(case.tokens[k].turn for k in case.trained if case.tokens[k].stream == token.stream) + 1
    return sum(0.7**k for k in range(token.turn, last)) / sum(0.7**k for k in range(last))


def preferred(term: Callable[[float], float], weight: Callable[[Case, int], float] = one) -> Plain:
    """Return the mean of `term`(Δ) over pairs."""

    def plain(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
        found = margins(case, logs, weight)
        return sum(map(term, found)) / len(found)

    return plain


def soft(x: float) -> float:
    """Return -log σ(x)."""
    return log(1 + exp(-x))


def with_likelihood(case: Case, logs: list[float], entropy: list[float], values: list[float]) -> float:
    """Return DPO's loss, β .1, plus .5 of the mean negative log-likelihood per token of chosen sides."""
    chosen = [
        [-logs[t] for t in case.trained if case.tokens[t].stream == stream]
        for stream, (_, is_chosen) in enumerate(case.pairs)
        if is_chosen
    ]
    nll = sum(sum(row) / len(row) for row in chosen) / len(chosen)
    return preferred(lambda d: soft(0.1 * d))(case, logs, entropy, values) + 0.5 * nll


def cdpo(delta: float) -> float:
    """Return DPO's loss with label smoothing .1, β .3."""
    return 0.9 * soft(0.3 * delta) + 0.1 * soft(-0.3 * delta)


def proximal_of(case: Case) -> Callable[[Batch], Tensor]:
    """Return the log-probs at the start of a step."""
    return lambda _batch: torch.tensor([token.proximal for token in case.tokens], dtype=torch.float64)


def reinforced() -> Loss:
    """Return REINFORCE, the inner loss of corrections."""
    from quintain.losses.policy import reinforce

    return reinforce()


def inner() -> Loss:
    """Return PPO's loss, the inner one of decoupled PPO."""
    from quintain.losses.policy import clip_ratio

    return clip_ratio(0.2, 0.28)


def doubled(batch: Batch) -> Tensor:
    """Return a weight for each token."""
    return 1 + batch.advantages.abs()


REINFORCE: Plain = summed(lambda c, t, logs, _e, _v: -c.tokens[t].advantage * logs[t])


def _truncated() -> Formula:
    """Return truncated importance sampling of REINFORCE, and decoupled PPO, whose proximal policy comes with a case."""
    alone = against(
        "truncated_importance",
        "importance",
        "truncate_importance",
        lambda module: module.truncate_importance(reinforced(), cap=1.5),
        summed(truncated),
    )
    both = against(
        "decoupled", "importance", "truncate_importance", lambda _m: reinforced(), summed(decoupled)
    )

    def ours(module: ModuleType, case: Case) -> list[float]:
        logs = torch.tensor(case.logprobs, dtype=torch.float64, requires_grad=True)
        empty = torch.zeros_like(logs)
        loss: Any = module.truncate_importance(inner(), cap=1.5, proximal=proximal_of(case))
        value = loss(Outputs(logprobs=logs, entropy=empty), case.batch()).loss
        return [
            *alone.ours(module, case),
            *flatten([value.item(), torch.autograd.grad(value, logs)[0], empty, empty]),
        ]

    return replace(alone, ours=ours, reference=lambda case: [*alone.reference(case), *both.reference(case)])


def _divergences() -> Formula:
    """Return the three estimators of KL to a reference, one after the other."""
    plains = {
        "k1": lambda d: d,
        "k2": lambda d: d**2 / 2,
        "k3": lambda d: exp(-d) - 1 + d,
    }

    def make(name: str) -> Callable[[ModuleType], Loss]:
        return lambda module: module.kl_penalty(name)

    def plain(term: Callable[[float], float]) -> Plain:
        return summed(lambda c, t, logs, _e, _v: term(difference(c, t, logs)))

    parts = [against("kl_penalty", "kl", "kl_penalty", make(k), plain(term)) for k, term in plains.items()]
    return replace(
        parts[0],
        ours=lambda module, case: [x for part in parts for x in part.ours(module, case)],
        reference=lambda case: [x for part in parts for x in part.reference(case)],
    )


def loop_bounds() -> Formula:
    """Return LOOP's bounds of the ratio: as far below 1 as above it, in the logarithm."""
    return Formula(
        name="losses.loop_bounds",
        module="methods.rl.loop",
        functions=("bounds",),
        draw=lambda rng: rng.uniform(0.01, 0.5, 5).tolist(),
        ours=lambda module, case: [
            x for eps in case for low, high in [module.bounds(eps)] for x in (1 - low, 1 + high)
        ],
        reference=lambda case: [x for eps in case for x in (exp(-log(1 + eps)), 1 + eps)],
    )


def adapted() -> Formula:
    """Return the coefficient of KL that follows a target: by a fifth of the error at most, over a horizon."""

    def draw_cases(rng: Rng) -> list[tuple[float, float, float, int]]:
        return [
            (
                float(rng.uniform(0.01, 1)),
                float(rng.uniform(0, 9)),
                float(rng.uniform(2, 5)),
                int(rng.integers(1, 99)),
            )
            for _ in range(20)
        ]

    def reference(case: Sequence[tuple[float, float, float, int]]) -> list[float]:
        found: list[float] = []
        for coefficient, kl, target, num in case:
            error = (kl - target) / target
            error = 0.2 if error > 0.2 else -0.2 if error < -0.2 else error
            found.append(coefficient + coefficient * error * num / 500)
        return found

    return Formula(
        name="losses.adapted_coefficient",
        module="losses.kl",
        functions=("adapt_coefficient",),
        draw=draw_cases,
        ours=lambda module, case: [
            module.adapt_coefficient(c, kl, target=target, num=num, horizon=500)
            for c, kl, target, num in case
        ],
        reference=reference,
    )


def pooled() -> Formula:
    """Return sums and means over the trained tokens of a stream or a turn, at each of its trained tokens."""

    def ours(module: ModuleType, case: Case) -> list[float]:
        batch, values = case.batch(), torch.tensor(case.values, dtype=torch.float64)
        trained = torch.tensor(case.trained)
        return flatten(
            [[f(values, batch, unit)[trained] for f in (module.unit_sum, module.unit_mean)] for unit in UNITS]
        )

    def reference(case: Case) -> list[float]:
        found: list[float] = []
        for unit in UNITS:
            members = [
                [
                    case.values[other]
                    for other in case.trained
                    if case.tokens[other].stream == case.tokens[place].stream
                    and (unit == "sequence" or case.tokens[other].turn == case.tokens[place].turn)
                ]
                for place in case.trained
            ]
            found += [sum(own) for own in members] + [sum(own) / len(own) for own in members]
        return found

    return Formula("losses.units", "losses.measure", ("unit_sum", "unit_mean"), draw, ours, reference)


UNITS = ("sequence", "turn")

FORMULAS: tuple[Formula, ...] = (
    loop_bounds(),
    adapted(),
    pooled(),
    against("combine", "compose", "combine", lambda m: m.combine((imitation(), 0.7), (entropy_bonus(), 0.1)),
            summed(lambda _c, t, logs, entropy, _v: -0.7 * logs[t] - 0.1 * entropy[t])),
    against("weighted_sum", "measure", "weighted_sum",
            lambda m: lambda out, batch: LossReport(loss=m.weighted_sum(batch, out.logprobs), metrics={}),
            summed(lambda _c, t, logs, _e, _v: logs[t])),
    against("reinforce", "policy", "reinforce", lambda m: m.reinforce(), REINFORCE),
    against("clipped", "policy", "clip_ratio", lambda m: m.clip_ratio(0.2, 0.28), summed(clipped)),
    against("clipped.dual", "policy", "clip_ratio", lambda m: m.clip_ratio(0.2, 0.28, dual=1.5), summed(dual)),
    against("clipped_each", "policy", "clip_each_ratio", lambda m: m.clip_each_ratio(0.2, HIGHS), summed(clipped_each)),
    against("gspo", "policy", "gspo", lambda m: m.gspo(0.2, 0.28),
            shared(lambda token: token.stream, is_mean=True, low=0.2, high=0.28)),
    against("gspo.turn", "policy", "gspo", lambda m: m.gspo(0.2, 0.28, unit="turn"),
            shared(lambda token: (token.stream, token.turn), is_mean=True, low=0.2, high=0.28)),
    against("whole_ratio", "policy", "whole_ratio", lambda m: m.whole_ratio(0.2, 0.28),
            shared(lambda token: token.stream, is_mean=False, low=0.2, high=0.28)),
    against("cispo", "policy", "cispo", lambda m: m.cispo(0.28, low=0.5), summed(cispo)),
    against("entropy_bonus", "entropy", "entropy_bonus", lambda m: m.entropy_bonus(doubled),
            summed(lambda c, t, _l, entropy, _v: -(1 + abs(c.tokens[t].advantage)) * entropy[t])),
    _divergences(),
    against("value", "value", "value", lambda m: m.value(clip=0.2), summed(squared)),
    against("expectile", "value", "value", lambda m: m.value(expectile=0.8), summed(one_sided)),
    against("huber", "value", "huber", lambda m: m.huber(0.7), summed(bend)),
    against("imitation", "imitation", "imitation", lambda m: m.imitation(),
            summed(lambda _c, t, logs, _e, _v: -logs[t])),
    against("weighted_imitation", "imitation", "imitate_weighted", lambda m: m.imitate_weighted(), REINFORCE),
    _truncated(),
    against("dropped_importance", "importance", "truncate_importance",
            lambda m: m.truncate_importance(reinforced(), cap=1.5, beyond="drop"), summed(dropped)),
    against("masked_importance", "importance", "mask_importance",
            lambda m: m.mask_importance(reinforced(), low=0.7, high=1.4, unit="turn"), masked),
    against("dpo", "preference", "dpo", lambda m: m.dpo(0.3, label_smoothing=0.1), preferred(cdpo)),
    against("ipo", "preference", "ipo", lambda m: m.ipo(0.5), preferred(lambda d: (d - 1) ** 2)),
    against("dmpo", "preference", "dmpo", lambda m: m.dmpo(0.3, discount=0.7),
            preferred(lambda d: soft(0.3 * d), by_turn)),
    against("rpo", "preference", "rpo", lambda m: m.rpo(0.1, alpha=0.5), with_likelihood),
)  # fmt: skip
