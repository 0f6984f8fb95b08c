"""What an environment is: reset, step (or tools as methods), close, and small optional capabilities.

A user writes a subclass of `Environment`. Everyone else talks to it through `begin` and `advance`, which
check what comes back: a wrong type or a NaN is an `EnvironmentFault`, never a reward.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from quintain.environments.sizes import MAX_PARTS, cut_parts, cut_text
from quintain.environments.tools import call_tool, tool_specs
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import (
    ALONE,
    NOTHING,
    UNKNOWN_TOOL,
    UNNAMED,
    Action,
    CallResult,
    Content,
    Image,
    Observation,
    Split,
    StepResult,
    Task,
    Text,
    ToolCall,
    ToolCause,
    ToolError,
    ToolSpec,
    Unnamed,
    derive_seed,
)
from quintain.types.plain import MAX_AMOUNT, as_number, as_truth

SEED_BITS = 52
CLAIMS = ("is_terminated", "is_truncated", "is_valid", "is_success")
"""What a result says is true or not."""
NOT_RUN = "not run: the call before it ended the episode"
"""The result of a call behind one that ended the episode."""


class Environment:
    """A task an agent acts in: override `reset`, and either write tools as methods or override `step`.

    The class docstring is the instruction the agent is given. Options are keyword arguments of `__init__`.
    """

    name: str = ""
    """Name in the catalogue; the class name in lower case when empty."""
    tags: ClassVar[frozenset[str]] = frozenset()
    max_turns: int = 20
    """Turns after which the episode ends (`Stop.MAX_TURNS`): the task's own limit, with nothing to win after it."""
    return_range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest total reward of an episode."""
    evaluation_only: bool = False
    """Whether its tasks are there to measure agents: training on them is refused."""
    is_variant: ClassVar[bool] = False
    """Whether this very class only adds to what the one above it can do: the agent is told what that one says."""
    later_words: tuple[str, ...] = ()
    """What later training tasks say and the first do not, so that a tiny tokenizer that is made for it knows it."""
    parallel: int = 0
    """Instances that live, and step, at once where a step waits for another process; 0: it computes by itself."""
    _ending: StepResult | None = None
    _rewards: tuple[float, Mapping[str, float]] = (0.0, NOTHING)
    _cause: ToolCause | None = None
    _chosen: Mapping[str, Action] = NOTHING

    def reset(self, task: Task) -> Observation:
        """Start the episode that `task` names and return the first observation.

        Draw all randomness from `task.rng`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define reset(self, task)")

    def step(self, action: Action) -> StepResult:
        """Carry out `action`; the default runs its tool calls in order, until one ends the episode.

        Each call has a result of its own; those behind the one that ended the episode say that they were not run.
        """
        if action.error is not None:
            return StepResult(observation=f"Error: {action.error}", is_valid=False)
        if not action.tool_calls:
            names = ", ".join(spec.name for spec in self.tools()) or "none"
            return StepResult(observation=f"Error: no tool was called; tools: {names}.", is_valid=False)
        replies: list[str] = []
        errors: list[ToolError] = []
        is_valid = True
        for call in action.tool_calls:
            if self._ending is not None:
                replies.append(NOT_RUN)
                continue
            reply = call_tool(self, call)
            replies.append(reply.text)
            is_valid = is_valid and not reply.is_error
            cause, self._cause = "invalid_call" if reply.is_error else self._cause, None
            if cause is not None:
                tool = UNKNOWN_TOOL if reply.kind == "unknown_tool" else call.name
                errors.append(ToolError(tool=tool, cause=cause))
        return replace(self._answer(as_results(replies), is_valid), tool_errors=tuple(errors))

    def close(self) -> None:
        """Free what the environment holds; called once, also after a failure."""

    def instructions(self) -> str:
        """Return the instruction for the agent: the docstring of the class, unless that is a variant."""
        speaker = next(kind for kind in type(self).__mro__ if not vars(kind).get("is_variant"))
        return " ".join((speaker.__doc__ or "").split())

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools, read from the methods marked with `quintain.tool`."""
        return tool_specs(type(self))

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`; seeds of the two splits differ in their lowest bit."""
        name = environment_name(self)
        seed = derive_seed(name, split, index) % (1 << SEED_BITS) << 1 | (split == "eval")
        return Task(
            id=f"{name}/{split}/{index}", environment=name, seed=seed, split=split, tags=type(self).tags
        )

    def finish(self, observation: str, *, reward: float, success: bool | None = None) -> str:
        """End the episode from within a tool with `reward`; success is `reward > 0` unless given."""
        is_success = (as_number(reward) or 0.0) > 0 if success is None else success
        self._ending = StepResult(
            observation=observation, reward=reward, is_terminated=True, is_success=is_success
        )
        return observation

    def reward(self, value: float | None = None, **terms: float) -> None:
        """Add to the reward of this turn from within a tool: ``self.reward(0.2)``, or ``self.reward(found=0.2)``.

        `value` is the sum of `terms` unless it is given. A term that comes again in the turn adds up.

        Raises:
            UsageError: a term is no number.
        """
        numbers = {name: as_number(part) for name, part in terms.items()}
        own = None if value is None else as_number(value)
        if value is not None and own is None:
            raise UsageError(f"reward: got {value!r:.60}, which is no number; give one, as in reward(0.2)")
        for name, part in numbers.items():
            if part is None:
                raise UsageError(
                    f"reward: got {name}={terms[name]!r:.60}, which is no number; its name stands first, as in "
                    "reward(found=0.2)"
                )
        parts = {name: part for name, part in numbers.items() if part is not None}
        total, known = self._rewards
        more = {name: known.get(name, 0.0) + part for name, part in parts.items()}
        self._rewards = (total + (sum(parts.values()) if own is None else own), {**known, **more})

    def failure(self, observation: str, *, cause: ToolCause = "tool_error") -> str:
        """Say from within a tool that it failed although the call was right; the failure is counted as `cause`."""
        self._cause = cause
        return observation

    def _answer(self, observation: Observation, is_valid: bool) -> StepResult:
        """Return the result of a turn of tool calls and clear what it collected."""
        ending = self._ending or StepResult(observation=observation)
        total, terms = self._rewards
        self._ending, self._rewards = None, (0.0, NOTHING)
        return replace(
            ending,
            observation=observation,
            reward=ending.reward + total,
            is_valid=is_valid,
            reward_terms=terms,
        )


