"""What critics learn from, and credit made of it, each formula beside a plain second version; the actor on a toy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, sqrt
from types import ModuleType
from typing import Any

import numpy as np
import torch

from quintain.credit.turn_td import TurnValues
from quintain.data.pack import pack
from quintain.data.turn_values import last_turn_samples
from quintain.losses.policy import reinforce
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Outputs, Sample, Trajectory, Turn, flatten_scored
from quintain_evidence.formulas import credit
from quintain_evidence.formulas.formula import Formula, Rng, flatten
from quintain_evidence.formulas.losses import Case, Plain, against, difference, draw, summed, units

MIXING = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An episode as a classifier of success sees it."""

    outcome: float
    values: list[float]


def draw_seen(rng: Rng) -> list[Seen]:
    """Return one to five episodes of one to six turns, some whose outcome is itself a chance."""
    return [
        Seen(
            outcome=float(rng.integers(0, 2)) if rng.random() < 0.8 else float(rng.random()),
            values=rng.random(int(rng.integers(1, 7))).tolist(),
        )
        for _ in range(int(rng.integers(1, 6)))
    ]


def said(module: ModuleType, case: Sequence[Seen], name: str, **settings: float) -> list[float]:
    """Return the advantages that the function `name` gives, end to end."""
    return flatten(
        [
            getattr(module, name)(module.ValuedEpisode(outcome=e.outcome, values=tuple(e.values)), **settings)
            for e in case
        ]
    )


def read(module: ModuleType, case: credit.Case) -> list[float]:
    """Return of every turn what it is a case of (-1: of nothing), its chance, and gain and outcome of its episode."""
    trajectories = flatten_scored(case.groups)
    values = module.chances([[turn[0] for turn in play.values] for play in case.plays])
    seen = module.attach_values(trajectories, values)
    known = np.nan_to_num(flatten(module.labels(trajectories)), nan=-1.0)
    return flatten([known.tolist(), values, [[*e.gains, e.outcome] for e in seen]])


def told(case: credit.Case) -> list[float]:
    """Return the same, play by play."""
    known: list[float] = []
    values: list[list[float]] = []
    rest: list[float] = []
    for play in case.plays:
        won = float(sum(play.rewards) > 0)
        known += [-1.0 if play.is_cut else won] * len(play.values)
        values.append([1 / (1 + math.exp(-turn[0])) for turn in play.values])
        own = values[-1]
        end = own[-1] if play.is_cut else won
        rest += [(own[k + 1] if k + 1 < len(own) else end) - value for k, value in enumerate(own)]
        rest.append(end)
    return flatten([known, values, rest])


def steps(episode: Seen) -> list[tuple[int, float, float, float]]:
    """Return (turns left after it, V before, V after, what it is paid) of every turn."""
    last = len(episode.values) - 1
    return [
        (last - k, v, 0.0 if k == last else episode.values[k + 1], episode.outcome if k == last else 0.0)
        for k, v in enumerate(episode.values)
    ]


def robust(case: Sequence[Seen]) -> list[float]:
    """Return λ^{H-t} R + (1 - λ^{H-t}) (V' + r - V)."""
    found: list[float] = []
    for episode in case:
        for left, value, after, paid in steps(episode):
            trust = math.prod([MIXING] * left)
            found.append(trust * episode.outcome + (1 - trust) * (after + paid - value))
    return found


def added(case: Sequence[Seen]) -> list[float]:
    """Return V' - V - .05 + r + γ^{H-t} R."""
    return [
        after - value - 0.05 + paid + math.prod([MIXING] * left) * episode.outcome
        for episode in case
        for left, value, after, paid in steps(episode)
    ]


def halved(case: Sequence[Seen]) -> list[float]:
    """Return λ (r + V' - V) + (1 - λ) (R - V)."""
    return [
        MIXING * (paid + after - value) + (1 - MIXING) * (episode.outcome - value)
        for episode in case
        for _, value, after, paid in steps(episode)
    ]


