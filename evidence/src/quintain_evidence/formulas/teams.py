"""Credit to agents of a team, each beside a plain second version that goes through who spoke when."""

from dataclasses import dataclass, replace
from itertools import product
from types import ModuleType

from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Failure, Group, Task, Trajectory
from quintain_evidence.formulas.credit import standard
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

    def lived(self, task: Task, index: int) -> Trajectory:
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
            made = [part.lived(task, index) for part, index in zip(own, called, strict=True)]
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


WAYS = tuple(product(("agent", "all"), ("call", "episode")))


def by_ways(module: ModuleType, case: Teams) -> list[float]:
    """Return what the code makes of a case, in each way of counting."""
    ways = [module.over_agents(case.groups, by=by, unit=unit, penalty=0.3) for by, unit in WAYS]
    return flatten([credit.advantages for credit in ways])


FORMULAS: tuple[Formula, ...] = (
    Formula("teams.over_agents", "credit.agents", ("over_agents",), draw_teams, by_ways,
        lambda case: [x for by, unit in WAYS for x in agents(case, by=by, unit=unit)], aside=("_moments",)),
)  # fmt: skip
