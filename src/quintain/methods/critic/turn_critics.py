"""Twin critics of whole turns with target networks: what the methods that learn Q from a buffer share.

A critic is a policy with a value head: V(s) is what it says before a turn, Q(s, a) what it says after it
(`data.turn_values`). There are two, which begin alike but for their heads, each with a target network of its own that
follows it. They are copies of the policy, or a small encoder of their own with its tokenizer.
"""

from collections.abc import Callable, Sequence

from quintain.credit.turn_td import TurnValues, by_way, combine_critics, least, q_targets, state_targets
from quintain.data.turn_values import turn_value_samples
from quintain.learning.train_config import PolicySpec
from quintain.methods.loops.continuations import Continuation, Continuations
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.replay import UpdateSamples, WatchedCritic
from quintain.types import Group, Trajectory, flatten_scored

CRITICS, TARGETS = ("critic_1", "critic_2"), ("target_1", "target_2")
"""Names of the critics, and of the target network of each."""
GetContinuations = Callable[[Sequence[Trajectory], PolicyQueries], Continuations]


def make_twins(
    *, polyak: float, size: str = "", head_width: int = 0, head_scales: bool = False
) -> dict[str, PolicySpec]:
    """Return two critics and their target networks, which move by `polyak` after every update.

    They are copies of the main policy, or new models of the tiny `size`; heads have `head_width` units in a layer of
    their own (0: they are linear), and with `head_scales` read what stands before turns and after them each on its own
    scale.
    """
    found: dict[str, PolicySpec] = {}
    for seed, (critic, target) in enumerate(zip(CRITICS, TARGETS, strict=True), 1):
        found[critic] = PolicySpec(
            head="value", head_seed=seed, is_trained=True, size=size, head_width=head_width,
            head_scales=head_scales,
        )  # fmt: skip
        found[target] = PolicySpec(
            copies=critic, head="value", head_seed=seed, follows=critic, polyak=polyak, size=size,
            head_width=head_width, head_scales=head_scales,
        )  # fmt: skip
    return found


def read_values(
    episodes: Sequence[Trajectory],
    consultation: PolicyQueries,
    *,
    names: Sequence[str] = CRITICS,
    choose: Callable[[Sequence[float]], float] = min,
) -> TurnValues:
    """Return what `choose` makes of the values of the policies `names` at each place."""
    said = [consultation.turn_values(episodes, by=name) for name in names]
    return least(said) if choose is min else combine_critics(said, choose)


def take_all(ways: Continuations) -> list[Continuation]:
    """Return all of `ways` in order."""
    return [way for turns in ways for own in turns for way in own]


def weights_of(ways: Continuations) -> list[list[list[float]]]:
    """Return how much each of `ways` counts."""
    return [[[way.weight for way in own] for own in turns] for turns in ways]


def after_ways(
    ways: Continuations,
    consultation: PolicyQueries,
    *,
    names: Sequence[str],
    choose: Callable[[Sequence[float]], float] = min,
) -> list[list[list[float]]]:
    """Return Q of each of `ways`, as `read_values` has it."""
    episodes = [way.episode for way in take_all(ways)]
    said = [consultation.last_values(episodes, by=name) for name in names]
    return by_way(weights_of(ways), [choose(values) for values in zip(*said, strict=True)])


def on_policy_targets(
    number: int, *, discount: float, ways: GetContinuations
) -> Callable[[Sequence[Group], PolicyQueries], UpdateSamples]:
    """Return what critic `number` learns: y_Q = r + γ·V̄(s') and y_V = Σ w·Q̄(s, a) over `ways` of the policy as it is.

    Each critic has the targets of its own target network (ArCHer's code pairs them; neither takes the smaller).
    """

    def learn(groups: Sequence[Group], consultation: PolicyQueries) -> UpdateSamples:
        episodes, name = flatten_scored(groups), TARGETS[number]
        slow = consultation.turn_values(episodes, by=name)
        found = ways(episodes, consultation)
        after = after_ways(found, consultation, names=(name,))
        return lesson(
            episodes,
            before=state_targets(weights_of(found), after),
            after=q_targets(episodes, slow.before, discount),
            consultation=consultation,
        )

    return learn


def learn_targets(
    number: int, *, discount: float
) -> Callable[[Sequence[Group], PolicyQueries], UpdateSamples]:
    """Return what critic `number` learns of recorded turns alone: y_Q = r + γ·V(s'), y_V = min Q̄(s, a) (IQL).

    With the expectile loss V is that of the better actions of the log, and no action is asked of the policy.
    """

    def learn(groups: Sequence[Group], consultation: PolicyQueries) -> UpdateSamples:
        episodes = flatten_scored(groups)
        own = consultation.turn_values(episodes, by=TARGETS[number])
        slow = read_values(episodes, consultation, names=TARGETS)
        return lesson(
            episodes,
            before=slow.after,
            after=q_targets(episodes, own.before, discount),
            consultation=consultation,
        )

    return learn


def lesson(
    episodes: Sequence[Trajectory],
    *,
    before: Sequence[Sequence[float]] | None = None,
    after: Sequence[Sequence[float]] | None = None,
    consultation: PolicyQueries,
) -> UpdateSamples:
    """Return the streams of `episodes` with these targets."""
    samples = turn_value_samples(episodes, before=before, after=after, max_length=consultation.max_length)
    return UpdateSamples(samples=samples)


def watch_twins(discount: float) -> WatchedCritic:
    """Return the smaller of both critics, to be measured, with the smaller of their target networks."""
    return WatchedCritic(
        values=read_values,
        target=lambda episodes, consultation: read_values(episodes, consultation, names=TARGETS),
        discount=discount,
    )
