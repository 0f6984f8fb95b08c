"""Layer 0: is what is paid what is measured, and do both arms of a comparison get the same pay?

A world's reward is audited without any training: scripted policies that do not solve its tasks must not earn more than
good play, and over episodes of experts that make mistakes returns must rank like success. Good play is the expert's,
but where that is a teacher with a fault (`PlaysWell`). Two methods are compared by what their rewards pay for the same
recorded episodes. Alarms of finished runs refuse an arm.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, permutations

from quintain.environments.baselines import Policy, expert, master, noop, play, random_action, random_policy
from quintain.environments.catalog import find
from quintain.environments.noisy import Fallible, noisy_policy
from quintain.environments.protocol import Environment, Expert, Legal, PlaysWell, Snapshot, advance
from quintain.errors import UsageError
from quintain.types import Action, Group, Score, Trajectory, derive_seed
from quintain_evidence.layers.inference import rank_correlation
from quintain_evidence.layers.verdict import Check

NUM_TASKS, NUM_EPISODES = 24, 256
NUM_CONSTANTS = 6
"""Actions that a policy repeats for ever: what the expert writes most."""
NUM_ALTERNATED = 4
"""How many of those it alternates, in pairs."""
NUM_TRIED = 6
"""Random actions that a stalling policy chooses from, where legal ones are not listed."""
RANKS = 0.8
REFUSING = ("hacking", "length", "length_advantage")
"""Alarms with which an arm is no evidence, where they hold when its run ends."""
SAME = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldAudit:
    """What a world pays: ``WorldAudit(world="sums", expert=1.0, scripted={"no-op": 0.0}, ranks=0.97, …)``."""

    world: str
    expert: float
    """mean return of the expert, of good play where the expert is a teacher with a fault"""
    scripted: Mapping[str, float]
    """mean return of each scripted policy on the same tasks"""
    ranks: float
    """rank correlation of return and success over noisy experts, of the greatest that their ties admit"""
    success: float
    """share of the noisy episodes that succeed"""

    @property
    def checks(self) -> tuple[Check, ...]:
        """Return what the audit must pass."""
        best = max(self.scripted, key=lambda name: self.scripted[name])
        return (
            Check(
                name="scripted policies",
                has_passed=self.scripted[best] <= self.expert + SAME,
                detail=f"{best} earns {self.scripted[best]:.3f}, the most of {len(self.scripted)}; the expert "
                f"{self.expert:.3f}",
            ),
            Check(
                name="returns rank like success",
                has_passed=self.ranks > RANKS,
                detail=f"{self.ranks:.3f} of the possible rank correlation over noisy experts, {self.success:.0%} of "
                f"whom succeed; to be above {RANKS:g}",
            ),
        )


def audit_world(
    spec: str, *, num_tasks: int = NUM_TASKS, num_episodes: int = NUM_EPISODES, seed: int = 0
) -> WorldAudit:
    """Return what the world `spec` pays to scripted policies and to experts whose share of mistakes is drawn from 0–1.

    Raises:
        UsageError: it has no expert to compare with.
    """
    with closing(find(spec)()) as environment:
        if not isinstance(environment, Expert):
            raise UsageError(
                f"objective of {spec}: got a world without an expert; audit one that defines expert_action"
            )
        rates, returns, solved = random.Random(seed), list[float](), list[float]()
        tasks = [environment.task("train", index) for index in range(num_tasks)]
        for index in range(num_episodes):
            policy = noisy_policy(rates.random(), derive_seed(seed, "noisy", index))
            done = play(environment, environment.task("train", index), policy)
            returns.append(done.total)
            solved.append(float(done.is_success))

        def mean_return(make: Callable[[], Policy]) -> float:
            return sum(play(environment, task, make()).total for task in tasks) / num_tasks

        written = Counter[str]()
        earned = mean_return(lambda: watched(expert, written))
        if isinstance(environment, PlaysWell):
            earned = mean_return(lambda: master)
        policies = dict(scripted(environment, [text for text, _ in written.most_common(NUM_CONSTANTS)], seed))
        return WorldAudit(
            world=spec,
            expert=earned,
            scripted={name: mean_return(make) for name, make in policies.items()},
            ranks=relative_ranks(returns, solved),
            success=sum(solved) / num_episodes,
        )


def relative_ranks(returns: Sequence[float], solved: Sequence[float]) -> float:
    """Return the rank correlation of `returns` with success, of that which the same returns in best order would have.

    Success has two values, so graded returns cannot correlate with it fully. It is 0 where one of both never varies.
    """
    possible = rank_correlation(sorted(returns), sorted(solved))
    return rank_correlation(returns, solved) / possible if possible > 0 else 0.0


def watched(policy: Policy, written: Counter[str]) -> Policy:
    """Return `policy`, whose texts are counted in `written`; calls of tools, mostly one of a kind, are not."""

    def act(environment: Environment, observation: str) -> Action:
        action = policy(environment, observation)
        if not action.tool_calls:
            written[action.text] += 1
        return action

    return act


def scripted(
    environment: Environment, texts: Sequence[str], seed: int
) -> Iterator[tuple[str, Callable[[], Policy]]]:
    """Yield scripted policies, none of which does its best: a name, and what makes it anew for an episode."""
    yield "no-op", lambda: noop
    yield "random", lambda: random_policy(seed)
    for text in texts:
        yield f"always {text[:40]!r}", lambda text=text: in_turn(text)
    for first, second in permutations(texts[:NUM_ALTERNATED], 2):
        name = f"{first[:20]!r} and {second[:20]!r} in turn"
        yield name, lambda first=first, second=second: in_turn(first, second)
    for place in range(3):
        yield f"stuck {place}", lambda place=place: stuck(derive_seed(seed, "stuck", place))
    for place, name in enumerate(("first", "second")):
        yield f"errs in every {name} of two turns", lambda place=place: every_other(seed, place)
    if isinstance(environment, Snapshot):
        yield "stall", lambda: stall(seed)


def stuck(seed: int) -> Policy:
    """Return a policy that draws a random valid action in its first turn and repeats it for ever."""
    first: list[Action] = []

    def act(environment: Environment, observation: str) -> Action:
        if not first:
            first.append(random_action(environment, random.Random(seed), observation))
        return first[0]

    return act


def in_turn(*texts: str) -> Policy:
    """Return a policy that writes `texts` one after the other, over and over."""
    order = cycle([Action(text=text) for text in texts])
    return lambda _environment, _observation: next(order)


def stall(seed: int) -> Policy:
    """Return a policy that never ends its episode: it takes what is at hand at random, as long as that ends nothing.

    It looks at ends only: where chance decides on rewards, looking at those would be foresight.
    """
    rng = random.Random(seed)

    def act(environment: Environment, observation: str) -> Action:
        assert isinstance(environment, Snapshot), "asked only where there are snapshots"
        before = environment.snapshot()
        found = candidates(environment, rng, observation)
        rng.shuffle(found)
        for action in found:
            result = advance(environment, action)
            environment.restore(before)
            if not (result.is_terminated or result.is_truncated):
                return action
        return found[0]

    return act


def every_other(seed: int, place: int) -> Policy:
    """Return a policy that errs in every other turn, from turn `place` on, and does as the expert between."""
    turn, errs, right = place, noisy_policy(1.0, seed), expert

    def act(environment: Environment, observation: str) -> Action:
        nonlocal turn
        turn += 1
        return (errs if turn % 2 else right)(environment, observation)

    return act


def candidates(environment: Environment, rng: random.Random, observation: str) -> list[Action]:
    """Return actions that can be taken in the current state: legal ones, a mistake, random ones, the expert's."""
    legal = environment.legal_actions() if isinstance(environment, Legal) else ()
    found = [Action(text=text) for text in legal[:24]]
    if isinstance(environment, Fallible):
        found.append(environment.mistaken_action(rng))
    if not legal:
        found += [random_action(environment, rng, observation) for _ in range(NUM_TRIED)]
    return [*found, environment.expert_action()] if isinstance(environment, Expert) else found


Reward = Callable[[Sequence[Group]], Sequence[Group]]


def compare_rewards(groups: Sequence[Group], first: Reward, second: Reward) -> Check:
    """Return whether two methods pay the same for the recorded `groups`, turn by turn."""
    paid = [[pay(t) for g in reward(groups) for t in g.trajectories] for reward in (first, second)]
    different = sum(
        len(a) != len(b) or any(abs(x - y) > SAME for x, y in zip(a, b, strict=True))
        for a, b in zip(*paid, strict=False)
    ) + abs(len(paid[0]) - len(paid[1]))
    return Check(
        name="equal rewards",
        has_passed=different == 0,
        detail=f"{different} of {len(paid[0])} recorded episodes are paid differently",
    )


def pay(trajectory: Trajectory) -> tuple[float, ...]:
    """Return what each turn is paid, and the whole episode."""
    whole = (trajectory.outcome.value,) if isinstance(trajectory.outcome, Score) else ()
    return (*(turn.reward for turn in trajectory.turns), *whole)
