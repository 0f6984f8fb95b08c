"""Past selves: earlier versions of the policy, frozen, that play with it.

A seat of a policy with ``past = 8`` is played by one of the last eight versions of ``policy``, each kept after every so
many steps (`PolicySettings.every`), the first before step 1. Every group of episodes draws one by its seed, so that
what is compared in a group was played with the same one: `recent` by ½^age, `even`, or `hard` by (1 - x)², where x is
the learner's rate of success with it, (wins + 1) / (games + 2) (prioritized fictitious self-play, AlphaStar, Vinyals et
al. 2019). With `swaps` the seat is drawn, too. Each version is a policy ``NAME-NUMBER`` of the run: an adapter on the
learner's model where that has one, else a copy of it. The journal says who played each turn, and by which version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from quintain.data.seats import by_seat
from quintain.errors import ConfigError
from quintain.learning.checkpoint import load_numbers, save_numbers
from quintain.learning.policies import Policies, Policy, past_names
from quintain.learning.sections import ModelSection, PolicySettings
from quintain.learning.train_config import MAIN, TrainConfig
from quintain.types import Score, Trajectory

NUMBERS = ("version", "age", "games", "wins")


@dataclass(slots=True)
class PastSelf:
    """A version that is kept: how many others are newer, and what the learner won with it; `age` -1: none yet."""

    policy: Policy
    age: int = -1
    games: int = 0
    wins: int = 0

    @property
    def success(self) -> float:
        """The learner's rate of success with it, from ½ on."""
        return (self.wins + 1) / (self.games + 2)


@dataclass(slots=True)
class Pool:
    """The past selves under one name, and the seats that the configuration gives them."""

    settings: PolicySettings
    members: list[PastSelf]
    seats: list[str]

    def weigh(self) -> list[float]:
        """Return how likely each member is drawn, up to a factor."""
        by = self.settings.drawn
        return [
            0.0
            if each.age < 0
            else {"recent": 0.5**each.age, "even": 1.0, "hard": (1.0 - each.success) ** 2}[by]
            for each in self.members
        ]


def check_past(config: TrainConfig, seats: Mapping[str, str]) -> None:
    """Refuse past selves that cannot be in a run of `config`, whose `seats` are played by whom.

    Raises:
        ConfigError: weights change while they play, or nobody plays with them.
    """
    for name, settings in config.policies.items():
        if settings.past and config.max_staleness:
            raise ConfigError(
                f"policies.{name}.past: got {settings.past} with max_staleness {config.max_staleness}, with which the "
                "oldest is replaced while it plays; give max_staleness 0"
            )
        if settings.past and MAIN not in seats.values():
            raise ConfigError(
                f"policies.{name}.past: got {settings.past}, and no seat is left to {MAIN}; give it one"
            )


class PastSelves:
    """The past selves of a run of `config` with `policies`, in whose environment `seats` are played by whom."""

    def __init__(self, config: ModelSection, policies: Policies, seats: Mapping[str, str]) -> None:
        """Find them; without any this does nothing."""
        self._leader = policies.main
        self._pools = {
            name: Pool(
                settings,
                [PastSelf(policies[each]) for each in past_names(name, settings)],
                [seat for seat, by in seats.items() if by == name],
            )
            for name, settings in config.policies.items()
            if settings.past
        }
        self.usual: dict[str, str] = {seat: MAIN if by in self._pools else by for seat, by in seats.items()}
        """who plays where nobody is drawn, as in demonstrations: the policy itself"""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._pools)

    def draw_seats(self, seed: int) -> dict[str, str]:
        """Return which policy plays each seat in the episodes that are drawn by `seed`."""
        seats, rng = dict(self.usual), Random(seed)
        for pool in self._pools.values():
            (chosen,) = rng.choices(pool.members, pool.weigh())
            own = pool.seats
            if pool.settings.swaps:
                own = rng.sample([seat for seat, by in seats.items() if by == MAIN], len(own))
            seats |= dict.fromkeys(own, chosen.policy.name)
        return seats

    def keep(self, step: int) -> list[Policy]:
        """Let the learner as it is after `step` replace the oldest where that is due; return what changed."""
        changed: list[Policy] = []
        for pool in self._pools.values():
            if step % pool.settings.every:
                continue
            newest = pool.members[step // pool.settings.every % len(pool.members)]
            for member in pool.members:
                member.age += member.age >= 0
            newest.age = newest.games = newest.wins = 0
            newest.policy.follow(self._leader, polyak=1.0)
            newest.policy.copied_version = self._leader.version
            changed.append(newest.policy)
        return changed

    def observe(self, trajectories: Sequence[Trajectory]) -> None:
        """Count what the learner won with whom in the scored of `trajectories`."""
        members = {each.policy.name: each for pool in self._pools.values() for each in pool.members}
        for trajectory in trajectories if members else ():
            if not isinstance(trajectory.outcome, Score):
                continue
            parts = by_seat(trajectory)
            is_won = any(
                isinstance(part.outcome, Score) and part.outcome.is_success
                for part in parts
                if any(turn.completion.policy == MAIN for turn in part.turns)
            )
            for name in {turn.completion.policy for turn in trajectory.turns} & set(members):
                members[name].games += 1
                members[name].wins += is_won

    def measure(self) -> dict[str, float]:
        """Return of each member the version, and the learner's rate of success with it so far."""
        kept = [each for pool in self._pools.values() for each in pool.members if each.age >= 0]
        versions = {f"past/version/{each.policy.name}": float(each.policy.version) for each in kept}
        won = {f"past/success/{each.policy.name}": each.wins / each.games for each in kept if each.games}
        return versions | won

    @property
    def kept(self) -> list[Policy]:
        """The policies that hold a version."""
        return [each.policy for pool in self._pools.values() for each in pool.members if each.age >= 0]

    def save(self, folder: Path) -> None:
        """Write beside the weights in `folder` what is known of each."""
        for pool in self._pools.values():
            for each in pool.members:
                numbers = (each.policy.version, each.age + 1, each.games, each.wins)
                save_numbers(folder / each.policy.name, dict(zip(NUMBERS, numbers, strict=True)))

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote."""
        for pool in self._pools.values():
            for each in pool.members:
                found = load_numbers(folder / each.policy.name, NUMBERS)
                each.policy.copied_version = found["version"]
                each.age, each.games, each.wins = found["age"] - 1, found["games"], found["wins"]
