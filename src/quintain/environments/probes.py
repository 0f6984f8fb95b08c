"""What the conformance suite asks of an environment and measures of it, one function per question.

A probe returns what it saw, raises `ContractError` when the contract is broken, and `NotApplicableError` when the
environment does not claim the capability. Whatever else the environment raises is a failure, too.
"""

import json
import math
import pickle  # noqa: TID251 (nothing foreign is opened: tasks must survive the way to a worker process)
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from quintain.environments.baselines import Episode, Policy, expert, noop, play, random_policy
from quintain.environments.boundary import check_acts
from quintain.environments.protocol import (
    Environment,
    Expert,
    Legal,
    Seats,
    SimultaneousSeats,
    Snapshot,
    StateKey,
    advance,
    advance_all,
    begin,
    environment_name,
)
from quintain.errors import EnvironmentFault, QuintainError
from quintain.processes.usage import resources
from quintain.types import Action, Observation, Split, Task, ToolCall, as_text, derive_seed

SHORT = 30
"""Turns of the episodes that are compared step by step."""


class ContractError(QuintainError):
    """The environment broke its contract."""


UNREWARDED = (
    "random play was never rewarded, so that nothing but the form of actions can be learned from it: pay for steps "
    "(self.reward(found=0.2)), list legal_actions(), write expert_action(), or begin with a pretrained model"
)


class NotApplicableError(QuintainError):
    """The probe does not apply."""


class NotedError(QuintainError):
    """The probe found something that is good to know and no fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The environment under examination, and what was measured of it."""

    make: Callable[[], Environment]
    num_episodes: int
    built: list[Environment] = field(default_factory=list[Environment])
    """Instances that are still open."""
    measured: dict[str, float] = field(default_factory=dict[str, float])
    known_tasks: dict[Split, list[Task]] = field(default_factory=dict[Split, list[Task]])

    def build(self) -> Environment:
        """Return a fresh instance, which lives until the end of the probe."""
        self.built.append(self.make())
        return self.built[-1]

    def close(self) -> None:
        """Close the instances that the probe built."""
        while self.built:
            self.built.pop().close()

    def tasks(self, count: int, split: Split = "train") -> list[Task]:
        """Return the first tasks of a split, as one instance names them."""
        known = self.known_tasks.get(split, [])
        if len(known) < count:
            environment = self.build()
            known = [environment.task(split, index) for index in range(count)]
            self.known_tasks[split] = known
        return known[:count]


def play_on(environment: Environment, seed: int, max_turns: int = SHORT) -> Episode:
    """Play on from the current state, with random actions that depend on the seed alone."""
    policy = random_policy(seed)
    observations: list[Observation] = []
    rewards: list[float] = []
    paid: list[Mapping[str, float]] = []
    ends: list[tuple[bool, bool, bool | None, bool]] = []
    while len(rewards) < max_turns:
        result = advance(environment, policy(environment, "1 32"))
        observations.append(result.observation)
        rewards.append(result.reward)
        paid.append(result.rewards)
        ends.append((result.is_terminated, result.is_truncated, result.is_success, result.is_valid))
        if result.is_over:
            break
    return Episode(
        observations=tuple(observations),
        rewards=tuple(rewards),
        paid=tuple(paid),
        ends=tuple(ends),
        is_success=False,
        seconds=0.0,
    )


def require_same(one: Episode, other: Episode, complaint: str) -> None:
    """Raise a `ContractError` that shows the first difference of two episodes."""
    for step, pair in enumerate(zip(one.observations, other.observations, strict=False)):
        if pair[0] != pair[1]:
            raise ContractError(
                f"{complaint}: observation {step} is {shorten(pair[0])} and {shorten(pair[1])}"
            )
    for first, second in ((one.rewards, other.rewards), (one.paid, other.paid)):
        if first != second:
            raise ContractError(f"{complaint}: rewards are {shorten(first)} and {shorten(second)}")
    if one.ends != other.ends:
        raise ContractError(f"{complaint}: they end differently")


