"""What methods of rounds imitate of their episodes, each beside a plain second version over lists of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from quintain.benchmarks.formulas.formula import Formula, Rng
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn


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


FORMULAS: tuple[Formula, ...] = (
    Formula(name="rounds.improve_steps", module="quintain.methods.selftraining.rest",
            functions=("improve_steps",), draw=draw_lived, ours=improved, reference=worth_more),
)  # fmt: skip
