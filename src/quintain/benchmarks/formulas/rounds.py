"""What methods of rounds imitate of their episodes, each beside a plain second version over lists of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import torch

from quintain.benchmarks.formulas.formula import Formula, Rng
from quintain.benchmarks.labs.exact import exact_gradient
from quintain.benchmarks.labs.tables import a16
from quintain.benchmarks.labs.tabular import cosine, packed
from quintain.data.pipeline import as_example, example_samples
from quintain.losses.imitation import imitation
from quintain.training.update import Update
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn, scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """An episode in plain numbers."""

    task: int
    value: float
    is_success: bool
    num_turns: int


def draw_lived(rng: Rng) -> list[Lived]:
    """Return 1 to 30 episodes of up to four tasks; values are on a grid, so that thresholds are met exactly."""
    found: list[Lived] = []
    for _ in range(int(rng.integers(1, 31))):
        found.append(
            Lived(
                task=int(rng.integers(0, 4)),
                value=int(rng.integers(-2, 5)) / 4,
                is_success=bool(rng.random() < 0.6),
                num_turns=int(rng.integers(1, 12)),
            )
        )
    return found


def recorded(case: Sequence[Lived]) -> list[Group]:
    """Return the episodes as they are recorded: a group for each task, in order; `seed` is the place in `case`."""
    turn = Turn(
        observation=(),
        prompt_ids=(1,),
        completion=Completion(token_ids=(2,), logprobs=(-0.5,), stop="stop"),
        action=Action(),
    )
    groups: list[Group] = []
    for number in sorted({lived.task for lived in case}):
        task = Task(id=f"t{number}", environment="e", seed=number)
        members = [(place, lived) for place, lived in enumerate(case) if lived.task == number]
        groups.append(
            Group(
                task=task,
                trajectories=tuple(
                    Trajectory(
                        task=task,
                        turns=(turn,) * lived.num_turns,
                        outcome=Score(value=lived.value, is_success=lived.is_success),
                        stop=Stop.TERMINATED,
                        seed=place,
                        group=task.id,
                        index=index,
                    )
                    for index, (place, lived) in enumerate(members)
                ),
            )
        )
    return groups


THRESHOLDS, DECAY = (-0.25, 0.25, 0.75), 0.5


def improved(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return for each improve step its rate, and for each episode whether it is imitated."""
    found: list[float] = []
    for step in module.improve_steps(THRESHOLDS, DECAY):
        kept = {example.trajectory.seed for example in step.build(recorded(case)).examples}
        found += [step.rate, *(float(place in kept) for place in range(len(case)))]
    return found


