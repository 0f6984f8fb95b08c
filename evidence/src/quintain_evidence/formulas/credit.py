"""Ways of crediting, each beside a plain second version that loops over episodes, turns and tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp
from statistics import fmean, pstdev, stdev
from types import ModuleType
from typing import Any

import numpy as np

from quintain.credit.discounted import discounted_return
from quintain.credit.group import leave_one_out as group_leave_one_out
from quintain.credit.layout import Critic
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Failure, Group, Score, Stop, Task, Trajectory
from quintain_evidence.formulas.formula import Formula, Rng, flatten

Tokens = list[list[list[float]]]
"""[episode][turn][token]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """An episode in plain numbers."""

    group: str
    task: str
    rewards: list[float]
    tokens: list[int]
    """sampled in each turn"""
    states: list[str]
    is_valid: list[bool]
    is_cut: bool
    """whether the trainer cut it"""
    values: list[list[float]]
    final: float
    extra: list[list[float]]
    """rewards of single tokens"""
    guess: list[float]
    """a number for each turn: contributions, values of states"""

    @property
    def total(self) -> float:
        """Return the undiscounted return."""
        return sum(self.rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A ragged batch, as the code that ships takes it and in plain numbers."""

    groups: list[Group]
    plays: list[Play]
    """of the episodes that count, in order"""

    def critic(self, *, has_rewards: bool = True) -> Critic:
        """Return the critic's values as the code takes them."""
        arrays = [[np.array(turn) for turn in play.values] for play in self.plays]
        extra = [[np.array(turn) for turn in play.extra] for play in self.plays]
        return Critic(
            values=arrays,
            final=[play.final for play in self.plays],
            token_rewards=extra if has_rewards else None,
        )

    def clusters(self, key: Callable[[Play], str] = lambda play: play.group) -> list[list[int]]:
        """Return the places of episodes that share what `key` says."""
        names = list(dict.fromkeys(key(play) for play in self.plays))
        return [[i for i, play in enumerate(self.plays) if key(play) == name] for name in names]

    def spread(self, numbers: Sequence[Sequence[float]]) -> Tokens:
        """Return a number for each turn on all of its tokens."""
        return [
            [[number] * count for number, count in zip(row, play.tokens, strict=True)]
            for row, play in zip(numbers, self.plays, strict=True)
        ]


def draw(rng: Rng, *, binary: bool = False, last_only: bool = False) -> Case:
    """Return 1 to 4 groups of 1 to 5 episodes of 1 to 5 turns of 1 to 4 tokens; some failed and do not count."""
    groups, plays = list[Group](), list[Play]()
    for g in range(int(rng.integers(1, 5))):
        task = Task(id=f"t{g}", environment="e", seed=0)
        members = list[Trajectory]()
        for index in range(int(rng.integers(1, 6))):
            play = one(rng, f"g{g}", task.id, binary=binary, last_only=last_only)
            is_failed = index > 0 and rng.random() < 0.1
            members.append(lived(play, task, index, is_failed=is_failed))
            plays += [] if is_failed else [play]
        groups.append(Group(task=task, trajectories=tuple(members)))
    return Case(groups=groups, plays=plays)


def one(rng: Rng, group: str, task: str, *, binary: bool, last_only: bool) -> Play:
    """Return a random episode."""
    num = int(rng.integers(1, 6))
    tokens = [int(count) for count in rng.integers(1, 5, num)]
    rewards = rng.integers(0, 2, num).astype(float) if binary else rng.normal(size=num).round(3)
    if last_only:
        rewards[:-1] = 0.0

    def floats(count: int) -> list[float]:
        return rng.normal(size=count).round(4).tolist()

    return Play(
        group=group,
        task=task,
        rewards=rewards.tolist(),
        tokens=tokens,
        states=[f"s{k}" for k in rng.integers(0, 3, num)],
        is_valid=(rng.random(num) < 0.7).tolist(),
        is_cut=bool(rng.random() < 0.3),
        values=[floats(count) for count in tokens],
        final=float(rng.normal()),
        extra=[floats(count) for count in tokens],
        guess=floats(num),
    )


def lived(play: Play, task: Task, index: int, *, is_failed: bool) -> Trajectory:
    """Return the episode as it is recorded."""
    turns = (
        turn_of((7,) * count, reward=reward, state_key=state, is_valid=is_valid)
        for reward, count, state, is_valid in zip(
            play.rewards, play.tokens, play.states, play.is_valid, strict=True
        )
    )
    stop = Stop.MAX_TOKENS if play.is_cut else Stop.TERMINATED
    made = episode_of(
        turns, play.total, is_success=play.total > 0, task=task, stop=stop, group=play.group, index=index
    )
    slow = Failure(owner="environment", kind="timeout", message="slow")
    return replace(made, outcome=slow) if is_failed else made


def standard(values: Sequence[float], *, kind: str = "unbiased", epsilon: float = 1e-6) -> list[float]:
    """Return values less their mean, over their deviation where there are two that differ."""
    if len(values) < 2 or max(values) == min(values):
        return [0.0] * len(values)
    centre = fmean(values)
    scale = {"unbiased": stdev, "biased": pstdev}[kind](values) + epsilon if kind != "none" else 1.0
    return [(value - centre) / scale for value in values]


def relative(case: Case, *, kind: str = "unbiased") -> list[float]:
    """Return the standardised outcome of each episode within its group."""
    found = [0.0] * len(case.plays)
    for members in case.clusters():
        for i, value in zip(
            members, standard([case.plays[i].total for i in members], kind=kind), strict=True
        ):
            found[i] = value
    return found


def constant(case: Case, numbers: Sequence[float]) -> Tokens:
    """Return a number for each episode on all of its tokens."""
    return case.spread([[x] * len(p.tokens) for x, p in zip(numbers, case.plays, strict=True)])


def to_go(play: Play, discount: float) -> list[float]:
    """Return the discounted rewards from each turn on, each sum by itself."""
    return [
        sum(discount ** (k - start) * reward for k, reward in enumerate(play.rewards) if k >= start)
        for start in range(len(play.rewards))
    ]


def leave_one_out(case: Case) -> Tokens:
    """Return outcomes less the mean of the others in the group."""
    found = [0.0] * len(case.plays)
    for members in case.clusters():
        for i in members:
            others = [case.plays[j].total for j in members if j != i]
            found[i] = case.plays[i].total - fmean(others) if others else 0.0
    return constant(case, found)


def process(case: Case) -> Tokens:
    """Return the sums, from each turn on, of rewards standardised over all turns of the group."""
    found: list[list[float]] = [[] for _ in case.plays]
    for members in case.clusters():
        flat = [(i, k) for i in members for k in range(len(case.plays[i].rewards))]
        values = standard([case.plays[i].rewards[k] for i, k in flat])
        if len(members) == 1:
            values = [0.0] * len(flat)
        scaled = dict(zip(flat, values, strict=True))
        for i in members:
            num = len(case.plays[i].rewards)
            found[i] = [sum(scaled[i, later] for later in range(k, num)) for k in range(num)]
    return case.spread(found)


def anchored(case: Case) -> Tokens:
    """Return GiGPO's advantages: outcomes within groups plus ω times returns within equal states of a task."""
    base = relative(case)
    found = [[value] * len(p.rewards) for value, p in zip(base, case.plays, strict=True)]
    visits: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for i, play in enumerate(case.plays):
        for k, state in enumerate(play.states):
            visits.setdefault((play.task, state), []).append((i, k))
    for where in visits.values():
        values = standard([to_go(case.plays[i], 0.9)[k] for i, k in where])
        for (i, k), value in zip(where, values, strict=True):
            found[i][k] += 0.7 * value
    return case.spread(found)


def discounted(case: Case) -> Tokens:
    """Return what was still to come after each turn, and after each token what single tokens earned."""
    found: Tokens = []
    for play in case.plays:
        row: list[list[float]] = []
        for start, tokens in enumerate(play.extra):
            after = sum(
                0.9 ** (k - start) * (play.rewards[k] + (sum(play.extra[k]) if k > start else 0.0))
                for k in range(start, len(play.rewards))
            )
            row.append([after + sum(tokens[place:]) for place in range(len(tokens))])
        found.append(row)
    return found


def estimated(
    rewards: Sequence[float],
    values: Sequence[float],
    discounts: Sequence[float],
    decay: float,
    final: float,
) -> list[float]:
    """Return Σ_l (γλ)^l δ_{t+l} with the products of all discounts between, each sum by itself."""
    after = [*values[1:], final]
    deltas = [r + g * v - own for r, g, v, own in zip(rewards, discounts, after, values, strict=True)]
    found: list[float] = []
    for start in range(len(deltas)):
        total, factor = 0.0, 1.0
        for k in range(start, len(deltas)):
            total += factor * deltas[k]
            factor *= discounts[k] * decay
        found.append(total)
    return found


def by_token(case: Case) -> list[Tokens]:
    """Return GAE over tokens, γ .97 within and .9 between turns, λ .8, and returns."""
    advantages, returns = list[list[list[float]]](), list[list[list[float]]]()
    for play in case.plays:
        rewards = [
            extra + (reward if place == len(tokens) - 1 else 0.0)
            for tokens, reward in zip(play.extra, play.rewards, strict=True)
            for place, extra in enumerate(tokens)
        ]
        discounts = [0.9 if place == count - 1 else 0.97 for count in play.tokens for place in range(count)]
        values = [value for turn in play.values for value in turn]
        flat = estimated(rewards, values, discounts, 0.8, play.final if play.is_cut else 0.0)
        split = iter(zip(flat, values, strict=True))
        pairs = [[next(split) for _ in range(count)] for count in play.tokens]
        advantages.append([[a for a, _ in turn] for turn in pairs])
        returns.append([[a + v for a, v in turn] for turn in pairs])
    return [advantages, returns]


def by_turn(case: Case) -> list[Tokens]:
    """Return GAE over turns with V at first tokens and durations of a turn's tokens, γ .9, λ .8, and returns."""
    advantages, returns = list[list[float]](), list[list[float]]()
    for play in case.plays:
        values = [turn[0] for turn in play.values]
        rewards = [r + sum(extra) for r, extra in zip(play.rewards, play.extra, strict=True)]
        discounts = [0.9**count for count in play.tokens]
        flat = estimated(rewards, values, discounts, 0.8, play.final if play.is_cut else 0.0)
        advantages.append(flat)
        returns.append([a + v for a, v in zip(flat, values, strict=True)])
    return [case.spread(advantages), case.spread(returns)]


def bilevel(case: Case) -> list[Tokens]:
    """Return bi-level GAE: over turn ends with γ .9, then over the tokens of a turn with γ .97; λ .8."""
    advantages, returns = list[list[list[float]]](), list[list[list[float]]]()
    for play in case.plays:
        ends = [turn[-1] for turn in play.values]
        rewards = [r + sum(extra) for r, extra in zip(play.rewards, play.extra, strict=True)]
        high = estimated(rewards, ends, [0.9] * len(ends), 0.8, play.final if play.is_cut else 0.0)
        row: list[list[float]] = []
        for turn, a, end in zip(play.values, high, ends, strict=True):
            inner = [0.0] * (len(turn) - 1) + [a + end]
            row.append(estimated(inner, turn, [0.97] * len(turn), 0.8, 0.0))
        advantages.append(row)
        returns.append(
            [
                [a + v for a, v in zip(own, turn, strict=True)]
                for own, turn in zip(row, play.values, strict=True)
            ]
        )
    return [advantages, returns]


def whitened(case: Case) -> Tokens:
    """Return returns from each turn on, less their mean and over their deviation over all tokens of the batch."""
    return white(case, case.spread([to_go(play, 0.9) for play in case.plays]))


def white(case: Case, raw: Tokens) -> Tokens:
    """Return numbers of tokens less their mean, over their deviation; 0 where they do not vary."""
    flat = flatten(raw)
    if max(flat) - min(flat) < 1e-12:
        return case.spread([[0.0] * len(play.tokens) for play in case.plays])
    centre, scale = fmean(flat), pstdev(flat) + 1e-8
    return [[[(x - centre) / scale for x in turn] for turn in row] for row in raw]


def by_number(case: Case) -> Tokens:
    """Return MT-GRPO's: last turns compared with last turns, every other with those of its number, weight .5."""
    found = [[0.0] * len(play.rewards) for play in case.plays]
    for members in case.clusters():
        last = standard([case.plays[i].rewards[-1] for i in members], epsilon=1e-4)
        for i, value in zip(members, last, strict=True):
            found[i] = [value] * len(found[i])
        for k in range(5):
            reached = [i for i in members if k < len(found[i]) - 1]
            values = standard([case.plays[i].rewards[k] for i in reached], epsilon=1e-4)
            for i, value in zip(reached, values, strict=True):
                found[i][k] += 0.5 * value
    return case.spread(found)


def others(case: Case) -> Tokens:
    """Return discounted sums from each turn on, less the mean of what all other episodes of the batch returned."""
    sums = [to_go(play, 0.9) for play in case.plays]
    if len(sums) < 2:
        return case.spread([[0.0] * len(row) for row in sums])
    means = [fmean(other[0] for j, other in enumerate(sums) if j != i) for i in range(len(sums))]
    return case.spread([[x - mean for x in row] for row, mean in zip(sums, means, strict=True)])


def large(case: Case) -> Tokens:
    """Return leave-one-out advantages, 0 where they are smaller than .5."""
    return [[[x if abs(x) >= 0.5 else 0.0 for x in turn] for turn in row] for row in leave_one_out(case)]


def batch_scaled(case: Case) -> Tokens:
    """Return outcomes less the group's mean, over the deviation of the batch."""
    totals = [play.total for play in case.plays]
    centred = relative(case, kind="none")
    if len(totals) < 2 or max(totals) - min(totals) < 1e-12:
        return constant(case, [0.0] * len(totals))
    return constant(case, [x / (stdev(totals) + 1e-6) for x in centred])


def weights(case: Case) -> Tokens:
    """Return the exponentials of centred outcomes at temperature .5, at most 3."""
    return constant(case, [min(exp(x / 0.5), 3.0) for x in relative(case, kind="none")])


def scores(case: Case) -> Tokens:
    """Return EPO's weights: discounted process rewards over the largest, shared by segments and by their tokens."""
    found: list[list[float]] = []
    for play in case.plays:
        sums = to_go(play, 0.9)
        most = max(abs(x) for x in sums)
        found.append(
            [
                (x / most if most else 0.0) / len(sums) / count
                for x, count in zip(sums, play.tokens, strict=True)
            ]
        )
    return case.spread(found)


def shares(case: Case) -> Tokens:
    """Return SPA-RL's turn rewards: contributions that add up to the outcome, and .3 for what was carried out."""
    found: list[list[float]] = []
    for play in case.plays:
        missing = (play.total - sum(play.guess)) / len(play.guess)
        found.append([2 * (c + missing) + 0.3 * ok for c, ok in zip(play.guess, play.is_valid, strict=True)])
    return [[row] for row in found]


def steps(case: Case) -> Tokens:
    """Return VinePPO's: reward plus the discounted value of the state after, less that before."""
    found: list[list[float]] = []
    for play in case.plays:
        after = [*play.guess[1:], play.final]
        found.append([r + 0.9 * v - own for r, v, own in zip(play.rewards, after, play.guess, strict=True)])
    return case.spread(found)


def fused(module: ModuleType, case: Case) -> list[float]:
    """Return the turn rewards that SPA-RL's code makes."""
    groups = module.progress_rewards(case.groups, [play.guess for play in case.plays], alpha=2.0, beta=0.3)
    return [turn.reward for group in groups for t in group.scored for turn in t.turns]


def of(
    name: str,
    place: str,
    function: str,
    call: Callable[[Callable[..., Any], Case], Any],
    reference: Callable[[Case], Any],
    case: Callable[[Rng], Case] = draw,
) -> Formula:
    """Return the formula of a function that returns a `Credit`; `call` applies it to a case."""

    def ours(module: ModuleType, given: Case) -> list[float]:
        found = call(vars(module)[function], given)
        whole = [found.advantages] if found.returns is None else [found.advantages, found.returns]
        return flatten(whole)

    return Formula(
        f"credit.{name}", f"credit.{place}", (function,), case, ours, lambda given: flatten(reference(given))
    )


def plain(function: Callable[..., Any], case: Case) -> Any:
    """Apply a function of groups alone."""
    return function(case.groups)


KINDS = ("unbiased", "biased", "none")


def by_kinds(module: ModuleType, case: Case) -> list[float]:
    """Return what the code makes of outcomes, with each kind of deviation."""
    return flatten([module.group_relative(case.groups, std=kind).advantages for kind in KINDS])


def returned(module: ModuleType, case: Case) -> list[float]:
    """Return the discounted return from every turn of every episode on."""
    played = [t for group in case.groups for t in group.trajectories if isinstance(t.outcome, Score)]
    return [module.return_from(t, turn, 0.9) for t in played for turn in range(len(t.turns))]


FORMULAS: tuple[Formula, ...] = (
    Formula("credit.return_from", "credit.step_value", ("return_from",), draw, returned,
        lambda c: flatten([to_go(p, 0.9) for p in c.plays])),
    of("outcome_return", "outcome", "outcome_return", lambda f, c: f(c.groups, baseline=0.3),
       lambda c: constant(c, [p.total - 0.3 for p in c.plays])),
    Formula("credit.group_relative", "credit.group", ("group_relative",), draw, by_kinds,
        lambda c: flatten([constant(c, relative(c, kind=k)) for k in KINDS])),
    of("leave_one_out", "group", "leave_one_out", plain, leave_one_out),
    of("group_process", "group", "group_process", plain, process),
    of("state_anchored", "anchor", "state_anchored", lambda f, c: f(c.groups, weight=0.7, discount=0.9), anchored),
    of("discounted_return", "discounted", "discounted_return",
       lambda f, c: f(c.groups, discount=0.9, token_rewards=c.critic().token_rewards), discounted),
    of("gae_tokens", "gae", "gae_tokens",
       lambda f, c: f(c.groups, c.critic(), discount=0.97, turn_discount=0.9, gae_lambda=0.8), by_token),
    of("gae_turns", "gae", "gae_turns",
       lambda f, c: f(c.groups, c.critic(), discount=0.9, gae_lambda=0.8,
                      duration=lambda turn: len(turn.completion.token_ids)), by_turn),
    of("gae_bilevel", "bilevel", "gae_bilevel",
       lambda f, c: f(c.groups, c.critic(), discount=0.97, turn_discount=0.9, gae_lambda=0.8), bilevel),
    of("reinforce_plus_plus", "whiten", "reinforce_plus_plus", lambda f, c: f(c.groups, discount=0.9), whitened),
    of("reinforce_plus_plus_baseline", "whiten", "reinforce_plus_plus_baseline", plain,
       lambda c: white(c, constant(c, relative(c, kind="none")))),
    of("subtract_others", "baseline", "subtract_others",
       lambda f, c: f(discounted_return(c.groups, discount=0.9)), others),
    of("drop_small", "baseline", "drop_small", lambda f, c: f(group_leave_one_out(c.groups), 0.5), large),
    of("turn_group_relative", "turn_group", "turn_group_relative", lambda f, c: f(c.groups, weight=0.5), by_number),
    of("normalise_over", "normaliser", "normalise_over", plain, batch_scaled),
    of("exponential_weights", "selection", "exponential_weights",
       lambda f, c: f(c.groups, temperature=0.5, cap=3.0), weights),
    of("segment_weights", "segments", "segment_weights",
       lambda f, c: f(c.groups, [p.rewards for p in c.plays], discount=0.9), scores),
    of("step_value", "step_value", "step_value",
       lambda f, c: f(c.groups, [p.guess for p in c.plays], final=[p.final for p in c.plays], discount=0.9), steps),
    Formula("credit.progress_rewards", "credit.progress", ("progress_rewards",), draw, fused,
        lambda c: flatten(shares(c))),
)  # fmt: skip
