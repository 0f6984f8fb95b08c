"""What the conformance suite asks of an environment, one function per question.

A probe returns what it saw, raises `Violation` when the contract is broken, and `Skipped` when the
environment does not claim the capability. Whatever else comes out of the environment is a failure too.
"""

import json
import pickle  # noqa: TID251 (nothing foreign is opened: tasks must survive the way to a worker process)
from collections.abc import Callable, Mapping
from typing import cast

from quintain.environments.baselines import Policy, play, random_policy
from quintain.environments.measures import baselines, closing, speed, variety
from quintain.environments.protocol import (
    Environment,
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
from quintain.environments.subject import SHORT, Skipped, Subject, Violation, carry_on, require_same
from quintain.types import Action, ToolCall

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
        raise Violation("it has no instructions; write a class docstring")
    if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
        raise Violation(f"max_turns must be a positive integer: got {max_turns!r}")
    return f"{environment_name(environment)}, at most {max_turns} turns"


def tasks(subject: Subject) -> str:
    """Its tasks are data: equal in every instance, different in each split, picklable."""
    train, held_out = subject.tasks(NUM_TASKS), subject.tasks(NUM_TASKS, "eval")
    environment = subject.build()
    if train != [environment.task("train", index) for index in range(NUM_TASKS)]:
        raise Violation("two instances name different tasks; make task(split, index) a pure function")
    both = {task.seed for task in train} & {task.seed for task in held_out}
    if both:
        raise Violation(f"{len(both)} seeds are in train and in eval; keep the lowest bit for the split")
    if len({task.id for task in [*train, *held_out]}) < 2 * NUM_TASKS:
        raise Violation("two tasks have the same id")
    if pickle.loads(pickle.dumps(train)) != train:
        raise Violation("tasks do not survive pickling")
    return f"{NUM_TASKS} of each split: seeds disjoint, picklable"


def tools(subject: Subject) -> str:
    """Its tools have valid schemas."""
    specs = subject.build().tools()
    if not specs:
        raise Skipped("it has no tools")
    for spec in specs:
        if json.loads(json.dumps(spec.parameters)).get("type") != "object":
            raise Violation(f"parameters of tool {spec.name} are no JSON schema of an object")
        if not spec.description:
            raise Violation(f"tool {spec.name} has no description; write a docstring")
    if len({spec.name for spec in specs}) < len(specs):
        raise Violation("two tools have the same name")
    return ", ".join(spec.name for spec in specs)


def random_play(subject: Subject) -> str:
    """Rewards, observations and ends have the right types and bounds."""
    environment = subject.build()
    low, high = environment.return_range
    totals: list[float] = []
    for task in subject.tasks(subject.num_episodes):
        episode = play(environment, task, random_policy(task.seed))
        if not episode.rewards:
            raise Violation("an episode has no turn")
        totals.append(episode.total)
    if min(totals) < low - 1e-6 or max(totals) > high + 1e-6:
        raise Violation(
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
    """Two instances answer the same actions alike."""
    first, second = subject.build(), subject.build()
    for task in subject.tasks(5):
        require_same(
            play(first, task, random_policy(7), SHORT),
            play(second, task, random_policy(7), SHORT),
            "two instances differ under one seed",
        )
    return "two instances agree on 5 tasks"


def no_leak(subject: Subject) -> str:
    """An episode does not depend on those before it."""
    used = subject.build()
    several = subject.tasks(6)
    for task in several[1:]:
        play(used, task, random_policy(task.seed), SHORT)
    again = play(used, several[0], random_policy(7), SHORT)
    require_same(
        again,
        play(subject.build(), several[0], random_policy(7), SHORT),
        "an episode depends on those before it",
    )
    return "the same after 5 other episodes"


def snapshots(subject: Subject) -> str:
    """A restored state continues as the original did, in the same instance and in another one."""
    environment, other = subject.build(), subject.build()
    if not isinstance(environment, Snapshot) or not isinstance(other, Snapshot):
        raise Skipped("it has no snapshot and restore")
    count = 0
    for index, task in enumerate(subject.tasks(6)):
        begin(environment, task)
        for _ in range(2):
            state = environment.snapshot()
            original = carry_on(environment, index)
            begin(other, subject.tasks(7)[6])
            for name, copy in (("the same instance", environment), ("another instance", other)):
                copy.restore(state)
                require_same(carry_on(copy, index), original, f"restored in {name} it goes on differently")
            environment.restore(state)
            count += 1
            if any(carry_on(environment, 5, 2).ends[-1][:2]):
                break
    return f"{count} states continue alike"


def legal(subject: Subject) -> str:
    """The actions it lists are accepted."""
    environment = subject.build()
    if not isinstance(environment, Legal):
        raise Skipped("it does not list legal actions")
    num_listed = 0
    for task in subject.tasks(3):
        begin(environment, task)
        listed = environment.legal_actions()
        if not listed and environment.tools():
            continue
        texts: list[object] = [text for text in listed if text]
        if not texts or len(set(texts)) < len(listed) or not all(isinstance(text, str) for text in texts):
            raise Violation(f"legal_actions must be different texts, at least one: got {listed!r}")
        for text in listed:
            begin(environment, task)
            if not advance(environment, Action(text=text)).is_valid:
                raise Violation(f"the legal action {text!r} was refused")
        num_listed += len(listed)
    return f"{num_listed} in 3 first states, all accepted"


def state_keys(subject: Subject) -> str:
    """Keys of states agree between instances, and looking changes nothing."""
    first, second = subject.build(), subject.build()
    if not isinstance(first, StateKey) or not isinstance(second, StateKey):
        raise Skipped("it has no state_key")
    seen: set[str] = set()
    for task in subject.tasks(3):
        keys: list[list[str]] = []
        for environment in (first, second):
            found: list[str] = []
            play(environment, task, _recording(random_policy(3), found), SHORT)
            keys.append(found)
        if keys[0] != keys[1]:
            raise Violation("the same actions lead to different keys in two instances")
        seen.update(keys[0])
    return f"{len(seen)} different keys"


def seats(subject: Subject) -> str:
    """Its seats are named, and seats that act at once are answered alike when asked one after another."""
    environment, other = subject.build(), subject.build()
    if not isinstance(environment, (Seats, SimultaneousSeats)):
        raise Skipped("it has no seats")
    [task] = subject.tasks(1)
    begin(environment, task)
    names = tuple(environment.seats())
    if not names or len(set(names)) < len(names) or any("/" in name for name in names):
        raise Violation(f"seats must be different names without a slash, at least one: got {names!r}")
    if not isinstance(environment, SimultaneousSeats):
        return f"{', '.join(names)}, in turn"
    acting = environment.acting()
    if not acting or not set(acting) <= set(names):
        raise Violation(f"acting must return some of {', '.join(names)}: got {acting!r}")
    action = Action(text="an action")
    at_once = advance_all(environment, dict.fromkeys(acting, action))
    begin(other, task)
    in_turn = [advance(other, action) for _ in acting][-1]
    if (at_once.reward, at_once.rewards) != (in_turn.reward, in_turn.rewards):
        raise Violation(
            "step, asked once for each seat, pays otherwise than step_all; derive it from Simultaneous"
        )
    return f"{', '.join(names)}, all at once"


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


def _recording(policy: Policy, keys: list[str]) -> Policy:
    """Return `policy`, noting the key of each state in `keys`."""

    def act(environment: Environment, observation: str) -> Action:
        assert isinstance(environment, StateKey)
        key = cast(object, environment.state_key())
        if not isinstance(key, str) or key != environment.state_key():
            raise Violation(f"state_key must return the same text twice: got {key!r}")
        keys.append(key)
        return policy(environment, observation)

    return act