def worth_more(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand."""
    found: list[float] = []
    for rate, threshold in zip((1.0, 0.5, 0.25), THRESHOLDS, strict=True):
        found += [rate, *(1.0 if lived.value > threshold else 0.0 for lived in case)]
    return found


def shortened(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return for each episode whether it is accepted, and whether it is among the shortest fifth of its task."""
    examples = [as_example(t) for group in recorded(case) for t in group.trajectories]
    accepted = module.accepted().apply(examples)
    kept = module.shortest(0.2).apply(accepted)
    found: list[float] = []
    for part in (accepted, kept):
        places = {example.trajectory.seed for example in part}
        found += [float(place in places) for place in range(len(case))]
    return found


def fifth(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand: the quantile lies a fifth of the way along the sorted lengths."""
    paid = [lived.value > 0 for lived in case]
    kept: list[bool] = []
    for lived, is_paid in zip(case, paid, strict=True):
        own = sorted(o.num_turns for o, p in zip(case, paid, strict=True) if p and o.task == lived.task)
        place = (len(own) - 1) / 5
        low = int(place)
        cut = own[low] + (place - low) * (own[min(low + 1, len(own) - 1)] - own[low]) if own else 0.0
        kept.append(is_paid and lived.num_turns <= cut + 1e-9)
    return [float(flag) for flag in (*paid, *kept)]


def decayed(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return what the last turn of each episode is paid where at most 12 turns are allowed, and the sum of it."""
    paid = [t for group in module.decayed(12)(recorded(case)) for t in group.trajectories]
    by_place = {t.seed: t for t in paid}
    return [
        number
        for place in range(len(case))
        for number in (by_place[place].turns[-1].reward, by_place[place].outcome.value)
    ]


def falling(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand: twelfths that are left over, and -1 for a failure."""
    return [
        value for lived in case for value in [(12 - lived.num_turns) / 12 if lived.is_success else -1.0] * 2
    ]


def evolved(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return for each episode the weight of its tokens, 0 where it is not imitated, in both forms of the method."""
    found: list[float] = []
    for name in ("filtered", "reward"):
        line = module.evolving(module.read_thresholds("0.75,e=-0.25"), name)
        weights = {
            example.trajectory.seed: 1.0 if example.weights is None else float(example.weights[-1][0])
            for example in line(recorded(case)).examples
        }
        found += [weights.get(place, 0.0) for place in range(len(case))]
    return found


def first_above(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand."""
    plain: list[float] = []
    weighted: list[float] = []
    met = set[int]()
    for lived in case:
        is_kept = lived.value > -0.25 and lived.task not in met
        if is_kept:
            met.add(lived.task)
        plain.append(float(is_kept))
        weighted.append(lived.value if is_kept and lived.value > 0 else 0.0)
    return [*plain, *weighted]


def draw_loops(rng: Rng) -> tuple[list[Lived], int, int]:
    """Return episodes, the number of a loop and the optimizer steps of the first."""
    return draw_lived(rng), int(rng.integers(1, 12)), int(rng.integers(1, 90))


def looped(module: ModuleType, case: tuple[list[Lived], int, int]) -> list[float]:
    """Return the optimizer steps of a loop, and for each episode whether it is right."""
    episodes, number, first = case
    examples = [as_example(t) for group in recorded(episodes) for t in group.trajectories]
    kept = {example.trajectory.seed for example in module.right().apply(examples)}
    return [
        float(module.updates(number, first, 1.2)),
        *(float(place in kept) for place in range(len(episodes))),
    ]


def grown(case: tuple[list[Lived], int, int]) -> list[float]:
    """Return the same by hand: a fifth more steps in each loop."""
    episodes, number, first = case
    steps = float(first)
    for _ in range(number - 1):
        steps *= 1.2
    return [float(int(steps + 1e-9)), *(float(lived.is_success) for lived in episodes)]


def as_policy_gradient(module: ModuleType) -> float:
    """Return the cosine of STaR's gradient, that of what is right, with the exact one of being right, on 16 arms."""
    policy = a16(0, good=0.2)
    samples = [as_example(t) for t in scored(policy.sample(size=4_000, seed=0))]
    kept = module.right().apply(samples)
    batch = packed(example_samples(kept), Update(loss=imitation()))
    (found,) = torch.autograd.grad(-imitation()(policy(batch), batch).loss, policy.theta)
    return cosine(found, exact_gradient(policy.world, policy.theta, outcome="success")[1])


FORMULAS: tuple[Formula, ...] = (
    Formula(name="rounds.improve_steps", module="quintain.methods.selftraining.rest",
            functions=("improve_steps",), draw=draw_lived, ours=improved, reference=worth_more),
    Formula(name="rounds.shortest", module="quintain.methods.imitation.pae",
            functions=("accepted", "shortest"), draw=draw_lived, ours=shortened, reference=fifth),
    Formula(name="rounds.decayed", module="quintain.methods.imitation.world_of_bits",
            functions=("decayed",), draw=draw_lived, ours=decayed, reference=falling),
    Formula(name="rounds.evolving", module="quintain.methods.selftraining.agent_evol",
            functions=("evolving", "read_thresholds"), draw=draw_lived, ours=evolved, reference=first_above),
    Formula(name="rounds.star", module="quintain.methods.selftraining.star", functions=("updates", "right"),
            draw=draw_loops, ours=looped, reference=grown, exact=as_policy_gradient),
)  # fmt: skip
