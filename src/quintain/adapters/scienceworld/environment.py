"""ScienceWorld (arXiv 2203.07540; package scienceworld): 30 tasks of elementary science in a simulated house.

World, texts, scores and gold paths are the package's own, in a Java machine that is borrowed (`scienceworld_jvm`).
Train has the package's training variations of a task, eval its development or test variations. The score is the
package's; valid actions are listed when somebody asks, never in a step.
"""

from typing import Any, ClassVar, Literal, Self, cast

from quintain.adapters.scienceworld.jvm import (
    FEATURE,
    Machine,
    MachineFault,
    borrow,
    close_idle,
    give_back,
)
from quintain.environments.extras import extra_module, extra_program
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, StepResult, Task

LONGEST_COMMAND = 200
FULL = 100
"""The package's score of a task that is done."""
NO_LIMIT = 1 << 30
SIMPLIFICATIONS = (
    "easy",
    "teleportAction",
    "openDoors",
    "openContainers",
    "selfWateringFlowerPots",
    "noElectricalAction",
)


class ScienceWorld(Environment):
    """Do the task in the simulated house. Write one command per turn, such as: look around, open cupboard, pick up
    thermometer, go to kitchen, move metal pot to stove, activate stove, focus on substance in metal pot, wait1."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning", "reasoning", "memory"})
    return_range = (-1.0, 1.0)
    parallel = 4

    def __new__(cls, task: str = "find-living-thing", *, listed: bool = False, **_options: Any) -> Self:
        """Return an environment whose valid actions are listed if `listed`."""
        del task
        return super().__new__(cast("type[Self]", Listed) if cls is ScienceWorld and listed else cls)

    def __init__(  # pyright: ignore[reportInconsistentConstructor]
        self,
        task: str = "find-living-thing",
        *,
        listed: bool = False,
        simplifications: str = "easy",
        held_out: Literal["dev", "test"] = "dev",
        reward: Literal["score", "binary"] = "score",
        max_turns: int = 100,
    ) -> None:
        """Prepare `task`, such as ``boil``; Java is started, or borrowed, when the first episode begins.

        `simplifications` are the package's, with plus signs between them, or "" for none. `held_out` says which
        variations eval has. `reward` is the change of the package's score in a turn, a hundredth of it, or 1 for a task
        that is done and 0 for all else. With `listed` the valid actions can be asked for: hundreds, at 10 steps' cost.

        Raises:
            MissingExtra: scienceworld or Java is not installed.
            UsageError: there is no such task, or an option does not fit.
        """
        package = extra_module(
            "scienceworld.utils", package="scienceworld", extra="scienceworld", feature=FEATURE
        )
        extra_program(("java",), package="default-jre-headless", feature=FEATURE)
        tasks = sorted(map(package.infer_task, package.NAME2ID))
        if task not in tasks:
            raise UsageError(f"task of scienceworld: got {task!r}; {suggestion(task, tasks)}")
        chosen = [each for each in simplifications.split("+") if each]
        for each in chosen:
            if each not in SIMPLIFICATIONS:
                raise UsageError(
                    f"simplification of scienceworld: got {each!r}; {suggestion(each, SIMPLIFICATIONS)}"
                )
        if held_out not in ("dev", "test") or reward not in ("score", "binary") or max_turns < 1:
            raise UsageError(
                f"scienceworld: got held_out={held_out!r}, reward={reward!r}, max_turns={max_turns}; choose 'dev' or "
                "'test', 'score' or 'binary', and 1 or more"
            )
        self.name, self.max_turns = f"scienceworld/{task}", max_turns
        self.return_range = (-1.0, 1.0) if reward == "score" else (0.0, 1.0)
        self.is_listed = listed
        self._task, self._simplifications, self._held_out, self._reward = (
            task,
            ",".join(chosen),
            held_out,
            reward,
        )
        self._machine: Machine | None = None
        self._variation = 0
        self._taken: list[str] = []

    def reset(self, task: Task) -> str:
        """Load the variation of the task's seed; the first observation starts with what is to be done."""
        variations = self._variations("train" if task.split == "train" else self._held_out)
        self._variation = variations[(task.seed >> 1) % len(variations)]
        seen = self._load()
        machine = self._ready()
        return f"{machine.ask(machine.env.get_task_description)}\n{seen}"

    def step(self, action: Action) -> StepResult:
        """Give the command to the simulator."""
        command = " ".join(
            "".join(sign if sign.isprintable() else " " for sign in action.text[:LONGEST_COMMAND]).split()
        )
        command = command.encode("ascii", "replace").decode()
        if action.error is not None or not command:
            return StepResult(observation=f"Error: {action.error or 'write a command'}", is_valid=False)
        machine = self._ready()
        seen, change, is_done, facts = machine.ask(machine.env.step, command)
        self._taken.append(command)
        has_won = int(facts["score"]) >= FULL
        return StepResult(
            observation=_clean(seen),
            # A negative score, at which the package ends the episode, counts as -1.
            reward=float(has_won) if self._reward == "binary" else max(-1.0, float(change) / FULL),
            is_terminated=bool(is_done),
            # Said in every turn: an episode that is cut has a score, too, and is no success.
            is_success=has_won,
        )

    def close(self) -> None:
        """Give the Java machine back."""
        machine, self._machine = self._machine, None
        if machine is not None:
            give_back(machine)

    def kill(self) -> None:
        """End the Java machine, also in the middle of a call."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.close()
            give_back(machine)

    def drain(self) -> None:
        """Close the Java machines of this process that wait for a borrower."""
        close_idle()

    def expert_action(self) -> Action:
        """Return the next action of the package's gold path.

        Raises:
            EnvironmentFault: the episode has left the gold path, or is at its end.
        """
        gold = self._gold()
        done = len(self._taken)
        if done >= len(gold) or self._taken != list(gold[:done]):
            raise EnvironmentFault(
                f"expert of {self.name} has no action: got an episode that is not on the gold path; "
                "skip this episode's demonstration"
            )
        return Action(text=gold[done])

    def valid_actions(self) -> tuple[str, ...]:
        """Return the actions that the package lists as valid here, sorted."""
        machine = self._ready()
        return tuple(sorted(set(machine.ask(machine.valid_actions))))

    def _variations(self, part: str) -> tuple[int, ...]:
        """Return the numbers of the variations in `part`: train, dev or test."""
        key = (self._task, part)
        if key not in _known_variations:
            machine = self._ready()
            machine.ask(machine.env.load, self._task, 0, self._simplifications)
            found = machine.ask(getattr(machine.env, f"get_variations_{part}"))
            _known_variations[key] = tuple(int(each) for each in found)
        return _known_variations[key]

    def _gold(self) -> tuple[str, ...]:
        """Return the gold path of the variation, which the package walks itself to make: once for each."""
        key = (self._task, self._variation, self._simplifications)
        if key not in _gold_paths:
            machine, taken = self._ready(), list(self._taken)
            machine.ask(machine.env.load, *key, True)
            path = machine.ask(machine.env.get_gold_action_sequence)
            _gold_paths[key] = tuple(str(each) for each in path)
            self._load()
            for command in taken:
                self.step(Action(text=command))
        return _gold_paths[key]

    def _load(self) -> str:
        """Start the variation and return what is seen."""
        machine = self._ready()
        self._taken = []
        machine.ask(machine.env.load, self._task, self._variation, self._simplifications)
        # Turns are counted by whoever plays.
        machine.env.envStepLimit = NO_LIMIT
        seen, _ = machine.ask(machine.env.reset)
        return _clean(seen)

    def _ready(self) -> Machine:
        """Return a machine that is alive; one that ended in the middle of an episode is a fault."""
        if self._machine is not None and not self._machine.is_alive:
            self.close()
            raise MachineFault(
                "ScienceWorld's simulator: got the end of its process; start the episode again"
            )
        if self._machine is None:
            self._machine = borrow()
        return self._machine


class Listed(ScienceWorld):
    """A task whose valid actions are listed."""

    is_variant = True

    def legal_actions(self) -> tuple[str, ...]:
        """Return what the package lists as valid here."""
        return self.valid_actions()


_gold_paths: dict[tuple[str, int, str], tuple[str, ...]] = {}
_known_variations: dict[tuple[str, str], tuple[int, ...]] = {}


def _clean(seen: str) -> str:
    """Return the simulator's text with blanks for tabs and no empty lines."""
    lines = (line.expandtabs(1).rstrip() for line in seen.splitlines())
    return "\n".join(line for line in lines if line)
