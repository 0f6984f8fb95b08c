"""Arms that pay at unknown rates: the bandit, with its regret.

The arms' pay-offs are drawn in advance, so that pull n of an arm pays the same whenever it is made. One arm is
better than the others by a gap (Lai and Robbins 1985); the expert is UCB1 (Auer et al. 2002).
"""

import math
from dataclasses import dataclass, replace
from random import Random

from quintain.worlds.bandit.rules import MoveResult

NAMES = ("red", "blue", "green", "pink", "gold", "grey", "black", "white", "brown", "teal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """A bandit: ``Arms(names=("red", "blue"), rates=(0.2, 0.8), pays=((0, 1), (1, 1)), pulled=(0, 0))``."""

    names: tuple[str, ...]
    rates: tuple[float, ...]
    """Probability that an arm pays 1."""
    pays: tuple[tuple[int, ...], ...]
    """[arm][n] → what its n-th pull pays."""
    pulled: tuple[int, ...]
    """How often each arm was pulled."""
    is_greedy: bool = False
    """Whether the expert is one that only does what paid best so far."""

    @property
    def num_left(self) -> int:
        """Pulls that are left."""
        return len(self.pays[0]) - sum(self.pulled)

    @property
    def best(self) -> int:
        """The arm with the highest rate."""
        return max(range(len(self.rates)), key=lambda arm: self.rates[arm])

    @property
    def favourite(self) -> int:
        """The arm with the highest mean so far, of equals the one that was pulled most; untried ones have 0."""
        shares = [self.sum_paid(arm) / max(n, 1) for arm, n in enumerate(self.pulled)]
        return max(range(len(shares)), key=lambda arm: (shares[arm], self.pulled[arm]))

    @property
    def regret(self) -> float:
        """What the pulls cost on average, against pulling the best arm each time."""
        return sum(n * (self.rates[self.best] - self.rates[arm]) for arm, n in enumerate(self.pulled))

    @property
    def coverage(self) -> float:
        """Share of the arms that were pulled."""
        return sum(n > 0 for n in self.pulled) / len(self.pulled)

    def describe(self) -> str:
        """See `Game.describe`."""
        return f"Arms: {', '.join(self.names)}; {self.num_left} pulls"

    def legal(self) -> tuple[str, ...]:
        """See `Game.legal`."""
        return tuple(f"pull {name}" for name in self.names) if self.num_left else ()

    def play(self, move: str) -> MoveResult:
        """Pull an arm."""
        arm = self.names.index(move.removeprefix("pull "))
        paid = self.pays[arm][self.pulled[arm]]
        pulled = tuple(n + (place == arm) for place, n in enumerate(self.pulled))
        after = replace(self, pulled=pulled)
        is_over = not after.num_left
        is_found = is_over and max(pulled) == pulled[self.best] and pulled.count(max(pulled)) == 1
        tally = ", ".join(f"{name} {after.sum_paid(n)} of {pulled[n]}" for n, name in enumerate(self.names))
        return MoveResult(
            game=after,
            text=f"{self.names[arm]} paid {paid}; {tally}; {after.num_left} pulls",
            dense=paid / len(self.pays[0]),
            sparse=float(is_found),
            terms={"coverage": after.coverage - self.coverage, "regret": after.regret - self.regret},
            is_over=is_over,
            is_success=is_found,
        )

    def sum_paid(self, arm: int) -> int:
        """Return what `arm` paid so far."""
        return sum(self.pays[arm][: self.pulled[arm]])

    def expert(self) -> str:
        """Return the pull of the teacher: that of `best_move`, or of a greedy one.

        A greedy one pulls the arm of the best mean so far, which is 0 for one that was never pulled; of equals the one
        that it pulled most.
        """
        return f"pull {self.names[self.favourite]}" if self.is_greedy else self.best_move()

    def best_move(self) -> str:
        """Return the pull of UCB1: the mean plus sqrt(2 ln t / n), arms that were never pulled first."""
        total = sum(self.pulled)

        def bound(arm: int) -> float:
            n = self.pulled[arm]
            return self.sum_paid(arm) / n + math.sqrt(2 * math.log(total) / n) if n else math.inf

        return f"pull {self.names[max(range(len(self.names)), key=bound)]}"

    def key(self) -> str:
        """See `Game.key`."""
        return repr(self.pulled)


def draw_arms(num_arms: int, num_pulls: int, gap: float, rng: Random, *, is_greedy: bool = False) -> Arms:
    """Return a bandit whose best arm pays at ½ + `gap`/2 and whose others pay at ½ - `gap`/2."""
    best = rng.randrange(num_arms)
    rates = tuple(0.5 + (gap / 2 if arm == best else -gap / 2) for arm in range(num_arms))
    pays = tuple(tuple(int(rng.random() < rate) for _ in range(num_pulls)) for rate in rates)
    names = tuple(rng.sample(NAMES, num_arms))
    return Arms(names=names, rates=rates, pays=pays, pulled=(0,) * num_arms, is_greedy=is_greedy)