def draw_scores(rng: Rng) -> list[float]:
    """Return one to twelve scores: all different, or of few values, so that many tie."""
    num = int(rng.integers(1, 13))
    return (
        rng.normal(size=num).tolist()
        if rng.random() < 0.4
        else rng.integers(0, 3, num).astype(float).tolist()
    )


SHARES = (0.1, 0.3, 0.75, 1.0)


def highest(scores: Sequence[float], share: float) -> list[float]:
    """Return 1 for what is kept, one level of equal scores after the other, from the highest down."""
    kept = [0.0] * len(scores)
    if min(scores) == max(scores):
        return kept
    room, left = max(1, round(share * len(scores))), set(range(len(scores)))
    while left:
        best = max(scores[i] for i in left)
        level = [i for i in left if scores[i] == best]
        if any(kept) and len(level) > room:
            break
        for i in level:
            kept[i] = 1.0
        room -= len(level)
        left -= set(level)
        if room < 0:
            break
    return kept


def draw_tokens(rng: Rng) -> list[list[list[float]]]:
    """Return log-probs of the tokens of one to four episodes; a turn may have none."""
    return [
        [
            np.log(rng.uniform(0.2, 1.0, int(rng.integers(0, 4)))).tolist()
            for _ in range(int(rng.integers(1, 4)))
        ]
        for _ in range(int(rng.integers(1, 5)))
    ]


