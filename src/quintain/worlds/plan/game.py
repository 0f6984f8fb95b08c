"""Blocks to stack and packages to deliver: classical planning, a step at a time or as whole plans.

Families it stands for: PDDL planning (PlanBench, the IPC's domains). A plan can be checked before it is run, and a
check says which step fails and why. A check changes nothing, and an action without effect says "Nothing happens.".
"""

import random
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import is_eval, split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.plan.domains import (
    CITIES,
    MAX_BLOCKS,
    Case,
    CaseShape,
    Domain,
    draw_case,
    problem_of,
)
from quintain.worlds.plan.drawn import (
    HARDEST,
    LONGEST,
    MAX_PLACES,
    MAX_THINGS,
    NUM_PLACES,
    NUM_THINGS,
    SHORTEST,
    Evolution,
    draw_scene,
    draw_task,
    evolve_task,
    of_blocks,
    task_key,
)
from quintain.worlds.plan.strips import Puzzle, read_puzzle

HIDDEN = (" clear", " loose")
"""Ends of facts that the other facts imply, or that the rules tell: they are not shown."""
MAX_DRAWS = 1000
"""Times that a task is looked for in a domain."""
MAX_STEPS = 100
"""Steps of a plan that are read."""
RULES = {
    ("blocks", False): "",
    ("blocks", True): " What was stacked cannot be unstacked.",
    ("logistics", False): "",
    ("logistics", True): " A move takes 1 fuel.",
}
RULED = ("blocks", "logistics")
"""Domains whose rules the instruction tells."""
TOLD = "Reach the goal. Act: an action, as the rules name it, or wait."
"""What is told of a domain whose rules stand in the task."""
State = tuple[Case | Puzzle, int, int, int]


def num_steps(action: Action) -> int:
    """Return how many steps of the plan `action` takes: the duration of a macro-action; a check takes none."""
    words = action.text.strip().lower()
    if words.startswith("check "):
        return 0
    return len(_steps(words.removeprefix("run ")))


