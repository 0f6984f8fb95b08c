"""What stands around credit, each beside a plain second version: filters, schedules, pay for search, roles, two λ."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from types import ModuleType, SimpleNamespace
from typing import Any

from quintain.testing.episodes import episode_of, turn_of
from quintain.types import ALONE, Group, Score, Task, Trajectory
from quintain_evidence.formulas.credit import Case, Tokens, draw, estimated, lived, one, to_go
from quintain_evidence.formulas.formula import Formula, Rng, flatten

SHARES = (0.25, 0.5, 1.0)
"""Shares of the groups that are kept."""
ALPHA, DECAY = 0.4, 0.9
"""α of λ = max(0, 1 - 1/(α·tokens)); γ between turns."""
BASE = 0.9


def many(rng: Rng) -> list[Group]:
    """Return 1 to 12 groups of 1 to 5 episodes that pay 0 or 1 by the turn, so that some are equally wide."""
    groups: list[Group] = []
    for number in range(int(rng.integers(1, 13))):
        task = Task(id=f"t{number}", environment="e", seed=0)
        members = [
            lived(
                one(rng, f"g{number}", task.id, binary=True, last_only=False),
                task,
                index,
                is_failed=index > 0 and rng.random() < 0.1,
            )
            for index in range(int(rng.integers(1, 6)))
        ]
        groups.append(Group(task=task, trajectories=tuple(members)))
    return groups


def flagged(module: ModuleType, groups: list[Group]) -> list[float]:
    """Return for each share and group whether the code keeps it."""
    found: list[float] = []
    for share in SHARES:
        kept = {group.task.id for group in module.most_uncertain(groups, share)}
        found += [float(group.task.id in kept) for group in groups]
    return found


def widest(groups: list[Group]) -> list[float]:
    """Return for each share and group whether fewer groups than are kept are wider, or as wide and earlier."""
    totals = [
        [t.outcome.value for t in group.trajectories if isinstance(t.outcome, Score)] for group in groups
    ]
    widths = [pstdev(values) if len(values) > 1 else 0.0 for values in totals]
    found: list[float] = []
    for share in SHARES:
        count = max(1, round(share * len(groups)))
        for place, own in enumerate(widths):
            ahead = sum(
                other > own + 1e-9 or (abs(other - own) <= 1e-9 and before < place)
                for before, other in enumerate(widths)
            )
            found.append(float(ahead < count))
    return found


Schedule = tuple[tuple[int, ...], int, list[int]]
"""turns of the stages, steps of a stage, steps that are asked for"""


def schedules(rng: Rng) -> Schedule:
    """Return up to four stages of 1 to 6 steps, and steps from the first to far beyond the last stage."""
    turns = tuple(sorted(int(k) for k in rng.integers(1, 30, int(rng.integers(1, 5)))))
    return turns, int(rng.integers(1, 7)), [1, *map(int, rng.integers(1, 40, 10))]


def limits(module: ModuleType, case: Schedule) -> list[float]:
    """Return the turns that ScalingInter-RL's code allows at each step."""
    turns, length, steps = case
    config = SimpleNamespace(turns=turns, stage_steps=length)
    return [float(module.horizon(config, step)) for step in steps]


def walked(case: Schedule) -> list[float]:
    """Return the same by going through all steps before: a stage ends when its steps are used up, but for the last."""
    turns, length, steps = case
    found: list[float] = []
    for step in steps:
        stage, left = 0, length
        for _ in range(step - 1):
            left -= 1
            if left == 0 and stage < len(turns) - 1:
                stage, left = stage + 1, length
        found.append(float(turns[stage]))
    return found


def by_role(module: ModuleType, case: Case) -> list[float]:
    """Return returns from each turn on as the code whitens them, with valid and invalid turns as two roles."""
    credit = module.discounted_return(case.groups, discount=DECAY)
    return flatten(module.whiten(credit, by=lambda _t, turn: str(turn.is_valid)).advantages)


def by_role_plainly(case: Case) -> list[float]:
    """Return the same: each role less its own mean, over its own deviation, over its own tokens."""
    raw = case.spread([to_go(play, DECAY) for play in case.plays])
    found: Tokens = [[list(turn) for turn in row] for row in raw]
    for role in (True, False):
        places = [
            (i, k) for i, play in enumerate(case.plays) for k, own in enumerate(play.is_valid) if own is role
        ]
        flat = [x for i, k in places for x in raw[i][k]]
        is_flat = not flat or max(flat) - min(flat) < 1e-12
        for i, k in places:
            found[i][k] = [0.0 if is_flat else (x - fmean(flat)) / (pstdev(flat) + 1e-8) for x in raw[i][k]]
    return flatten(found)


