"""Credit to agents of a team, each beside a plain second version that goes through who spoke when."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from types import ModuleType
from typing import Any

import numpy as np
import torch

from quintain.credit.layout import Critic
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Failure, Group, Stop, Task, Trajectory, as_content
from quintain_evidence.formulas.credit import Case, draw, estimated, standard
from quintain_evidence.formulas.formula import Formula, Rng, flatten

AGENTS = ("A", "B", "B/plan", "C")
SLOW = Failure(owner="environment", kind="timeout", message="slow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one agent did in an episode, in plain numbers."""

    pool: str
    """group of the whole episodes"""
    agent: str
    outcome: float
    is_valid: list[bool]
    """of each call"""
    tokens: list[int]
    """sampled in each call"""

    def record(self, task: Task, index: int) -> Trajectory:
        """Return the part as it is recorded."""
        calls = zip(self.tokens, self.is_valid, strict=True)
        turns = [turn_of((7,) * count, seat=self.agent, is_valid=is_valid) for count, is_valid in calls]
        return episode_of(
            turns, self.outcome, task=task, group=f"{self.pool}/{self.agent}", index=index, seed=index,
            turn_numbers=tuple(range(len(turns))),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Teams:
    """Parts of episodes, as the code that ships takes them and in plain numbers."""

    groups: list[Group]
    parts: list[Part]
    """of those that count, in order"""


def draw_teams(rng: Rng) -> Teams:
    """Return 1 to 3 tasks of 1 to 4 episodes, in each of which the first agent is called and others may be."""
    groups, parts = list[Group](), list[Part]()
    for number in range(int(rng.integers(1, 4))):
        task = Task(id=f"t{number}", environment="e", seed=0)
        episodes = range(int(rng.integers(1, 5)))
        outcomes = [float(rng.integers(0, 2)) if number else float(rng.normal()) for _ in episodes]
        failed = [index > 0 and rng.random() < 0.1 for index in episodes]
        for agent in AGENTS:
            called = [index for index in episodes if agent == AGENTS[0] or rng.random() < 0.6]
            own = [call(rng, f"g/{number}", agent, outcomes[index] + (agent == "C")) for index in called]
            made = [part.record(task, index) for part, index in zip(own, called, strict=True)]
            made = [replace(t, outcome=SLOW) if failed[t.index] else t for t in made]
            groups += [Group(task=task, trajectories=tuple(made))] if made else []
            parts += [part for part, index in zip(own, called, strict=True) if not failed[index]]
    return Teams(groups=groups, parts=parts)


def call(rng: Rng, pool: str, agent: str, outcome: float) -> Part:
    """Return a part of 1 to 3 calls."""
    num = int(rng.integers(1, 4))
    return Part(
        pool=pool,
        agent=agent,
        outcome=outcome,
        is_valid=(rng.random(num) < 0.7).tolist(),
        tokens=[int(count) for count in rng.integers(1, 4, num)],
    )


def agents(case: Teams, *, by: str, unit: str) -> list[float]:
    """Return Dr. MAS' advantages on all tokens, a penalty of .3 for invalid calls."""
    scores = [[part.outcome - (0.0 if valid else 0.3) for valid in part.is_valid] for part in case.parts]
    if unit == "episode":
        scores = [[sum(own) / len(own) for _ in own] for own in scores]
    found: list[float] = []
    for place, part in enumerate(case.parts):
        others = [
            j
            for j, other in enumerate(case.parts)
            if other.pool == part.pool and (by == "all" or other.agent == part.agent)
        ]
        heard = [(j, k) for j in others for k in range(len(scores[j]) if unit == "call" else 1)]
        values = dict(zip(heard, standard([scores[j][k] for j, k in heard]), strict=True))
        for k, count in enumerate(part.tokens):
            own = values[place, k if unit == "call" else 0] if len(others) > 1 else 0.0
            found += [own] * count
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A turn in plain numbers."""

    agent: str
    tokens: int
    earned: float
    """what it paid the team"""
    own: float
    """what its seat was paid"""
    values: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talks:
    """Episodes in which agents take turns, as the code that ships takes them and in plain numbers."""

    groups: list[Group]
    critic: Critic
    orders: list[list[tuple[int, int]]]
    talks: list[list[Spoken]]
    finals: list[dict[str, float]]
    """value after the last turn of each agent's part, 0 where the episode came to its end"""


def draw_talks(rng: Rng) -> Talks:
    """Return 1 to 4 talks of 1 to 7 turns by 1 to 3 agents; some were cut, some turns sampled nothing."""
    parts, orders = list[tuple[Trajectory, list[Spoken]]](), list[list[tuple[int, int]]]()
    talks, finals, ends = list[list[Spoken]](), list[dict[str, float]](), list[float]()
    for number in range(int(rng.integers(1, 5))):
        talk = [draw_turn(rng) for _ in range(int(rng.integers(1, 8)))]
        talk[0] = replace(talk[0], tokens=1, values=[0.25])
        agents = list(
            dict.fromkeys(turn.agent for turn in talk if any(t.tokens for t in talk if t.agent == turn.agent))
        )
        talk = [turn for turn in talk if turn.agent in agents]
        is_cut, first = bool(rng.random() < 0.3), len(parts)
        task = Task(id=f"t{number}", environment="e", seed=0)
        for agent in agents:
            numbers = tuple(k for k, turn in enumerate(talk) if turn.agent == agent)
            own = [talk[k] for k in numbers]
            turns = [turn_of((7,) * turn.tokens, seat=agent, reward=turn.own) for turn in own]
            part = episode_of(
                turns, 0.0, task=task, group=f"g{number}/{agent}", turn_numbers=numbers,
                stop=Stop.MAX_TOKENS if is_cut else Stop.TERMINATED,
                turn_rewards=tuple(turn.earned for turn in own),
            )  # fmt: skip
            parts.append((part, own))
            ends.append(float(rng.normal()))
        seen = dict.fromkeys(agents, 0)
        order: list[tuple[int, int]] = []
        for turn in talk:
            order.append((first + agents.index(turn.agent), seen[turn.agent]))
            seen[turn.agent] += 1
        orders.append(order)
        talks.append(talk)
        finals.append({agent: is_cut * ends[first + k] for k, agent in enumerate(agents)})
    return Talks(
        groups=[Group(task=part.task, trajectories=(part,)) for part, _ in parts],
        critic=Critic(values=[[np.array(turn.values) for turn in own] for _, own in parts], final=ends),
        orders=orders,
        talks=talks,
        finals=finals,
    )


def draw_turn(rng: Rng) -> Spoken:
    """Return a turn."""
    tokens = int(rng.integers(0, 4))
    return Spoken(
        agent=str(rng.choice(["A", "B", "C"])),
        tokens=tokens,
        earned=round(float(rng.normal()), 3),
        own=round(float(rng.normal()), 3),
        values=rng.normal(size=tokens).round(4).tolist(),
    )


def follow_order(case: Talks, *, level: str, pays: str) -> list[float]:
    """Return MARFT's advantages and targets on all tokens; γ .9 between steps, .8 in them, .97 in a turn, λ .7."""
    found: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
    for talk, order, final in zip(case.talks, case.orders, case.finals, strict=True):
        paid = pay_silent([turn.own if pays == "own" else turn.earned for turn in talk], talk)
        heard = [k for k, turn in enumerate(talk) if turn.tokens]
        numbers = step_numbers([talk[k].agent for k in heard])
        rewards, values, discounts = list[float](), list[float](), list[float]()
        for place, k in enumerate(heard):
            together = [j for j, number in enumerate(numbers) if number == numbers[place]]
            is_last = together[-1] == place
            total = sum(paid[heard[j]] for j in together)
            share = {"own": paid[k], "last": total * is_last, "each": total * 0.8 ** (together[-1] - place)}[
                pays
            ]
            more = talk[k].tokens - 1 if level == "token" else 0
            rewards += [*[0.0] * more, share]
            values += talk[k].values[: more + 1]
            discounts += [*[0.97] * more, 0.9 if is_last else 0.8]
        flat = estimated(rewards, values, discounts, 0.7, final[talk[heard[-1]].agent])
        pairs = iter([(a, a + v) for a, v in zip(flat, values, strict=True)])
        for k in heard:
            own = [next(pairs) for _ in range(talk[k].tokens if level == "token" else 1)]
            own = own if level == "token" else own * talk[k].tokens
            found[order[k]] = [a for a, _ in own], [g for _, g in own]
    places = sorted(found)
    return [x for p in places for x in found[p][0]] + [x for p in places for x in found[p][1]]


def pay_silent(paid: Sequence[float], talk: Sequence[Spoken]) -> list[float]:
    """Return `paid` with what turns without a token were paid on the turn before that has some."""
    found = list(paid)
    for k, turn in enumerate(talk):
        if not turn.tokens:
            before = max(j for j in range(k) if talk[j].tokens)
            found[before] += found[k]
            found[k] = 0.0
    return found


def step_numbers(agents: Sequence[str]) -> list[int]:
    """Return the number of each turn's step, a new one where an agent speaks again."""
    found: list[int] = []
    for k, agent in enumerate(agents):
        own = found[-1] if found else 0
        inside = [agents[j] for j in range(k) if found[j] == own]
        found.append(own + (agent in inside))
    return found


LEVELS = tuple(product(("action", "token"), ("last", "each", "own")))


def by_levels(module: ModuleType, case: Talks) -> list[float]:
    """Return what the code makes of talks, at both levels and with every way to pay."""
    found: list[float] = []
    for level, pays in LEVELS:
        credit = module.gae_agents(
            case.groups, case.critic, case.orders, level=level, pays=pays,
            turn_discount=0.9, agent_discount=0.8, token_discount=0.97, gae_lambda=0.7,
        )  # fmt: skip
        found += flatten([credit.advantages, credit.returns])
    return found


WAYS = tuple(product(("agent", "all"), ("call", "episode")))


def by_ways(module: ModuleType, case: Teams) -> list[float]:
    """Return what the code makes of a case, in each way of counting."""
    ways = [module.over_agents(case.groups, by=by, unit=unit, penalty=0.3) for by, unit in WAYS]
    return flatten([credit.advantages for credit in ways])


Answers = list[tuple[str, float]]


def draw_answers(rng: Rng) -> Answers:
    """Return up to 9 answers of up to 3 agents."""
    return [
        (str(rng.choice(["A", "B", "C"])), float(rng.integers(0, 2))) for _ in range(int(rng.integers(1, 10)))
    ]


SHAPES = tuple(product(("margin", "quality"), ("own", "all")))


def by_shapes(module: ModuleType, answers: Answers) -> list[float]:
    """Return what the code pays for answers, in each shape."""
    return [
        x
        for shape, history in SHAPES
        for x in module.allocate(answers, shape=shape, history=history, alpha=0.4)
    ]


def allocate(answers: Answers, *, shape: str, history: str) -> list[float]:
    """Return R + .4 Δ of each answer, quality as Q·R - (1 - Q)(1 - R)."""
    number = [sum(other == agent for other, _ in answers[:k]) for k, (agent, _) in enumerate(answers)]
    found: list[float] = []
    for k, (agent, reward) in enumerate(answers):
        if history == "own":
            before = [r for name, r in answers[:k] if name == agent]
        else:
            before = [r for j, (_, r) in enumerate(answers[:k]) if number[j] < number[k]]
        if not before:
            found.append(reward)
            continue
        mean = sum(before) / len(before)
        quality = mean * reward - (1 - mean) * (1 - reward)
        found.append(reward + 0.4 * (reward - mean if shape == "margin" else quality))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Changes of the return after each of several remarks, and what weights go by."""

    changes: list[float]
    decay: float
    bonus: float
    cut: float


def draw_judged(rng: Rng) -> Judged:
    """Return 1 to 5 remarks, after which the return rose, fell or stayed."""
    return Judged(
        changes=[float(x) for x in rng.choice([-0.3, 0.0, 0.2], int(rng.integers(1, 6)))],
        decay=float(rng.uniform(0.3, 1)),
        bonus=float(rng.uniform(0, 0.5)),
        cut=float(rng.uniform(0, 1)),
    )


def weigh(module: ModuleType, case: Judged) -> list[float]:
    """Return the weights after each remark and after each test."""
    weights, found = list[float](), list[float]()
    for change in case.changes:
        weights = module.admit_weight(weights, decay=case.decay)
        found += weights
        weights = module.judge_weights(weights, change, bonus=case.bonus, cut=case.cut)
        found += weights
    return found + module.judge_weights([], -1.0, bonus=case.bonus, cut=case.cut)


def weigh_remarks(case: Judged) -> list[float]:
    """Return the same by an array, in which a remark that is not made yet weighs 0."""
    weights, found = np.zeros(len(case.changes)), list[float]()
    for k, change in enumerate(case.changes):
        weights *= case.decay
        weights[k] = 1 / (k + 1)
        weights /= max(1.0, weights.sum())
        found += weights[: k + 1].tolist()
        weights[k] += case.bonus if change > 0 else -case.cut * weights[k] if change < 0 else 0
        weights /= max(1.0, weights.sum())
        found += weights[: k + 1].tolist()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Episodes with log-probs under a model and its reference."""

    case: Case
    own: list[list[list[float]]]
    reference: list[list[list[float]]]

    def arrays(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Return both as the code takes them."""
        own, reference = (
            [[np.array(turn) for turn in row] for row in part] for part in (self.own, self.reference)
        )
        return own, reference


def draw_fitted(rng: Rng) -> Fitted:
    """Return ragged episodes with random log-probs."""
    case = draw(rng)
    own, reference = (
        [[(-rng.random(count)).round(3).tolist() for count in play.tokens] for play in case.plays]
        for _ in range(2)
    )
    return Fitted(case=case, own=own, reference=reference)


def turn_scores(given: Fitted) -> list[list[float]]:
    """Return .7 times the mean log-ratio of each turn."""
    return [
        [
            0.7 * sum(a - b for a, b in zip(x, y, strict=True)) / len(x)
            for x, y in zip(row, other, strict=True)
        ]
        for row, other in zip(given.own, given.reference, strict=True)
    ]


def fitting_gradient(given: Fitted) -> list[float]:
    """Return minus the gradient of the cross entropy in the log-probs, by automatic differentiation."""
    found: list[float] = []
    for play, row, other in zip(given.case.plays, given.own, given.reference, strict=True):
        logs = [torch.tensor(turn, dtype=torch.float64, requires_grad=True) for turn in row]
        ratios = [x - torch.tensor(y, dtype=torch.float64) for x, y in zip(logs, other, strict=True)]
        total = 0.7 * torch.stack([ratio.mean() for ratio in ratios]).sum()
        target = torch.tensor(float(play.total > 0), dtype=torch.float64)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(total, target)
        found += [-x for g in torch.autograd.grad(loss, logs) for x in g.tolist()]
    return found


def score(module: ModuleType, given: Fitted) -> list[float]:
    """Return the code's scores of turns."""
    return flatten(module.score_turns(*given.arrays(), beta=0.7))


def fit(module: ModuleType, given: Fitted) -> list[float]:
    """Return the code's weights of tokens."""
    episodes = [t for group in given.case.groups for t in group.scored]
    return flatten(module.fit_outcomes(episodes, *given.arrays(), beta=0.7).advantages)


Remarked = tuple[dict[str, Any], list[tuple[str, str, int]]]
"""(a remark, for each turn its seat, what is done, the fuel seen before it, -1: none; the last one is the end)"""
REMARKS: tuple[dict[str, Any], ...] = (
    {"template": "time", "value": -0.1},
    {"template": "event", "value": 0.5, "action": "go home"},
    {"template": "event", "value": 0.5, "seen": "fuel", "seats": ("B",)},
    {"template": "event", "value": -0.5, "action": "go", "seen": "fuel"},
    {"template": "distance", "value": 0.2, "number": "fuel"},
    {"template": "distance", "value": 0.2, "number": "Fuel", "seats": ("A",)},
    {"template": "proximity", "value": 0.3, "number": "fuel", "within": 2.0},
)


def draw_remarked(rng: Rng) -> Remarked:
    """Return a remark and a talk of up to five turns."""
    turns = [
        (
            ("A", "B", "B/plan")[int(rng.integers(3))],
            ("go home", "Go, home!", "go", "home go", "wait")[int(rng.integers(5))],
            int(rng.integers(-1, 5)),
        )
        for _ in range(int(rng.integers(2, 7)))
    ]
    return REMARKS[int(rng.integers(len(REMARKS)))], turns


def pay_remark(module: ModuleType, case: Remarked) -> list[float]:
    """Return what the code pays for each turn."""
    remark, told = case
    seen = ["nothing" if fuel < 0 else f"Fuel {'= ' * (fuel % 2)}{fuel}." for _, _, fuel in told]
    turns = [
        turn_of(observation=as_content(text), seat=seat, action=Action(text=done))
        for (seat, done, _), text in zip(told[:-1], seen, strict=False)
    ]
    return [
        float(x)
        for x in module.Remark(**remark).measure(episode_of(turns, final_observation=as_content(seen[-1])))
    ]


def pay_by_numbers(case: Remarked) -> list[float]:
    """Return the same by the numbers that the texts were made of."""
    remark, told = case
    found: list[float] = []
    for (seat, done, before), (_, _, after) in pairwise(told):
        value = float(remark["value"])
        if "/" in seat or seat not in remark.get("seats", (seat,)):
            value = 0.0
        elif remark["template"] == "event":
            words = str(remark.get("action", ""))
            is_done = (
                done in ("go home", "Go, home!") if words == "go home" else "go" in done.lower() or not words
            )
            value *= is_done and (after >= 0 or "seen" not in remark)
        elif remark["template"] == "distance":
            value *= before - after if before >= 0 and after >= 0 else 0
        elif remark["template"] == "proximity":
            value *= 0 <= after <= 2
        found.append(value)
    return found


Explored = tuple[list[list[int]], list[float], list[bool]]
"""of each step its features, its steps to the goal or their bound, and whether it is a bound"""


def draw_explored(rng: Rng) -> Explored:
    """Return five to three hundred steps with up to six of a dozen features, a third of them censored."""
    num = int(rng.integers(5, 300))
    rows = [[int(k) for k in rng.integers(0, 12, int(rng.integers(1, 7)))] for _ in range(num)]
    return rows, [float(k) for k in rng.integers(1, 20, num)], [bool(k) for k in rng.random(num) < 1 / 3]


def fit_explored(module: ModuleType, case: Explored) -> list[float]:
    """Return the weights that LIET's code fits."""
    rows, steps, censored = case
    found = module.fit_weights(
        [np.array(row) for row in rows], np.array(steps), np.array(censored), size=12, ridge=0.5
    )
    return flatten(found)


def fit_explored_by_hand(case: Explored) -> list[float]:
    """Return the same by least squares over a table of counts with rows for the ridge, twenty times."""
    rows, steps, censored = case
    table = np.array([[float(row.count(k)) for k in range(12)] for row in rows])
    ridge = np.sqrt(0.5) * np.eye(12)
    goals, weights = list(steps), np.zeros(12)
    for _ in range(20):
        full = np.concatenate((np.array(goals), np.zeros(12)))
        weights = np.linalg.lstsq(np.concatenate((table, ridge)), full, rcond=None)[0]
        goals = [
            max(y, float(f)) if c else y for y, f, c in zip(steps, table @ weights, censored, strict=True)
        ]
    return flatten(weights)


def draw_seen(rng: Rng) -> tuple[str, str, str]:
    """Return what a seat saw first and last, and an action that may name words of it."""
    words = ["flag", "Red", "2", "north", "go", "to", ","]

    def say(most: int) -> str:
        return " ".join(words[int(k)] for k in rng.integers(0, 7, int(rng.integers(1, most))))

    first = say(8)
    return first, first if rng.random() < 0.3 else say(8), say(4)


def name_seen(module: ModuleType, case: tuple[str, str, str]) -> list[float]:
    """Return the features by LIET's code as numbers, in order."""
    return sorted(float(zlib.crc32(name.encode())) for name in module.name_features(*case))


def name_seen_by_hand(case: tuple[str, str, str]) -> list[float]:
    """Return the same by going through all runs of words."""
    first, last, action = (text.lower().split() for text in case)
    parts = [(last, "")] + ([(first, "first ")] if first != last else [])
    order = [w for k, w in enumerate(action) if any(w in p for p, _ in parts) and w not in action[:k]]
    numbered = {word: f"#{order.index(word) + 1}" for word in order}
    kind = " ".join(numbered.get(word, word) for word in action)
    names = ["", kind]
    for words, where in parts:
        for start in range(len(words)):
            for end in range(start + 1, min(start + 4, len(words)) + 1):
                run = words[start:end]
                if not where:
                    names.append(" ".join(run))
                if any(word in numbered for word in run):
                    names.append(f"{where}{kind}|{' '.join(numbered.get(word, word) for word in run)}")
    return sorted(float(zlib.crc32(name.encode())) for name in names)


FORMULAS: tuple[Formula, ...] = (
    Formula("teams.over_agents", "credit.agents", ("over_agents",), draw_teams, by_ways,
        lambda case: [x for by, unit in WAYS for x in agents(case, by=by, unit=unit)], aside=("_moments",)),
    Formula("teams.gae_agents", "credit.agent_order", ("gae_agents",), draw_talks, by_levels,
        lambda case: [x for level, pays in LEVELS for x in follow_order(case, level=level, pays=pays)]),
    Formula("teams.allocate", "rewards.allocation", ("allocate",), draw_answers, by_shapes,
        lambda given: [x for shape, history in SHAPES for x in allocate(given, shape=shape, history=history)]),
    Formula("teams.remark_weights", "rewards.feedback", ("admit_weight", "judge_weights", "bound_sum"), draw_judged,
        weigh, weigh_remarks),
    Formula("teams.remark_pay", "rewards.feedback", ("Remark", "_pay_turn", "has_words", "find_number"), draw_remarked,
        pay_remark, pay_by_numbers),
    Formula("teams.score_turns", "credit.implicit_reward", ("score_turns",), draw_fitted, score,
        lambda given: flatten(turn_scores(given))),
    Formula("liet.steps", "memory.utility", ("fit_weights",), draw_explored, fit_explored, fit_explored_by_hand),
    Formula("liet.features", "memory.utility", ("name_features", "find_runs"), draw_seen, name_seen, name_seen_by_hand),
    Formula("teams.fit_outcomes", "credit.implicit_reward", ("fit_outcomes",), draw_fitted, fit, fitting_gradient),
)  # fmt: skip
