"""How long episodes may be and what of them is kept, each beside a plain second version over lists of numbers."""

from types import ModuleType, SimpleNamespace

from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, Task, ToolCall, flatten_scored
from quintain_evidence.formulas.formula import Formula, Rng

Schedule = tuple[int, int, tuple[int, ...], int, list[int]]
"""h_min, h_max, horizons by hand, steps of an iteration, steps that are asked for"""
Kept = tuple[list[int], list[tuple[int, bool, int]]]
"""sites of a buffer's episodes; and of each new one its group, whether it succeeded, and how it ends"""
ENDS: tuple[Action, ...] = (
    Action(text="answer 4"),
    Action(text="answer n/a"),
    Action(tool_calls=(ToolCall(name="answer", arguments={"text": "N/A"}),)),
    Action(tool_calls=(ToolCall(name="answer", arguments={"text": "all"}),)),
)


def draw_schedule(rng: Rng) -> Schedule:
    """Return a schedule by the formula or by hand, and steps from the first to far beyond the last iteration."""
    low = int(rng.integers(1, 12))
    by_hand = (
        tuple(int(k) for k in rng.integers(1, 40, int(rng.integers(1, 5)))) if rng.random() < 0.5 else ()
    )
    high = low + int(rng.integers(0, 40))
    return low, high, by_hand, int(rng.integers(1, 6)), [1, *map(int, rng.integers(1, 40, 12))]


def allow(module: ModuleType, case: Schedule) -> list[float]:
    """Return the turns that TTI's code allows at each step."""
    low, high, by_hand, length, steps = case
    config = SimpleNamespace(min_turns=low, max_turns=high, turns=by_hand, stage_steps=length)
    return [float(module.horizon(config, step)) for step in steps]


def allow_by_hand(case: Schedule) -> list[float]:
    """Return the same by going through all iterations before: h grows by h_min until h_max."""
    low, high, by_hand, length, steps = case
    found: list[float] = []
    for step in steps:
        turns, place, left = low, 0, length
        for _ in range(step - 1):
            left -= 1
            if left == 0:
                turns, place, left = turns + low if turns + low < high else high, place + 1, length
        found.append(float((by_hand[place] if place < len(by_hand) else by_hand[-1]) if by_hand else turns))
    return found


def draw_kept(rng: Rng) -> Kept:
    """Return a buffer of 1 to 20 episodes of up to three sites, and up to a dozen new episodes."""
    sites = [int(k) for k in rng.integers(0, 3, int(rng.integers(1, 21)))]
    fresh = [(int(rng.integers(0, 3)), bool(rng.random() < 0.6), int(rng.integers(0, 4))) for _ in range(12)]
    return sites, fresh


def weigh(module: ModuleType, case: Kept) -> list[float]:
    """Return the chances of both samplers of TTI's code."""
    episodes = [episode_of([turn_of()], task=Task(id="t", environment=f"e{k}", seed=0)) for k in case[0]]
    found: list[float] = []
    for sampler in ("recent", "balanced"):
        weights: list[float] = module.weigh(episodes, sampler)
        found += [weight / sum(weights) for weight in weights]
    return found


def weigh_by_hand(case: Kept) -> list[float]:
    """Return the same: the k-th has k/(1 + … + n); beside it, one over how many its site has, scaled to 1."""
    sites = case[0]
    whole = sum(range(1, len(sites) + 1))
    ages = [k / whole for k in range(1, len(sites) + 1)]
    rare = [1 / sum(other == site for other in sites) for site in sites]
    return [*ages, *((age + own / sum(rare)) / 2 for age, own in zip(ages, rare, strict=True))]


def accept(module: ModuleType, case: Kept) -> list[float]:
    """Return of each new episode whether TTI's code keeps it."""
    episodes = [
        (group, episode_of([turn_of(), turn_of((2,), ENDS[end])], float(won), is_success=won, seed=place))
        for place, (group, won, end) in enumerate(case[1])
    ]
    groups = [
        Group(task=own[0].task, trajectories=own)
        for number in range(3)
        if (own := tuple(t for group, t in episodes if group == number))
    ]
    kept = module.accept(groups, ("N/A",))
    assert all(group.trajectories for group in kept), "no group is empty"
    seeds = {t.seed for t in flatten_scored(kept)}
    return [float(place in seeds) for place in range(len(episodes))]


def accept_by_hand(case: Kept) -> list[float]:
    """Return the same: what won and ends with an answer, the first way or the last."""
    return [float(won and end in (0, 3)) for _, won, end in case[1]]


FORMULAS: tuple[Formula, ...] = (
    Formula("tti.horizon", "methods.horizon.tti", ("horizon",), draw_schedule, allow, allow_by_hand),
    Formula("tti.weights", "methods.horizon.tti", ("weigh",), draw_kept, weigh, weigh_by_hand),
    Formula("tti.accepted", "methods.horizon.tti", ("accept",), draw_kept, accept, accept_by_hand),
)