@runtime_checkable
class Snapshot(Protocol):
    """The state can be saved and brought back, here or in a fresh instance, and continues identically."""

    def snapshot(self) -> Any:
        """Return the state as a value that later steps do not change."""

    def restore(self, state: Any) -> None:
        """Continue from `state`."""


@runtime_checkable
class Reversible(Protocol):
    """The environment says whether what was done could be undone outside a simulation: an order sent, money paid."""

    def can_go_back(self) -> bool:
        """Return whether an agent may go back behind the last action; what it may not is never searched through."""
        ...


@runtime_checkable
class Expert(Protocol):
    """The environment knows a good next action."""

    def expert_action(self) -> Action:
        """Return the next action of the expert from the current state."""
        ...


@runtime_checkable
class Scripted(Protocol):
    """The environment's expert knows all that it will do, without doing it."""

    def script(self) -> Sequence[Action]:
        """Return what the expert does from the current state on; change nothing."""
        ...


@runtime_checkable
class PlaysWell(Protocol):
    """The environment's expert is a teacher with a fault, and it knows how to play well."""

    def best_action(self) -> Action:
        """Return the next action of good play from the current state."""
        ...


@runtime_checkable
class Thinks(Protocol):
    """The environment knows what one would think who takes the expert's next action, so that thoughts are shown."""

    def thought(self) -> str:
        """Return what follows from what was shown so far, and from nothing else; empty where nothing does."""
        ...


@runtime_checkable
class FindsWay(Protocol):
    """The environment knows the way to things, so that a script can act for whoever names them."""

    def things(self) -> tuple[str, ...]:
        """Return the names that can be followed here, at least one, in a fixed order."""
        ...

    def follow(self, thing: str) -> Action | None:
        """Return the next action to walk to `thing`, take or open it; None where nothing is left or it is not here."""
        ...

    def expert_thing(self) -> str:
        """Return the name that the expert would give now."""
        ...


@runtime_checkable
class Advises(Protocol):
    """The environment has an adviser who sees nothing of it but the message that it is sent."""

    def advise(self, message: str) -> str:
        """Return the thing to go for next by `message` alone, a name as `FindsWay` has them, or nothing of use."""
        ...