class Planning(Environment):
    """Reach the goal.

    Act: an action, "run ACTION; ACTION; ..." to take several, "check ACTION; ACTION; ..." to see whether that would
    reach the goal, or wait. Blocks: pick up A, put down A, stack A on B, unstack A from B. Packages: load P into
    VEHICLE, unload P from VEHICLE, drive TRUCK to PLACE, fly plane to PLACE; x1 is the airport of city x.
    """

    name = "plan"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "reasoning", "self-improvement"})

    def __init__(
        self,
        *,
        domain: str = "blocks",
        blocks: int = 4,
        packages: int = 2,
        cities: int = 2,
        form: Literal["steps", "plan"] = "steps",
        attempts: int = 4,
        irreversible: bool = False,
        reward: Literal["sparse", "distance", "facts"] = "sparse",
        evolved: Evolution = "none",
        things: int = NUM_THINGS,
        places: int = NUM_PLACES,
        length: int = 0,
        max_turns: int = 0,
        noise: int = 0,
    ) -> None:
        """Draw problems of `blocks` blocks, or of `packages` packages in `cities` cities of two places.

        The domain is blocks, logistics, or drawn: then each task has a domain of its own, whose rules it tells; or a
        JSON file that describes one. Tasks of all but logistics are made easy or hard as `evolved` says, mixed as
        chance says.
        A drawn domain has `things` in `places`. The shortest plan of every problem has `length` steps; 0: any number.
        There are `max_turns`; 0: half as many again as the longest plan has.

        With the `form` "plan" only `run` and `check` are taken, in at most `attempts` turns. Irreversible blocks
        stay where they were stacked, irreversible vehicles have no more fuel than a shortest plan takes.
        `reward=distance` pays for getting closer, measured exactly, as a share of the first distance;
        `reward=facts` pays the change in the share of goal facts that hold beyond those of the start. `noise`
        sentences that mean nothing follow every observation.

        Raises:
            UsageError: there are no such problems, or too many states.
        """
        if not 2 <= blocks <= MAX_BLOCKS or not 1 <= packages <= 3 or not 2 <= cities <= len(CITIES):
            raise UsageError(
                f"plan: got blocks={blocks}, packages={packages}, cities={cities}; give 2 to {MAX_BLOCKS} "
                f"blocks, 1 to 3 packages and 2 to {len(CITIES)} cities"
            )
        if attempts < 1 or min(noise, length, max_turns) < 0 or packages * cities > 6:
            raise UsageError(
                f"plan: got attempts={attempts}, noise={noise}, length={length}, max_turns={max_turns}, "
                f"packages={packages}, cities={cities}; give at least 1 attempt, no negative number, and packages "
                "times cities of at most 6"
            )
        known = domain == "drawn" or domain.endswith(".json")
        if evolved != "none" and (irreversible or not (known or domain == "blocks")):
            raise UsageError(
                f"plan: got evolved={evolved} with domain={domain}, irreversible={irreversible}; give domain=drawn or "
                "blocks that can be unstacked, or leave it out"
            )
        if not 1 <= things <= MAX_THINGS or not 2 <= places <= MAX_PLACES:
            raise UsageError(
                f"plan: got things={things}, places={places}; give 1 to {MAX_THINGS} things and 2 to "
                f"{MAX_PLACES} places"
            )
        self._domain = domain
        self._sizes, self._length = (things, places), length
        self._evolved: Evolution = evolved
        self._scene = read_puzzle(Path(domain)) if domain.endswith(".json") else None
        self._shape = CaseShape(
            "blocks" if known else check_domain(domain), blocks, packages, cities, irreversible
        )
        self._is_whole, self._noise, self._reward = form == "plan", noise, reward
        longest = HARDEST if known else 4 * blocks if domain == "blocks" else 10 * packages + 2
        self.max_turns = attempts if self._is_whole else max_turns or longest * 3 // 2
        self._case: Case | Puzzle = draw_case(self._shape, random.Random(0))
        self._problem = problem_of(self._case)
        self._state, self._seed, self._turn = self._problem.start, 0, 0

    def reset(self, task: Task) -> str:
        """Draw the problem of the task."""
        self._case = self._draw_problem(task)
        self._problem = problem_of(self._case)
        self._state, self._seed, self._turn = self._problem.start, task.seed, 0
        if isinstance(self._case, Puzzle):
            goal = ", ".join(map(self._case.domain.say, self._case.goal))
            rules = f"{self._case.domain.told()} {', '.join(self._case.fixed)}."
            return f"Goal: {goal}. {rules} {self._view()}"
        rule = RULES[self._case.domain, self._case.is_irreversible]
        return f"Goal: {', '.join(self._case.goal)}.{rule} {self._view()}"

    def _draw_problem(self, task: Task) -> Case | Puzzle:
        """Return the problem of `task`; no drawn domain, and no problem of another one, is in both splits."""
        if self._domain in RULED:
            return split_draw(task, self._draw_ruled)
        for _ in range(MAX_DRAWS):
            scene = self._scene or draw_scene(task.rng, *self._sizes)
            drawn = draw_task(scene, task.rng)
            made = drawn and evolve_task(drawn, self._evolved, task.rng)
            if (
                made
                and self._is_long(made)
                and is_eval(made if self._scene else made.domain) == (task.split == "eval")
            ):
                return made
        raise UsageError(
            f"plan: got domain={self._domain} with evolved={self._evolved}, length={self._length}, of which "
            f"{MAX_DRAWS} draws gave no task of {SHORTEST} to {LONGEST} steps; give it more things or "
            "actions, or leave these out"
        )

    def _draw_ruled(self, rng: random.Random) -> Case:
        """Return a problem of blocks or of packages."""
        for _ in range(MAX_DRAWS):
            case = draw_case(self._shape, rng)
            if self._evolved != "none":
                found = evolve_task(of_blocks(case.things, case.start, case.goal), self._evolved, rng)
                if not found:
                    continue
                case = replace(case, goal=tuple(sorted(map(found.domain.say, found.goal))))
            if self._is_long(case):
                return case
        raise UsageError(
            f"plan: got domain={self._domain} with evolved={self._evolved}, length={self._length}, of which "
            f"{MAX_DRAWS} draws gave no task; give it more blocks, or leave them out"
        )

    def _is_long(self, case: Case | Puzzle) -> bool:
        """Whether the shortest plan of `case` has as many steps as are asked for."""
        if not self._length:
            return True
        problem = problem_of(case)
        return problem.distance(problem.start) == self._length

    def instructions(self) -> str:
        """Return the instruction for the agent."""
        return super().instructions() if self._domain in RULED else TOLD

    def task_key(self) -> str:
        """Return what is the same for problems that differ in names alone."""
        return task_key(self._case) if isinstance(self._case, Puzzle) else repr(self._case)

    def step(self, action: Action) -> StepResult:
        """Take an action, run a plan as far as it goes, or check one."""
        words = " ".join(action.text.lower().split())
        self._turn += 1
        if action.error is not None:
            return self._refuse(f"Error: {action.error}")
        if words == ("run wait" if self._is_whole else "wait"):
            return StepResult(observation=self._view(), is_success=False)
        if words.startswith("check "):
            said, _ = self._try(_steps(words.removeprefix("check ")))
            return StepResult(observation=f"{said} {self._view()}", is_success=False)
        is_run = words.startswith("run ")
        if not is_run and (self._is_whole or self._problem.after(self._state, words) is None):
            return self._refuse("Nothing happens.")
        said, state = self._try(_steps(words.removeprefix("run ")))
        if state == self._state:
            return self._refuse(said)
        is_solved = self._problem.is_solved(state)
        is_sparse = self._reward == "sparse"
        before = 0.0 if is_sparse else self.progress()
        self._state = state
        gain = float(is_solved) if is_sparse else self.progress() - before
        is_told = is_run and not is_solved
        return StepResult(
            observation="Done." if is_solved else f"{said} {self._view()}" if is_told else self._view(),
            reward=gain,
            is_terminated=is_solved,
            is_success=is_solved,
        )

    def distance(self) -> int | None:
        """Return the least number of steps to the goal; None in a dead end."""
        return self._problem.distance(self._state)

    def progress(self) -> float:
        """Return how far the goal is reached, from 0 to 1: by distance, or by facts where facts are paid for."""
        if self._reward == "facts":
            goal, start = self._problem.goal, self._problem.start
            first = (start & goal).bit_count()
            return max(0.0, ((self._state & goal).bit_count() - first) / (goal.bit_count() - first))
        first, left = self._problem.distance(self._problem.start), self.distance()
        assert first
        return 0.0 if left is None else 1 - min(left, first) / first

    def legal_actions(self) -> tuple[str, ...]:
        """Return the single actions that can be taken here, and `wait`; with whole plans, as plans of one step."""
        found = self._problem.applicable(self._state)
        return tuple(f"run {words}" for words in found or ["wait"]) if self._is_whole else (*found, "wait")

    def expert_action(self) -> Action:
        """Return the first step of a shortest plan, or all of it; `wait` in a dead end."""
        plan = self._problem.plan(self._state)
        if self._is_whole:
            return Action(text=f"run {'; '.join(plan or ['wait'])}")
        return Action(text=plan[0] if plan else "wait")

    def thought(self) -> str:
        """Return the steps that are left, in order; nothing in a dead end."""
        plan = self._problem.plan(self._state)
        return f"{len(plan)} left: {'; '.join(plan)}" if plan else ""

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return an action that does not come closer to the goal, where there is one."""
        legal, left = self.legal_actions(), self.distance()
        reached = {words: self._problem.after(self._state, words.removeprefix("run ")) for words in legal}
        astray = [
            words
            for words, state in reached.items()
            if state is not None and (left is None or self._problem.distance(state) != left - 1)
        ]
        return Action(text=rng.choice(astray or legal))

    def snapshot(self) -> State:
        """Return the problem and its state."""
        return self._case, self._state, self._seed, self._turn

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._case, self._state, self._seed, self._turn = state
        self._problem = problem_of(self._case)

    def state_key(self) -> str:
        """Return the facts that hold."""
        return ", ".join(sorted(self._problem.holding(self._state)))

    def _refuse(self, said: str) -> StepResult:
        """Return the answer to an action that changed nothing."""
        return StepResult(observation=f"{said} {self._view()}", is_success=False, is_valid=False)

    def _try(self, steps: list[str]) -> tuple[str, int]:
        """Return what comes of `steps`, in words, and the state that they lead to; they end where one fails."""
        state, problem = self._state, self._problem
        for number, words in enumerate(steps, start=1):
            after = problem.after(state, words)
            if after is None:
                missing = problem.missing(state, words)
                why = "is no action" if missing is None else f"needs {', '.join(missing)}"
                return f"Step {number} fails: {words[:60] or 'nothing'} {why}.", state
            state = after
            if problem.is_solved(state):
                return f"Step {number} reaches the goal.", state
        lacking = problem.holding(problem.goal & ~state)
        return f"The plan works, without {', '.join(lacking)}.", state

    def _view(self) -> str:
        """Return the facts that hold and cannot be told from the others, and noise."""
        facts = [fact for fact in self._problem.holding(self._state) if not fact.endswith(HIDDEN)]
        return f"{', '.join(sorted(facts))}{chatter(self._noise, self._seed, self._turn)}"


def check_domain(domain: str) -> Domain:
    """Return `domain`, which is one of `RULED`.

    Raises:
        UsageError: it is not.
    """
    if domain == "blocks" or domain == "logistics":
        return domain
    raise UsageError(
        f"plan: got domain={domain}; give blocks, logistics, drawn, or a file that ends in .json"
    )


def _steps(words: str) -> list[str]:
    """Return the steps of a plan: ``a; b; c``."""
    return [step.strip() for step in words.split(";")][:MAX_STEPS]