def shorten(value: object) -> str:
    """Return `value` in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


NUM_TASKS = 500
NONSENSE = (
    Action(),
    Action(error="the reply could not be read"),
    Action(text="\x00 not an action 🤖 " * 9),
    Action(tool_calls=(ToolCall(name="no_such_tool", arguments={"x": [None]}),)),
    Action(text="{", tool_calls=(ToolCall(name="", arguments={}), ToolCall(name="\ud800"))),
)


def builds(subject: Subject) -> str:
    """It can be built, and says what it is for."""
    environment = subject.build()
    max_turns = cast(object, environment.max_turns)
    if not environment.instructions().strip():
        raise ContractError("it has no instructions; write a class docstring")
    if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
        raise ContractError(f"max_turns must be a positive integer: got {max_turns!r}")
    return f"{environment_name(environment)}, at most {max_turns} turns"


def tasks(subject: Subject) -> str:
    """Its tasks are data: equal in every instance, different in each split, picklable."""
    train, held_out = subject.tasks(NUM_TASKS), subject.tasks(NUM_TASKS, "eval")
    environment = subject.build()
    if train != [environment.task("train", index) for index in range(NUM_TASKS)]:
        raise ContractError("two instances name different tasks; make task(split, index) a pure function")
    both = {task.seed for task in train} & {task.seed for task in held_out}
    if both:
        raise ContractError(f"{len(both)} seeds are in train and in eval; keep the lowest bit for the split")
    if len({task.id for task in [*train, *held_out]}) < 2 * NUM_TASKS:
        raise ContractError("two tasks have the same id")
    if pickle.loads(pickle.dumps(train)) != train:
        raise ContractError("tasks do not survive pickling")
    return f"{NUM_TASKS} of each split: seeds disjoint, picklable"


def tools(subject: Subject) -> str:
    """Its tools have valid schemas."""
    environment = subject.build()
    check_acts(environment)
    specs = environment.tools()
    if not specs:
        raise NotApplicableError("it has no tools")
    for spec in specs:
        if json.loads(json.dumps(spec.parameters)).get("type") != "object":
            raise ContractError(f"parameters of tool {spec.name} are no JSON schema of an object")
        if not spec.description:
            raise ContractError(f"tool {spec.name} has no description; write a docstring")
    if len({spec.name for spec in specs}) < len(specs):
        raise ContractError("two tools have the same name")
    return ", ".join(spec.name for spec in specs)


def random_play(subject: Subject) -> str:
    """Rewards, observations and ends have the right types and bounds."""
    environment = subject.build()
    low, high = environment.return_range
    totals: list[float] = []
    for task in subject.tasks(subject.num_episodes):
        episode = play(environment, task, random_policy(task.seed))
        if not episode.rewards:
            raise ContractError("an episode has no turn")
        totals.append(episode.total)
    if min(totals) < low - 1e-6 or max(totals) > high + 1e-6:
        raise ContractError(
            f"returns from {min(totals):g} to {max(totals):g}, outside return_range {low:g} to {high:g}"
        )
    return f"returns {min(totals):g} to {max(totals):g} within {low:g} to {high:g}"


def nonsense(subject: Subject) -> str:
    """What a policy writes cannot break it."""
    environment = subject.build()
    [task] = subject.tasks(1)
    for action in NONSENSE:
        begin(environment, task)
        advance(environment, action)
    return f"{len(NONSENSE)} malformed actions answered"


def determinism(subject: Subject) -> str:
    """Two instances answer the same actions alike, and have the same tools for a task."""
    first, second = subject.build(), subject.build()
    for task in subject.tasks(5):
        require_alike(
            (first, second),
            task,
            "two instances differ under one seed (draw from task.rng, and from nothing else)",
        )
    return "two instances agree on 5 tasks"


def no_leak(subject: Subject) -> str:
    """An episode does not depend on those before it."""
    used = subject.build()
    several = subject.tasks(6)
    for task in several[1:]:
        play(used, task, random_policy(task.seed), SHORT)
    require_alike((used, subject.build()), several[0], "an episode depends on those before it")
    return "the same after 5 other episodes"


def require_alike(instances: Sequence[Environment], task: Task, complaint: str) -> None:
    """Raise a `ContractError` where two `instances` answer the same actions otherwise, or list other tools."""
    played = [(play(each, task, random_policy(7), SHORT), each.tools()) for each in instances]
    (one, tools), (other, others) = played
    require_same(one, other, complaint)
    if tools != others:
        raise ContractError(f"{complaint}: tools are {shorten(tools)} and {shorten(others)}")


def snapshots(subject: Subject) -> str:
    """A restored state continues as the original did, in the same instance and in another one."""
    environment, other = subject.build(), subject.build()
    if not isinstance(environment, Snapshot) or not isinstance(other, Snapshot):
        raise NotApplicableError("it has no snapshot and restore")
    count = 0
    for index, task in enumerate(subject.tasks(6)):
        begin(environment, task)
        for _ in range(2):
            state = environment.snapshot()
            original = play_on(environment, index)
            begin(other, subject.tasks(7)[6])
            for name, copy in (("the same instance", environment), ("another instance", other)):
                copy.restore(state)
                require_same(play_on(copy, index), original, f"restored in {name} it goes on differently")
            environment.restore(state)
            count += 1
            if any(play_on(environment, 5, 2).ends[-1][:2]):
                break
    return f"{count} states continue alike"


def legal(subject: Subject) -> str:
    """The actions it lists are accepted."""
    environment = subject.build()
    if not isinstance(environment, Legal):
        raise NotApplicableError("it does not list legal actions")
    num_listed = 0
    for task in subject.tasks(3):
        begin(environment, task)
        listed = environment.legal_actions()
        if not listed and (environment.tools() or isinstance(environment, Seats)):
            continue  # nothing is listed for whom tools or words are left
        texts: list[object] = [text for text in listed if text]
        if not texts or len(set(texts)) < len(listed) or not all(isinstance(text, str) for text in texts):
            raise ContractError(f"legal_actions must be different texts, at least one: got {listed!r}")
        for text in listed:
            begin(environment, task)
            if not advance(environment, Action(text=text)).is_valid:
                raise ContractError(f"the legal action {text!r} was refused")
        num_listed += len(listed)
    return f"{num_listed} in 3 first states, all accepted"


def state_keys(subject: Subject) -> str:
    """Keys of states agree between instances, and looking changes nothing."""
    first, second = subject.build(), subject.build()
    if not isinstance(first, StateKey) or not isinstance(second, StateKey):
        raise NotApplicableError("it has no state_key")
    seen: set[str] = set()
    for task in subject.tasks(3):
        keys: list[list[str]] = []
        for environment in (first, second):
            found: list[str] = []
            play(environment, task, _recording(random_policy(3), found), SHORT)
            keys.append(found)
        if keys[0] != keys[1]:
            raise ContractError("the same actions lead to different keys in two instances")
        seen.update(keys[0])
    return f"{len(seen)} different keys"


def seats(subject: Subject) -> str:
    """Its seats are named, and seats that act at once are answered alike when asked one after another."""
    environment, other = subject.build(), subject.build()
    if not isinstance(environment, (Seats, SimultaneousSeats)):
        raise NotApplicableError("it has no seats")
    [task] = subject.tasks(1)
    begin(environment, task)
    names = tuple(environment.seats())
    if not names or len(set(names)) < len(names) or any("/" in name for name in names):
        raise ContractError(f"seats must be different names without a slash, at least one: got {names!r}")
    if not isinstance(environment, SimultaneousSeats):
        return f"{', '.join(names)}, in turn"
    acting = environment.acting()
    if not acting or not set(acting) <= set(names):
        raise ContractError(f"acting must return some of {', '.join(names)}: got {acting!r}")
    action = Action(text="an action")
    at_once = advance_all(environment, dict.fromkeys(acting, action))
    begin(other, task)
    in_turn = [advance(other, action) for _ in acting][-1]
    if (at_once.reward, at_once.rewards) != (in_turn.reward, in_turn.rewards):
        raise ContractError(
            "step, asked once for each seat, pays otherwise than step_all; derive it from Simultaneous"
        )
    return f"{', '.join(names)}, all at once"


def _recording(policy: Policy, keys: list[str]) -> Policy:
    """Return `policy`, noting the key of each state in `keys`."""

    def act(environment: Environment, observation: str) -> Action:
        assert isinstance(environment, StateKey)
        key = cast(object, environment.state_key())
        if not isinstance(key, str) or key != environment.state_key():
            raise ContractError(f"state_key must return the same text twice: got {key!r}")
        keys.append(key)
        return policy(environment, observation)

    return act


LONGEST_LOOK = 20.0
"""Seconds that are spent on first observations of a split."""


def baselines(subject: Subject) -> str:
    """The expert beats random play, which succeeds no less than doing nothing."""
    environment = subject.build()
    scores: dict[str, tuple[float, float]] = {}
    given: dict[str, Callable[[int], Policy]] = {"noop": lambda _: noop, "random": random_policy}
    if isinstance(environment, Expert):
        given["expert"] = lambda _: expert
    gave_up, highest = 0, -math.inf
    for name, policy_of in given.items():
        played: list[Episode] = []
        for task in subject.tasks(subject.num_episodes):
            try:
                played.append(play(environment, task, policy_of(derive_seed(name, task.seed))))
            except EnvironmentFault:
                if name != "expert" or gave_up >= subject.num_episodes // 2:
                    raise
                gave_up += 1
        scores[name] = _measure(subject, name, played)
        highest = max(highest, *(episode.total for episode in played))
    told = ", ".join(f"{name} {100 * won:.0f}% ({total:.3g})" for name, (total, won) in scores.items())
    told = f"success (return) of n={subject.num_episodes}: {told}"
    if gave_up:
        told += f"; the expert gave up {gave_up} times"
    if scores["noop"][1] > scores["random"][1]:
        raise ContractError(f"doing nothing succeeds more often than random play; {told}")
    if "expert" in scores and scores["expert"][0] <= scores["random"][0]:
        raise ContractError(f"the expert is no better than random play; {told}")
    low, high = environment.return_range
    if "expert" not in scores and highest <= (low if high <= 0 else max(low, 0.0)):
        raise NotedError(f"{UNREWARDED}; {told}")
    return told


def speed(subject: Subject) -> str:
    """How many steps it takes per second; episodes start included."""
    environment = subject.build()
    turns, seconds, starts = 0, 0.0, 0.0
    for task in subject.tasks(subject.num_episodes):
        episode = play(environment, task, random_policy(task.seed), SHORT)
        turns, seconds = turns + len(episode.rewards), seconds + episode.seconds
        starts += play(environment, task, noop, 1).seconds
    subject.measured["steps_per_second"] = turns / max(seconds, 1e-9)
    subject.measured["reset_seconds"] = starts / subject.num_episodes
    return f"{turns / max(seconds, 1e-9):,.0f} steps/s, {1e3 * starts / subject.num_episodes:.2g} ms to start"


def variety(subject: Subject) -> str:
    """How many tasks their first observation tells apart, and how many of those are in both splits."""
    environment = subject.build()
    seen: dict[str, set[str]] = {}
    num_tasks = max(subject.num_episodes, 50)
    splits: tuple[Split, Split] = ("train", "eval")
    for split in splits:
        firsts: list[str] = []
        started = time.perf_counter()
        for task in subject.tasks(num_tasks, split):
            firsts.append(as_text(begin(environment, task)))
            if time.perf_counter() - started > LONGEST_LOOK:
                # A world that takes long to start is looked at less often.
                num_tasks = len(firsts)
                break
        seen[split] = set(firsts)
    shared = len(seen["train"] & seen["eval"]) / max(len(seen["eval"]), 1)
    subject.measured["distinct_first_observations"] = len(seen["train"])
    subject.measured["first_observation_overlap"] = shared
    return (
        f"{len(seen['train'])} different in {num_tasks} tasks; {100 * shared:.0f}% of eval's are in train too"
    )


def closing(subject: Subject) -> str:
    """It can be closed twice, and leaves no thread, process or open file behind."""
    tasks_played = subject.tasks(1)

    def round_trip() -> None:
        environment = subject.make()
        play(environment, tasks_played[0], random_policy(1), 5)
        environment.close()
        environment.close()

    # What a package opens once for all instances is not a leak, so the first round is not counted.
    round_trip()
    before = resources()
    for _ in range(3):
        round_trip()
    grown = {name: count - before[name] for name, count in resources().items() if count > before[name]}
    if grown:
        told = ", ".join(f"{count} {name}" for name, count in grown.items())
        raise ContractError(f"3 instances left {told} behind after close()")
    return f"closed twice; no more {', '.join(before)}"


def _measure(subject: Subject, name: str, played: list[Episode]) -> tuple[float, float]:
    """Note mean return and success of `played`, and return them."""
    total = sum(episode.total for episode in played) / len(played)
    success = sum(episode.is_success for episode in played) / len(played)
    subject.measured[f"{name}/return"] = total
    subject.measured[f"{name}/success"] = success
    subject.measured[f"{name}/num_episodes"] = len(played)
    return total, success


PROBES: Mapping[str, Callable[[Subject], str]] = {
    "builds": builds,
    "tasks": tasks,
    "tools": tools,
    "random play": random_play,
    "nonsense": nonsense,
    "determinism": determinism,
    "no leak": no_leak,
    "snapshot": snapshots,
    "legal actions": legal,
    "state keys": state_keys,
    "seats": seats,
    "baselines": baselines,
    "speed": speed,
    "variety": variety,
    "closing": closing,
}