@runtime_checkable
class PointsAt(Protocol):
    """The environment knows where on a screen the expert would point, edges included."""

    def expert_box(self) -> tuple[float, float, float, float] | None:
        """Return left, top, right and bottom of the box that the expert's next action points into; None for none."""
        ...


@runtime_checkable
class Described(Protocol):
    """The environment can show its screen without the task, and knows how each thing on it is pointed at.

    ``click WORDS`` is an action of it, whose words are what somebody who sees the screen says of a thing on it, such as
    its coordinates.
    """

    def screen(self) -> str:
        """Return what is to be seen now, whatever the task is."""
        ...

    def elements(self) -> Mapping[str, str]:
        """Return the words that point at each thing to be seen now, by what it is called, in a fixed order."""
        ...


@runtime_checkable
class Legal(Protocol):
    """The legal actions can be listed as texts."""

    def legal_actions(self) -> tuple[str, ...]:
        """Return the texts that are accepted as actions in the current state, in a fixed order."""
        ...


@runtime_checkable
class Progressing(Protocol):
    """The environment says how far a task has come."""

    def progress(self) -> float:
        """Return the share of the task that is done now, from 0 to 1; change nothing."""
        ...


@runtime_checkable
class TakesNotes(Protocol):
    """The environment knows what of what it showed is needed later, so that memories are demonstrated."""

    def notes(self) -> str:
        """Return what of all that was shown so far is needed from now on; change nothing."""
        ...


@runtime_checkable
class Hindsight(Protocol):
    """The environment says what an episode did achieve, as what another task asks for (HER, arXiv 1707.01495).

    `reset` takes it as `Task.data`: the same start and the same dynamics, with that goal in the place of the drawn one.
    """

    def achieved(self) -> Mapping[str, Any] | None:
        """Return the data of a task that is solved as things stand; None where nothing that is ever asked for was."""
        ...


@runtime_checkable
class Proposes(Protocol):
    """Who sees a task begin can ask for something else there, whether it can be done or not (PAE, arXiv 2412.13194).

    `reset` takes it as `Task.data`, as with `Hindsight`. What is held out is never proposed.
    """

    def proposal(self, rng: Random) -> Mapping[str, Any]:
        """Return the data of a task that may be asked for now, after `reset`, drawn by what can be seen of it."""
        ...

    def read_proposal(self, text: str) -> Mapping[str, Any] | None:
        """Return the data of the task that `text` asks for, in the words of this environment; None where it is none."""
        ...