def between(case: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Return 1 for turns whose tokens' probabilities have a geometric mean of .5 to .9."""
    found: list[float] = []
    for turn in (turn for own in case for turn in own):
        chance = math.prod(math.exp(x) for x in turn) ** (1 / len(turn)) if turn else 0.0
        found.append(float(0.5 <= chance <= 0.9))
    return found


def draw_chances(rng: Rng) -> Case:
    """Return a batch whose returns are chances."""
    case = draw(rng)
    return replace(
        case, tokens=[replace(token, target=1 / (1 + math.exp(-3 * token.target))) for token in case.tokens]
    )


def surprise(case: Case, t: int, _l: list[float], _e: list[float], values: list[float]) -> float:
    """Return -G log σ(V) - (1 - G) log(1 - σ(V))."""
    chance, target = 1 / (1 + math.exp(-values[t])), case.tokens[t].target
    return -target * math.log(chance) - (1 - target) * math.log(1 - chance)


def fitted(beta: float, *, is_huber: bool) -> Plain:
    """Return Σ w e², or its Huber form, of e = β · (log-ratio of the turn) - A at each of its tokens."""

    def plain(case: Case, logs: list[float], _entropy: list[float], _values: list[float]) -> float:
        total = 0.0
        for unit in units(case, lambda token: (token.stream, token.turn)):
            whole = sum(difference(case, t, logs) for t in unit)
            for t in unit:
                error = abs(beta * whole - case.tokens[t].advantage)
                term = error**2 if not is_huber else error**2 / 2 if error <= 1 else error - 0.5
                total += case.tokens[t].weight * term
        return total

    return plain


def windowed(module: ModuleType, case: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Return for every token whether it is inside the window."""
    marked = module.in_window([[np.array(t) for t in turns] for turns in case], 0.5, 0.9)
    return flatten([[float(x) for x in own] for own in marked])


GAMMA = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Valued:
    """Episodes with values of their turns and ways to act in them."""

    case: credit.Case
    before: list[list[float]]
    after: list[list[float]]
    weights: list[list[list[float]]]
    said: list[list[list[float]]]

    @property
    def episodes(self) -> tuple[Trajectory, ...]:
        """The episodes that count."""
        return flatten_scored(self.case.groups)


def valued(rng: Rng) -> Valued:
    """Return a ragged batch of episodes, one at least to its end, with one to three ways in each turn."""
    case = credit.draw(rng)

    def numbers() -> list[list[float]]:
        return [rng.normal(size=len(play.rewards)).round(4).tolist() for play in case.plays]

    weights = [
        [rng.random(int(rng.integers(1, 4))).round(3).tolist() for _ in play.rewards] for play in case.plays
    ]
    said = [[rng.normal(size=len(ways)).round(4).tolist() for ways in own] for own in weights]
    return Valued(case=case, before=numbers(), after=numbers(), weights=weights, said=said)


def finite(nested: object) -> list[float]:
    """Return the numbers in lists of lists, in order, with -99 for NaN."""
    return [-99.0 if isnan(x) else x for x in flatten(nested)]


def credited(module: ModuleType, given: Valued) -> list[float]:
    """Return targets, advantages and what says how good the critic is, as the code that ships has them."""
    values = TurnValues(before=given.before, after=given.after)
    episodes = given.episodes
    flat = [q for own in given.said for ways in own for q in ways]
    metrics = module.critic_metrics(episodes, values, GAMMA)
    alone = module.critic_metrics(episodes, values, GAMMA, has_q=False)
    least = module.least([values, TurnValues(before=given.after, after=given.before)])
    return finite(
        [
            module.q_targets(episodes, given.before, GAMMA),
            module.state_targets(given.weights, given.said),
            module.way_advantages(given.weights, module.by_way(given.weights, flat), given.before),
            module.monte_carlo(episodes, GAMMA),
            [metrics[name] for name in sorted(metrics)],
            [alone[name] for name in sorted(alone)],
            [least.before, least.after],
        ]
    )


def target(play: credit.Play, values: Sequence[float], k: int) -> float:
    """Return r + γ·V of the next turn; nothing beyond the end, and -99 after a cut."""
    if k == len(play.rewards) - 1:
        return -99.0 if play.is_cut else play.rewards[k]
    return play.rewards[k] + GAMMA * values[k + 1]


def reckoned(given: Valued) -> list[float]:
    """Return the same numbers, turn by turn."""
    plays = given.case.plays
    pairs = [(i, k) for i, play in enumerate(plays) for k in range(len(play.rewards))]
    targets = [target(plays[i], given.before[i], k) for i, k in pairs]
    states, advantages, returns = list[float](), list[float](), list[float]()
    num = sum(len(given.weights[i][k]) for i, k in pairs)
    for i, k in pairs:
        ways = range(len(given.weights[i][k]))
        states.append(sum(given.weights[i][k][w] * given.said[i][k][w] for w in ways))
        advantages += [
            given.weights[i][k][w] * (given.said[i][k][w] - given.before[i][k]) * num / len(pairs)
            for w in ways
        ]
        rest = plays[i].rewards[k:]
        returns.append(-99.0 if plays[i].is_cut else sum(GAMMA**j * r for j, r in enumerate(rest)))
    found = [*targets, *states, *advantages, *returns]
    for q in (given.after, given.before):
        errors = [q[i][k] - y for (i, k), y in zip(pairs, targets, strict=True) if y != -99]
        lived = [(i, k, g) for (i, k), g in zip(pairs, returns, strict=True) if g != -99]
        if lived:
            mean = sum(g for _, _, g in lived) / len(lived)
            left = [g - given.before[i][k] for i, k, g in lived]
            middle = sum(left) / len(left)
            spread = sum((g - mean) ** 2 for _, _, g in lived)
            explained = 1 - sum((x - middle) ** 2 for x in left) / spread if spread > 1e-9 else 0.0
            found += [explained, sum(q[i][k] - g for i, k, g in lived) / len(lived)]
        if errors:
            found.append(sqrt(sum(e * e for e in errors) / len(errors)))
    smaller = [q if q < v else v for i, k in pairs for q, v in [(given.after[i][k], given.before[i][k])]]
    return [*found, *smaller, *smaller]


def extracted(given: Valued) -> list[float]:
    """Return of every turn the place of its first way with the largest Q, and whether that is .3 above V."""
    found: list[float] = []
    for said, before in zip(given.said, given.before, strict=True):
        for ways, v in zip(said, before, strict=True):
            place = 0
            for other in range(1, len(ways)):
                place = other if ways[other] > ways[place] else place
            found += [float(place), 1.0 if ways[place] - v > 0.3 else 0.0]
    return found


def spoken(rng: Rng) -> list[Trajectory]:
    """Return one to three episodes of ragged streams, some of which begin anew."""
    found: list[Trajectory] = []
    for index in range(int(rng.integers(1, 4))):
        turns: list[Turn] = []
        for number in range(int(rng.integers(1, 5))):
            said = tuple(int(i) for i in rng.integers(1, 50, int(rng.integers(1, 4))))
            seen = tuple(int(i) for i in rng.integers(50, 99, int(rng.integers(1, 4))))
            starts = number == 0 or bool(rng.random() < 0.3)
            turns.append(turn_of(said, prompt_ids=seen, starts_segment=starts))
        found.append(episode_of(turns, seed=index, index=index))
    return found


def goals(episodes: Sequence[Trajectory]) -> tuple[list[list[float]], list[list[float]]]:
    """Return targets V and Q of every turn; every third V is not known."""
    before = [[float("nan") if (i + k) % 3 == 2 else i + 0.1 * k for k in range(len(t.turns))]
              for i, t in enumerate(episodes)]  # fmt: skip
    return before, [[-1 - i - 0.1 * k for k in range(len(t.turns))] for i, t in enumerate(episodes)]


def marked(module: ModuleType, episodes: list[Trajectory]) -> list[float]:
    """Return ids, targets and weights of every stream, of critics and of the actor."""
    before, after = goals(episodes)
    own: list[Sample] = module.turn_value_samples(episodes, before=before, after=after, max_length=12)
    own += module.turn_value_samples(episodes)
    own += module.last_turn_samples(episodes, [0.5 + i for i in range(len(episodes))])
    parts = [
        [s.token_ids, s.returns, s.loss_weight, s.advantages, s.turn_id, s.turn_end.astype(float)]
        for s in own
    ]
    return flatten(parts)


def laid_out(episodes: list[Trajectory]) -> list[float]:
    """Return the same, token by token."""
    found: list[float] = []
    before, after = goals(episodes)
    for is_read, most in ((False, 12), (True, 1 << 30)):
        for i, t in enumerate(episodes):
            for places in streams(t):
                ids, notes = list[int](), dict[int, tuple[float, int, bool]]()
                for k in places:
                    ids += t.turns[k].prompt_ids
                    notes[len(ids)] = (before[i][k], k, False)
                    ids += t.turns[k].completion.token_ids
                    notes[len(ids)] = (after[i][k], k, True)
                if len(ids) < most:
                    ids.append(0)
                elif len(ids) in notes:
                    notes[len(ids) - 1] = notes.pop(len(ids))
                rows = [notes.get(n) for n in range(len(ids))]
                goal = [0.0 if row is None or is_read or isnan(row[0]) else row[0] for row in rows]
                weight = [float(row is not None and (is_read or not isnan(row[0]))) for row in rows]
                names = [-1.0 if row is None else float(row[1]) for row in rows]
                ends = [float(row is not None and row[2]) for row in rows]
                found += [*map(float, ids), *goal, *weight, *[0.0] * len(ids), *names, *ends]
    for i, t in enumerate(episodes):
        places = streams(t)[-1]
        last = len(t.turns) - 1
        ids, own, ends = list[int](), list[bool](), list[float]()
        for k in places:
            said = t.turns[k].completion.token_ids
            ids += (*t.turns[k].prompt_ids, *said)
            own += [False] * len(t.turns[k].prompt_ids) + [k == last] * len(said)
            ends += [0.0] * (len(t.turns[k].prompt_ids) + len(said) - 1) + [1.0]
        found += [*map(float, ids), *[0.0] * len(ids), *map(float, own)]
        found += [(0.5 + i) * x for x in own] + [float(last) if x else -1.0 for x in own] + ends
    return found


def streams(trajectory: Trajectory) -> list[list[int]]:
    """Return the numbers of the turns of each token stream."""
    found: list[list[int]] = []
    for number, turn in enumerate(trajectory.turns):
        if turn.starts_segment:
            found.append([])
        found[-1].append(number)
    return found


def actor_on_a_toy(module: ModuleType) -> float:
    """Return the cosine of the actor's gradient with ∇ E[Q], each of four actions a way in each of three states.

    The policy is a table of logits; Q is exact, V = Σ π Q, and the streams and the loss are those of training.
    """
    generator = torch.Generator().manual_seed(3)
    theta = torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    worth = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    weights: Any = theta.softmax(1).detach()[None].tolist()
    (exact,) = torch.autograd.grad((theta.softmax(1) * worth).sum() / 3, theta)
    after = module.by_way(weights, worth.flatten().tolist())
    before = module.state_targets(weights, after)
    ways = [_said(state, action) for state in range(3) for action in range(4)]
    samples = last_turn_samples(ways, module.way_advantages(weights, after, before))
    batch = pack(samples, aggregation="constant", constant=1.0)
    targets = (batch.turn_id >= 0).nonzero().squeeze(1)
    chosen = theta.log_softmax(1)[batch.token_ids[targets - 1], batch.token_ids[targets] - 3].float()
    logs = torch.zeros(len(batch.token_ids)).index_copy(0, targets, chosen)
    loss = reinforce()(Outputs(logprobs=logs, entropy=torch.zeros_like(logs)), batch).loss
    (found,) = torch.autograd.grad(-loss, theta)
    return float((found * exact).sum() / found.norm() / exact.norm())


def _said(state: int, action: int) -> Trajectory:
    return episode_of([turn_of([3 + action], prompt_ids=(state,), starts_segment=True)])


FORMULAS: tuple[Formula, ...] = (
    Formula("credit.judged", "credit.success", ("attach_values", "labels", "chances"), credit.draw, read, told),
    Formula("credit.doubly_robust", "credit.success", ("doubly_robust",), draw_seen,
        lambda module, case: said(module, case, "doubly_robust", mixing=MIXING), robust),
    Formula("credit.summed", "credit.success", ("digirl_advantages", "ValuedEpisode"), draw_seen,
        lambda module, case: said(module, case, "digirl_advantages", discount=MIXING), added),
    Formula("credit.mixed", "credit.success", ("webrl_advantages", "ValuedEpisode"), draw_seen,
        lambda module, case: said(module, case, "webrl_advantages", mixing=MIXING), halved),
    Formula("credit.top_share", "credit.selection", ("top_share",), draw_scores,
        lambda module, case: flatten([[float(x) for x in module.top_share(case, p)] for p in SHARES]),
        lambda case: flatten([highest(case, share) for share in SHARES])),
    Formula("credit.in_window", "credit.selection", ("in_window",), draw_tokens, windowed, between),
    replace(
        against("cross_entropy", "value", "cross_entropy", lambda m: m.cross_entropy(), summed(surprise)),
        draw=draw_chances),
    against("kl_regression", "regression", "kl_regression",
        lambda m: m.kl_regression(0.7), fitted(0.7, is_huber=False)),
    against("kl_regression_huber", "regression", "kl_regression",
        lambda m: m.kl_regression(0.7, shape="huber"), fitted(0.7, is_huber=True)),
    Formula("credit.turn_td", "credit.turn_td",
        ("q_targets", "state_targets", "way_advantages", "by_way", "monte_carlo", "critic_metrics", "least",
         "combine_critics"),
        valued, credited, reckoned, aside=("check",), exact=actor_on_a_toy),
    Formula("credit.best_ways", "credit.turn_td", ("best_ways",), valued,
        lambda m, given: [float(x) for row in m.best_ways(given.said, given.before, 0.3) for x in row],
        extracted),
    Formula("data.turn_values", "data.turn_values", ("turn_value_samples", "last_turn_samples"), spoken, marked,
        laid_out),
)  # fmt: skip