def two_lambdas(module: ModuleType, case: Case) -> list[float]:
    """Return UI-TARS-2's advantages, λ by length, and targets of the critic, λ = 1, as the code has them."""
    critic = case.critic()
    policy = module.gae_tokens(case.groups, critic, gae_lambda=module.length_adaptive(ALPHA))
    found = module.join_advantages(policy, module.gae_tokens(case.groups, critic, gae_lambda=1.0))
    return flatten([found.advantages, found.returns])


def two_lambdas_plainly(case: Case) -> list[float]:
    """Return the same with each sum by itself: the critic's targets are what was still to come."""
    advantages: list[float] = []
    targets: list[float] = []
    for play in case.plays:
        rewards = [
            extra + (reward if place == len(tokens) - 1 else 0.0)
            for tokens, reward in zip(play.extra, play.rewards, strict=True)
            for place, extra in enumerate(tokens)
        ]
        values = [value for turn in play.values for value in turn]
        final = play.final if play.is_cut else 0.0
        decay = max(0.0, 1 - 1 / (ALPHA * len(values)))
        advantages += estimated(rewards, values, [1.0] * len(values), decay, final)
        targets += [sum(rewards[place:]) + final for place in range(len(values))]
    return [*advantages, *targets]


Spoken = list[list[tuple[bool, list[int]]]]
"""[episode][turn] whether it is a thought, and its tokens"""


def spoken(rng: Rng) -> Spoken:
    """Return episodes of thoughts and acts, of which some repeat themselves."""
    found: Spoken = []
    for _ in range(12):
        words = int(rng.integers(1, 4))
        found.append(
            [
                (bool(rng.random() < 0.4), rng.integers(0, words, int(rng.integers(1, 7))).tolist())
                for _ in range(int(rng.integers(1, 5)))
            ]
        )
    return found


def episode(turns: Sequence[tuple[bool, list[int]]]) -> Trajectory:
    """Return the episode as it is recorded."""
    return episode_of(
        turn_of(ids, seat=f"{ALONE}/thought" if is_thought else ALONE) for is_thought, ids in turns
    )


def bonuses(module: ModuleType, case: Spoken) -> list[float]:
    """Return RLSP's pay for search, with the gate against repetition and without."""
    terms = [module.search_bonus(base=BASE, has_gate=gate) for gate in (True, False)]
    return flatten([term.measure(episode(turns)) for turns in case for term in terms])


def bonuses_plainly(case: Spoken) -> list[float]:
    """Return the same: the mean over acts of 1 - c^n, n the tokens of the act and of the thoughts since the last."""
    found: list[float] = []
    for turns in case:
        lengths: list[int] = []
        waiting = 0
        for is_thought, ids in turns:
            waiting += len(ids)
            if not is_thought:
                lengths.append(waiting)
                waiting = 0
        paid = fmean(1 - BASE**n for n in (lengths or [waiting]))
        text = [i for _, ids in turns for i in ids]
        windows = [tuple(text[k : k + 4]) for k in range(len(text) - 3)]
        again = sum(window in windows[:k] for k, window in enumerate(windows))
        found += [0.0 if windows and again / len(windows) > 0.5 else paid, paid]
    return found


def stage(name: str, module: str, functions: Sequence[str], draw: Any, ours: Any, reference: Any) -> Formula:
    """Return the formula of `functions` of `module`."""
    return Formula(
        name, module, tuple(functions), draw, ours, reference, aside=("explained_variance", "Config")
    )


FORMULAS: tuple[Formula, ...] = (
    stage("data.most_uncertain", "data.filters", ["most_uncertain"], many, flagged, widest),
    stage("rl.horizon", "methods.rl.scaling_inter", ["horizon"], schedules, limits, walked),
    stage("credit.whiten_by", "credit.whiten", ["whiten"], draw, by_role, by_role_plainly),
    stage(
        "credit.decoupled",
        "credit.gae",
        ["join_advantages", "gae_tokens", "length_adaptive"],
        draw,
        two_lambdas,
        two_lambdas_plainly,
    ),
    stage("rewards.search_bonus", "rewards.search", ["search_bonus"], spoken, bonuses, bonuses_plainly),
)  # fmt: skip