@runtime_checkable
class Configurable(Protocol):
    """Its tasks can be laid out for a skill, by configurations that a schema describes (EnvGen, arXiv 2403.12014).

    `reset` takes what `configure` returns as `Task.data`: other starts, the same dynamics. Without it, a task is one of
    the original world.
    """

    def skills(self) -> tuple[str, ...]:
        """Return the names of what is to be learned here, at least one, in a fixed order."""
        ...

    def skill(self) -> str:
        """Return the skill that the task asks for, after `reset`."""
        ...

    def configuration_schema(self) -> Mapping[str, Any]:
        """Return the JSON schema of configurations, whose property ``skill`` says what one is for."""
        ...

    def draw_configuration(self, skill: str, rng: Random) -> Mapping[str, Any]:
        """Return a configuration for `skill`, drawn; it may be impossible."""
        ...

    def configure(self, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data of tasks that `configuration` lays out; a `UsageError` says why there are none."""
        ...


@runtime_checkable
class StateKey(Protocol):
    """States can be recognised across episodes of a task."""

    def state_key(self) -> str:
        """Return a key that is equal exactly when the state is."""
        ...


@runtime_checkable
class Privileged(Protocol):
    """It says what it hides from agents, for critics in training."""

    def privileged(self) -> str:
        """Return what is hidden now."""
        ...


class Ranker(Protocol):
    """Finds texts: BM25, an embedder, a search engine."""

    def best(self, query: str, count: int) -> tuple[int, ...]:
        """Return the numbers of the at most `count` texts that fit `query`, the best first."""
        ...


@runtime_checkable
class Corpus(Protocol):
    """Documents that are to be found, and queries that they answer: what a retriever learns from."""

    def documents(self) -> Sequence[str]:
        """Return the texts that are to be found."""
        ...

    def query(self, document: int, rng: Random) -> str:
        """Return a text that the document of this number answers."""
        ...

    def is_held_out(self, document: int) -> bool:
        """Whether no query of the document of this number may be learned from."""
        ...


@runtime_checkable
class RetrievesTools(Corpus, Protocol):
    """Tools of the environment are found by a retriever, which can be exchanged."""

    ranker: Ranker | None
    """what finds the documents; None: nothing is found"""

    def trusting_action(self) -> Action:
        """Return what one does who takes the first tool that the retriever finds."""
        ...


@runtime_checkable
class CountsTasks(Protocol):
    """The environment knows how many tasks it has."""

    def num_tasks(self, split: Split) -> int | None:
        """Return how many tasks of `split` there are; None: as many as are asked for."""
        ...


@runtime_checkable
class GivesObjects(Protocol):
    """An environment with objects that code finds as variables (CaveAgent's injection)."""

    def objects(self) -> Mapping[str, Any]:
        """Return variables with their values, which have a JSON form: at the start of an episode, and before each turn
        as they are by then, of the same types."""
        ...


@runtime_checkable
class TakesObjects(Protocol):
    """An environment that looks at what code has bound to variables (CaveAgent's retrieval)."""

    def wanted(self) -> tuple[str, ...]:
        """Return the names of the variables it looks at."""
        ...

    def take(self, objects: Mapping[str, Any]) -> StepResult:
        """Take those of them that are bound and have a JSON form, after a turn in which there are any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionRun:
    """What a solution came to when it was run: ``SolutionRun(output="R2 0.71", metric=0.71)``."""

    output: str
    """what it wrote, or what went wrong"""
    metric: float | None = None
    """what was measured, the higher the better, on data that nobody is paid by; None: it does not run"""


@runtime_checkable
class RunsSolutions(Protocol):
    """A solution is a whole text, such as a program, that can be run and measured before one is handed in."""

    def run_solution(self, text: str) -> SolutionRun:
        """Return what the solution `text` comes to; change nothing."""
        ...

    def check_solution(self, text: str) -> str:
        """Return what goes wrong in `text`, the first lines of a solution; empty: nothing does. Change nothing."""
        ...

    def hand_in(self, text: str) -> Action:
        """Return the action that hands the solution `text` in, which ends the episode."""
        ...


@runtime_checkable
class Killable(Protocol):
    """It can be ended in the middle of a call, because it works in a process of its own."""

    def kill(self) -> None:
        """End it now, from any thread; whoever waits for its answer gets an error."""


@runtime_checkable
class AsksGrader(Protocol):
    """Its episodes are graded by a server, which only the end of an episode asks."""

    def probe_grader(self) -> None:
        """Ask it once, in an episode that has begun, and raise what an episode would."""


@runtime_checkable
class Pooled(Protocol):
    """Its instances share programs, such as a browser, that stay open for the next one."""

    def drain(self) -> None:
        """Close those that nobody uses now, also after `close`."""


@runtime_checkable
class Seats(Protocol):
    """Several seats act in turn, each seeing only what is addressed to it.

    An observation is for the seat whose turn it is then. A rollout holds a conversation for each seat, so what one is
    shown reaches another in its actions alone. `StepResult.rewards` pays each seat its own; a result without them pays
    everybody its `reward` (`quintain.data.seats`). Beside `rewards`, `reward` is what the episode as a whole is judged
    by, such as the first seat's; where it is not given, that is what seats were paid on average.
    """

    def seats(self) -> tuple[str, ...]:
        """Return the names of the seats that an agent plays, in order."""
        ...

    def seat(self) -> str:
        """Return the seat that acts next; at the end of the episode, the one that acted last."""
        ...


@runtime_checkable
class SimultaneousSeats(Protocol):
    """Several seats choose at once, none knowing what the others choose; see `Simultaneous` for a base class.

    A rollout samples for all of them at the same time and carries their actions out in one step, which is one of
    `max_turns` turns. Rewards are as in `Seats`. Legal actions, where listed, are those of every seat that acts.
    """

    def seats(self) -> tuple[str, ...]:
        """Return the names of the seats that an agent plays, in order."""
        ...

    def acting(self) -> tuple[str, ...]:
        """Return the seats that act next, at least one, in the order of `seats`."""
        ...

    def observe(self, seat: str) -> Observation:
        """Return what `seat`, which acts next, is shown: all that it did not know when it acted last."""
        ...

    def step_all(self, actions: Mapping[str, Action]) -> StepResult:
        """Carry out `actions`, one for each seat in `acting`; the observation counts at the end of the episode only."""
        ...


class Simultaneous(Environment):
    """An environment whose seats choose at once: override `reset`, `seats`, `observe` and `step_all`.

    All seats act in every step unless `acting` is overridden, too. Whoever plays with one action at a time (a check, a
    baseline, a person) asks one seat after another: `step` keeps their actions until the last one has chosen.
    """

    def seats(self) -> tuple[str, ...]:
        """Return the names of the seats that an agent plays, in order."""
        raise NotImplementedError(f"{type(self).__name__} must define seats(self)")

    def acting(self) -> tuple[str, ...]:
        """Return the seats that act next: all."""
        return self.seats()

    def observe(self, seat: str) -> Observation:
        """Return what `seat`, which acts next, is shown."""
        raise NotImplementedError(f"{type(self).__name__} must define observe(self, seat)")

    def step_all(self, actions: Mapping[str, Action]) -> StepResult:
        """Carry out `actions`, one for each seat in `acting`."""
        raise NotImplementedError(f"{type(self).__name__} must define step_all(self, actions)")

    def seat(self) -> str:
        """Return the seat that chooses next where one is asked after another."""
        return next(seat for seat in self.acting() if seat not in self._chosen)

    def step(self, action: Action) -> StepResult:
        """Keep `action` as that of `seat`; the last one's lets all be carried out."""
        chosen = {**self._chosen, self.seat(): action}
        acting = self.acting()
        if len(chosen) < len(acting):
            self._chosen = chosen
            return StepResult(observation=self.observe(self.seat()))
        self._chosen = NOTHING
        result = self.step_all({seat: chosen[seat] for seat in acting})
        if result.is_over:
            return result
        return replace(result, observation=self.observe(self.seat()))


Factory = Callable[[], Environment]


def environment_name(environment: Environment) -> str:
    """Return the catalogue name of `environment`."""
    return environment.name or type(environment).__name__.lower()


def begin(environment: Environment, task: Task) -> Observation:
    """Reset `environment` to `task` and return the checked first observation.

    Raises:
        EnvironmentFault: the observation has the wrong type.
    """
    # What tools collected in an episode that was cut short is forgotten: the class has the empty defaults.
    for name in ("_ending", "_rewards", "_cause", "_chosen"):
        vars(environment).pop(name, None)
    return check_observation(environment, environment.reset(replace(task)), "reset")


def as_results(replies: Sequence[str]) -> Observation:
    """Return what the calls of one turn came to, in their order: one reply as text, several as a part for each call."""
    if len(replies) == 1:
        return replies[0]
    return tuple(CallResult(text=reply, call=number) for number, reply in enumerate(replies))


def join_results(results: Sequence[StepResult]) -> StepResult:
    """Return what several steps of an environment come to in one turn; no step at all is worth nothing.

    Rewards, their terms and the calls that failed add up; the last step says what is seen and whether the episode is
    over; success is what was last said of it.
    """
    said = [result.is_success for result in results if result.is_success is not None]
    return replace(
        results[-1] if results else StepResult(observation=""),
        reward=sum(result.reward for result in results),
        rewards=sum_parts(result.rewards for result in results),
        reward_terms=sum_parts(result.reward_terms for result in results),
        is_success=said[-1] if said else None,
        tool_errors=tuple(error for result in results for error in result.tool_errors),
    )


def sum_parts(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of `parts` by name, in the order in which names come first."""
    found: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, 0.0) + value
    return found


def advance(environment: Environment, action: Action) -> StepResult:
    """Step `environment` and return the checked result.

    Raises:
        EnvironmentFault: see `check_result`.
    """
    return check_result(environment, environment.step(action), "step")


def advance_all(environment: SimultaneousSeats, actions: Mapping[str, Action]) -> StepResult:
    """Carry out `actions`, one for each seat that acts, and return the checked result.

    Raises:
        EnvironmentFault: as for `advance`.
    """
    assert isinstance(environment, Environment), "an environment whose seats act at once"
    return check_result(environment, environment.step_all(actions), "step_all")


def check_result(environment: Environment, result: object, call: str) -> StepResult:
    """Return `result`, which `call` of `environment` returned, with its rewards as floats.

    Raises:
        EnvironmentFault: it is no `StepResult`, or something in it has the wrong type, is not finite, or pays a seat
            that there is not.
    """
    who = environment_name(environment)
    if not isinstance(result, StepResult):
        raise EnvironmentFault(
            f"{who}.{call} must return a StepResult: got {type(result).__name__}; "
            "wrap the observation in quintain.StepResult(observation=...)"
        )
    observation = check_observation(environment, result.observation, call)
    if observation is not result.observation:
        result = replace(result, observation=observation)
    claims = {name: getattr(result, name) for name in CLAIMS}
    if result.is_success is None:
        del claims["is_success"]
    if {*map(type, claims.values())} != {bool}:
        result = replace(result, **{name: check_claim(who, name, claim) for name, claim in claims.items()})
    reward = check_reward(who, "reward", result.reward)
    is_plain = type(result.reward) is float or result.reward is UNNAMED
    if is_plain and not result.reward_terms and not result.rewards:
        return result
    terms = {label: check_reward(who, label, value) for label, value in result.reward_terms.items()}
    seats = seat_names(environment) if result.rewards else ()
    rewards = check_rewards(who, seats, result.rewards) if result.rewards else NOTHING
    if rewards and isinstance(result.reward, Unnamed):
        reward = sum(rewards.values()) / len(seats)
    return replace(result, reward=reward, reward_terms=terms, rewards=rewards)


def seat_names(environment: Environment) -> tuple[str, ...]:
    """Return the seats of `environment`, in order."""
    return tuple(environment.seats()) if isinstance(environment, (Seats, SimultaneousSeats)) else (ALONE,)


def check_rewards(who: str, seats: Sequence[str], rewards: Mapping[str, float]) -> Mapping[str, float]:
    """Return what each of `seats` is paid, as floats.

    Raises:
        EnvironmentFault: one is not a finite number, or there is no such seat.
    """
    if unknown := [seat for seat in rewards if seat not in seats]:
        raise EnvironmentFault(
            f"{who}: rewards must be those of the seats {', '.join(seats)}: got {', '.join(map(repr, unknown))}; "
            "name the seats as seats() does"
        )
    return {seat: check_reward(who, f"rewards[{seat!r}]", value) for seat, value in rewards.items()}


def check_reward(who: str, label: str, value: object) -> float:
    """Return `value` as a float; booleans count as 0 and 1, everything else must be one real number that can be paid.

    Raises:
        EnvironmentFault: it is none, not finite, or so large that what is computed of it would not be.
    """
    if type(value) is float and -MAX_AMOUNT <= value <= MAX_AMOUNT:
        return value
    number = as_number(value)
    if number is None or not math.isfinite(number):
        came = value if number is None else number  # a whole number of thousands of digits has no text
        raise EnvironmentFault(f"{who}: {label} must be a finite number: got {came!r:.60}; return a float")
    if abs(number) > MAX_AMOUNT:
        raise EnvironmentFault(
            f"{who}: {label} must be of at most {MAX_AMOUNT:g} in size: got {number!r}; scale it down"
        )
    return number


def check_claim(who: str, label: str, value: object) -> bool:
    """Return `value`, which must be a truth value, as a bool."""
    claim = as_truth(value)
    if claim is None:
        raise EnvironmentFault(
            f"{who}: {label} must be a bool: got {value!r:.60} ({type(value).__name__}); wrap it in bool(...)"
        )
    return claim


def check_observation(environment: Environment, observation: object, call: str) -> Observation:
    """Return `observation` if it is a string or a sequence of content parts; of a very long one the beginning.

    Raises:
        EnvironmentFault: it is neither, or has too many parts.
    """
    if isinstance(observation, str):
        return cut_text(observation)
    if isinstance(observation, (list, tuple)) and all(isinstance(p, (Text, Image)) for p in observation):
        parts = cast("Sequence[Content]", observation)
        if len(parts) > MAX_PARTS:
            raise EnvironmentFault(
                f"{environment_name(environment)}.{call} must return at most {MAX_PARTS:,} parts: got {len(parts):,}"
            )
        return cut_parts(parts)
    raise EnvironmentFault(
        f"{environment_name(environment)}.{call} must return text or content parts: "
        f"got {type(observation).__name__}; return a str"
    )


def tool_action(name: str, /, **arguments: Any) -> Action:
    """Return the action that calls tool `name`: ``tool_action("guess", number=16)``."""
    return Action(tool_calls=(ToolCall(name=name, arguments=arguments),))
