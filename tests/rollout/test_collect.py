"""Episodes by the thousand, faults of every kind: what is collected is what happened, and nothing is lost."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from quintain.agents.harness import JsonTools, PlainText
from quintain.agents.protocol import Brief, Prompt
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.engines.scripted import Script, Scripted
from quintain.environments.protocol import Environment, Factory
from quintain.environments.tools import tool
from quintain.environments.worker import WorkerFault
from quintain.errors import EnvironmentFault, FailureRateError, InvariantError, UsageError
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.types import (
    Action,
    Completion,
    Failure,
    Group,
    Observation,
    Score,
    StepResult,
    Stop,
    Task,
    Text,
    Trajectory,
    derive_seed,
)
from quintain.worlds.guess.game import Guess

pytestmark = pytest.mark.usefixtures("both_sources")
FIRST = (2, 265, 19, 204, 204, 55, 74, 70, 72, 77, 226, 78, 89, 19, 3, 281, 19, 4)
"""<|system|>Go.⏎⏎Reach it.<|user|>A wall.<|assistant|>"""
NEXT = (3, 281, 19, 4)
"""<|user|>A wall.<|assistant|>"""
Fault = Callable[["World", str], Any]


@dataclass
class Book:
    """What became of the instances of `World`."""

    made: list["World"] = field(default_factory=list["World"])
    closed: list["World"] = field(default_factory=list["World"])
    resets: list[tuple["World", str]] = field(default_factory=list[tuple["World", str]])


class World(Environment):
    """Go."""

    max_turns = 4

    def __init__(self, book: Book, faults: dict[str, Fault] | None = None, sick: str = "/1") -> None:
        self.book, self.faults, self.sick = book, faults or {}, sick
        self.place = 0
        self.task_id = ""
        book.made.append(self)

    def _fault(self, where: str, otherwise: Any) -> Any:
        """Do what the test asks for at `where` in the task that is sick."""
        if where in self.faults and self.task_id.endswith(self.sick):
            return self.faults[where](self, where)
        return otherwise

    def reset(self, task: Task) -> Observation:
        self.place, self.task_id = 0, task.id
        self.book.resets.append((self, task.id))
        return cast(Observation, self._fault("reset", "A wall."))

    def step(self, action: Action) -> StepResult:
        """Right ends it with 1; left costs 0.25; everything else does nothing."""
        self.place += 1
        is_over = action.text == "right"
        reward = 1.0 if is_over else -0.25 * (action.text == "left")
        result = StepResult(
            observation="A wall.",
            reward=reward,
            is_terminated=is_over,
            is_valid=action.text in ("left", "right"),
            reward_terms={"walk": reward},
        )
        return cast(StepResult, self._fault("step", result))

    def instructions(self) -> str:
        return cast(str, self._fault("instructions", "Go."))

    def state_key(self) -> str:
        return f"{self.task_id}@{self.place}"

    def close(self) -> None:
        self.book.closed.append(self)
        self._fault("close", None)


def tasks(count: int) -> list[Task]:
    environment = World(Book())
    return [replace(environment.task("train", n), prompt="Reach it.") for n in range(count)]


def saying(chat: Chat, *texts: str) -> Script:
    """The n-th completion of an episode is the n-th text; the last is repeated."""

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        return chat.write(texts[min(stream.count(chat.end_id), len(texts) - 1)])

    return script


def rollout(
    chat: Chat,
    *texts: str,
    book: Book | None = None,
    faults: dict[str, Fault] | None = None,
    max_length: int = 1 << 20,
    make: Factory | None = None,
    **limits: Any,
) -> Rollout:
    kept = book or Book()
    return Rollout(
        PlainText(chat, max_tokens=8),
        make or (lambda: World(kept, faults)),
        Scripted(saying(chat, *texts), max_length=max_length),
        limits=Limits(**limits),
    )


def all_of(groups: list[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


def content(trajectory: Trajectory) -> tuple[Any, ...]:
    """What was sampled and what came of it, without times."""
    return (
        trajectory.group,
        trajectory.index,
        trajectory.seed,
        [(turn.prompt_ids, turn.completion.token_ids, turn.reward) for turn in trajectory.turns],
        trajectory.outcome,
        trajectory.stop,
    )


def test_a_golden_episode(chat: Chat) -> None:
    left, right = chat.write("left"), chat.write("right")
    assert left[-1] == right[-1] == chat.end_id == 1
    (group,) = rollout(chat, "left", "right", has_state_keys=True).groups(tasks(1), size=1, seed=5)
    (trajectory,) = group.trajectories
    first, second = trajectory.turns
    assert (first.prompt_ids, first.completion.token_ids, first.starts_segment) == (FIRST, left, True)
    assert (second.prompt_ids, second.completion.token_ids, second.starts_segment) == (NEXT, right, False)
    assert first.completion.logprobs == (-1.0,) * len(left)
    assert first.completion.stop == "stop"
    assert [turn.action for turn in trajectory.turns] == [Action(text="left"), Action(text="right")]
    assert [turn.reward for turn in trajectory.turns] == [-0.25, 1.0]
    assert [dict(turn.reward_terms) for turn in trajectory.turns] == [{"walk": -0.25}, {"walk": 1.0}]
    assert [turn.observation for turn in trajectory.turns] == [(Text(text="A wall."),)] * 2
    assert [turn.state_key for turn in trajectory.turns] == ["world/train/0@0", "world/train/0@1"]
    assert trajectory.final_observation == (Text(text="A wall."),)
    assert trajectory.outcome == Score(value=0.75, is_success=True)
    assert (trajectory.stop, trajectory.group, trajectory.index) == (
        Stop.TERMINATED,
        "0:world/train/0",
        0,
    )
    assert trajectory.seed == derive_seed(5, "world/train/0", 0, 0)
    assert group.task == trajectory.task == tasks(1)[0]


def test_a_completion_without_its_end_gets_it_in_the_next_prompt(chat: Chat) -> None:
    words = chat.write("left")[:-1]
    cut = Scripted(lambda request, stream: words)
    (group,) = Rollout(PlainText(chat), lambda: World(Book()), cut).groups(tasks(1), size=1, seed=0)
    turns = group.trajectories[0].turns
    assert [turn.prompt_ids for turn in turns] == [FIRST, *[(1, *NEXT)] * 3]
    assert [turn.completion.stop for turn in turns] == ["length"] * 4


def test_seeds_are_unique_and_belong_to_the_episode(chat: Chat) -> None:
    wanted = tasks(5)
    alone = all_of(rollout(chat, "right", concurrency=1).groups(wanted, size=4, seed=1))
    beside = all_of(rollout(chat, "right", concurrency=7, num_workers=3).groups(wanted, size=4, seed=1))
    assert [t.seed for t in alone] == [t.seed for t in beside]
    assert len({t.seed for t in alone}) == 20
    other = all_of(rollout(chat, "right").groups(wanted, size=4, seed=2))
    assert not {t.seed for t in alone} & {t.seed for t in other}
    twice = all_of(rollout(chat, "right").groups([wanted[0]] * 2, size=2, seed=1))
    assert len({t.seed for t in twice}) == 4
    assert [t.group for t in twice] == ["0:world/train/0"] * 2 + ["1:world/train/0"] * 2


def test_each_turn_of_each_episode_samples_with_a_seed_of_its_own(chat: Chat) -> None:
    collecting = rollout(chat, "left")
    collecting.groups(tasks(2), size=2, seed=1)
    seeds = [request.seed for request in cast(Scripted, collecting.engine).requests]
    assert len(set(seeds)) == len(seeds) == 16


def test_equal_seeds_stop_the_run(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.rollout.collect.derive_seed", lambda *parts: 7)
    with pytest.raises(InvariantError, match="seeds of 2 episodes: got 1 distinct"):
        rollout(chat, "right").groups(tasks(1), size=2, seed=0)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_trajectories_do_not_depend_on_what_runs_beside_them(
    tokenizer: PreTrainedTokenizerFast, chat: Chat, num_workers: int
) -> None:
    model = build_tiny(tokenizer, size="micro", seed=0)
    agent = PlainText(chat, max_tokens=4)
    found: list[list[tuple[Any, ...]]] = []
    for concurrency in (1, 32):
        limits = Limits(concurrency=concurrency, max_turns=2, num_workers=num_workers)
        collecting = Rollout(agent, lambda: World(Book()), Local(model), limits=limits)
        groups = collecting.groups(tasks(4), size=4, seed=3)
        found.append([content(t) for t in all_of(groups)])
    assert found[0] == found[1]
    assert len({str(episode[3]) for episode in found[0]}) > 8


def test_a_limit_on_turns_is_no_end(chat: Chat) -> None:
    collecting = rollout(chat, "left", "on", max_turns=2)
    (group,) = collecting.groups(tasks(1), size=1, seed=0)
    (trajectory,) = group.trajectories
    assert len(trajectory.turns) == 2
    assert trajectory.stop is Stop.CUT
    assert [turn.is_valid for turn in trajectory.turns] == [True, False]
    for limit in (None, World.max_turns):
        (group,) = rollout(chat, "left", max_turns=limit).groups(tasks(1), size=1, seed=0)
        assert len(group.trajectories[0].turns) == World.max_turns
        assert group.trajectories[0].stop is Stop.MAX_TURNS


def answering(**fields: Any) -> dict[str, Fault]:
    return {"step": lambda world, where: StepResult(observation="", **fields)}


@pytest.mark.parametrize(
    ("fields", "stop", "outcome"),
    [
        ({"reward": 0.5}, Stop.CUT, Score(value=1.0, is_success=False)),
        ({"reward": 0.5, "is_truncated": True}, Stop.MAX_TURNS, Score(value=0.5, is_success=False)),
        ({"is_truncated": True, "is_success": True}, Stop.MAX_TURNS, Score(value=0.0, is_success=True)),
        ({"reward": 0.5, "is_terminated": True}, Stop.TERMINATED, Score(value=0.5, is_success=True)),
        ({"is_terminated": True}, Stop.TERMINATED, Score(value=0.0, is_success=False)),
        (
            {"reward": 1, "is_terminated": True, "is_success": False},
            Stop.TERMINATED,
            Score(value=1.0, is_success=False),
        ),
        (
            {"is_terminated": True, "is_truncated": True, "reward": 1.0},
            Stop.TERMINATED,
            Score(value=1.0, is_success=True),
        ),
    ],
)
def test_what_a_truncated_episode_is_worth(
    chat: Chat, fields: dict[str, Any], stop: Stop, outcome: Score
) -> None:
    collecting = rollout(chat, "left", faults=answering(**fields), max_turns=2)
    trajectory = all_of(collecting.groups(tasks(2), size=1, seed=0))[1]
    assert (trajectory.stop, trajectory.outcome) == (stop, outcome)


def test_a_full_stream_cuts_the_episode(chat: Chat) -> None:
    left = chat.write("left")
    both = len(FIRST) + len(left) + len(NEXT)
    collecting = rollout(chat, "left", max_length=both + 3)
    (trajectory,) = all_of(collecting.groups(tasks(1), size=1, seed=0))
    rooms = [r.sampling.max_tokens for r in cast(Scripted, collecting.engine).requests]
    assert rooms[:2] == [8, 3]
    assert (len(trajectory.turns), trajectory.stop) == (2, Stop.MAX_TOKENS)
    assert trajectory.outcome == Score(value=-0.5, is_success=False)

    full = rollout(chat, "left", max_length=both)
    (trajectory,) = all_of(full.groups(tasks(1), size=1, seed=0))
    assert (len(trajectory.turns), trajectory.stop) == (1, Stop.MAX_TOKENS)

    (group,) = rollout(chat, "left", max_length=len(FIRST)).groups(tasks(1), size=1, seed=0)
    assert (group.trajectories[0].turns, group.scored) == ((), ())


def raises(world: World, where: str) -> Any:
    raise RuntimeError(f"broken\nin {where}")


def leaves(world: World, where: str) -> Any:
    raise SystemExit(1)


IS_OVER = threading.Event()
"""Whether the test is over: nothing hangs any longer."""


@pytest.fixture(autouse=True)
def nothing_hangs_on() -> Iterator[None]:
    IS_OVER.clear()
    yield
    IS_OVER.set()


def hangs(world: World, where: str) -> Any:
    IS_OVER.wait(60)


def gives(value: object) -> Fault:
    return lambda world, where: value


@pytest.mark.parametrize(
    ("where", "fault", "kind"),
    [
        ("reset", raises, "RuntimeError"),
        ("step", raises, "RuntimeError"),
        ("instructions", raises, "RuntimeError"),
        ("reset", leaves, "SystemExit"),
        ("step", leaves, "SystemExit"),
        ("reset", gives(7), "contract"),
        ("step", gives("A wall."), "contract"),
        ("step", gives(StepResult(observation=cast(str, None))), "contract"),
        ("step", gives(StepResult(observation="", reward=float("nan"))), "contract"),
        ("step", gives(StepResult(observation="", reward=float("inf"))), "contract"),
        ("step", gives(StepResult(observation="", is_terminated=cast(bool, "yes"))), "contract"),
        ("reset", hangs, "timeout"),
        ("step", hangs, "timeout"),
    ],
)
def test_a_fault_of_the_environment_is_a_failure_and_no_score(
    chat: Chat, where: str, fault: Fault, kind: str
) -> None:
    book = Book()
    seconds = 0.4 if kind == "timeout" else 60.0
    collecting = rollout(chat, "left", "right", book=book, faults={where: fault}, step_timeout=seconds)
    groups = collecting.groups(tasks(3), size=1, seed=0)
    well, sick, other = all_of(groups)
    assert isinstance(sick.outcome, Failure)
    assert (sick.outcome.owner, sick.outcome.kind, sick.stop) == ("environment", kind, Stop.FAILURE)
    assert groups[1].scored == ()
    assert [t.outcome for t in (well, other)] == [Score(value=0.75, is_success=True)] * 2
    tried = [world for world, task_id in book.resets if task_id == "world/train/1"]
    assert len(tried) == 2
    assert tried[0] is not tried[1]
    for world in tried:
        assert book.closed.count(world) == (kind != "timeout")
    collecting.close()
    healthy = [world for world in book.made if world not in tried]
    assert [book.closed.count(world) for world in healthy] == [1] * len(healthy)


def test_an_episode_that_works_the_second_time_is_whole(chat: Chat) -> None:
    def once(world: World, where: str) -> StepResult:
        if world is next(each for each, task_id in world.book.resets if task_id.endswith("/1")):
            raise OSError("no connection")
        world.faults = {}
        world.place -= 1
        return world.step(Action(text="left"))

    book = Book()
    collecting = rollout(chat, "left", "right", book=book, faults={"step": once}, has_state_keys=True)
    seen: list[Trajectory] = []
    healthy = all_of(rollout(chat, "left", "right").groups(tasks(3), size=1, seed=0))
    trajectories = all_of(collecting.groups(tasks(3), size=1, seed=0, on_episode=seen.append))
    assert [content(t) for t in trajectories] == [content(t) for t in healthy]
    assert [turn.state_key for turn in trajectories[1].turns] == ["world/train/1@0", "world/train/1@1"]
    first, second = [world for world, task_id in book.resets if task_id.endswith("/1")]
    assert first is not second and len(book.made) <= 4
    assert sorted(t.index + int(t.group[0]) for t in seen) == [0, 1, 2]
    sessions = {r.session for r in cast(Scripted, collecting.engine).requests}
    assert {"1:world/train/1/0/0/0", "1:world/train/1/0/1/0"} <= sessions


def test_attempts_can_be_more_or_one(chat: Chat) -> None:
    for attempts in (1, 3):
        book = Book()
        collecting = rollout(chat, "right", book=book, faults={"reset": raises}, attempts=attempts)
        collecting.groups(tasks(2), size=1, seed=0)
        assert [task_id for _, task_id in book.resets].count("world/train/1") == attempts


def test_an_environment_that_cannot_be_closed_is_left(chat: Chat) -> None:
    book = Book()
    faults: dict[str, Fault] = {"step": raises, "close": hangs}
    collecting = rollout(chat, "right", book=book, faults=faults, step_timeout=0.4, attempts=1)
    started = time.monotonic()
    assert isinstance(all_of(collecting.groups(tasks(2), size=1, seed=0))[1].outcome, Failure)
    assert time.monotonic() - started < 30
    assert collecting.pool.stepper.num_abandoned == 1


def test_environments_are_used_again(chat: Chat) -> None:
    book = Book()
    collecting = rollout(chat, "left", "right", book=book, concurrency=4)
    collecting.groups(tasks(6), size=2, seed=0)
    collecting.groups(tasks(6), size=2, seed=1)
    assert len(book.made) == 4
    assert len(book.resets) == 24
    assert book.closed == []
    collecting.close()
    collecting.close()
    assert sorted(map(id, book.closed)) == sorted(map(id, book.made))


def test_too_many_failures_stop_the_run_in_one_line(chat: Chat) -> None:
    def sick() -> World:
        return World(Book(), {"reset": raises}, sick="")

    everywhere = rollout(chat, "right", make=sick)
    with pytest.raises(FailureRateError) as caught:
        everywhere.groups(tasks(5), size=2, seed=0)
    assert re.fullmatch(
        r"10 episodes(, stopped after \d)?: got \d+ failures, more than 5%; the first, by the environment "
        r"\(RuntimeError\): broken in reset \(test_collect\.py, line \d+\)",
        str(caught.value),
    )
    allowed = rollout(chat, "right", make=sick, max_failure_share=1.0)
    assert len(all_of(allowed.groups(tasks(5), size=2, seed=0))) == 10


@pytest.mark.parametrize(
    ("episodes", "share", "is_fine"), [(1, 0.5, False), (2, 0.0, True), (3, 0.4, True), (20, 0.04, True)]
)
def test_one_failure_is_borne_unless_it_is_all(
    chat: Chat, episodes: int, share: float, is_fine: bool
) -> None:
    wanted = tasks(episodes + 1)[1:]

    def sick() -> World:
        return World(Book(), {"step": raises}, sick="train/1")

    collecting = rollout(chat, "right", make=sick, max_failure_share=share)
    if is_fine:
        assert len(all_of(collecting.groups(wanted, size=1, seed=0))) == episodes
    else:
        with pytest.raises(FailureRateError, match="1 episodes: got 1 failures"):
            collecting.groups(wanted, size=1, seed=0)


@pytest.mark.slow
def test_of_a_thousand_episodes_none_is_lost(chat: Chat) -> None:
    texts = [chat.write(text) for text in ("left", "on", "right")]
    script = Scripted(lambda request, stream: texts[request.seed % 3])
    book = Book()
    collecting = Rollout(
        PlainText(chat), lambda: World(book), script, limits=Limits(concurrency=1000, num_workers=2)
    )
    seen: list[tuple[str, int]] = []
    groups = collecting.groups(
        tasks(125), size=8, seed=0, on_episode=lambda t: seen.append((t.group, t.index))
    )
    trajectories = all_of(groups)
    assert len(trajectories) == len(seen) == len(set(seen)) == 1000
    assert [len(group.scored) for group in groups] == [8] * 125
    assert [t.index for t in trajectories] == list(range(8)) * 125
    assert all(t.task == group.task for group in groups for t in group.trajectories)
    assert len({t.seed for t in trajectories}) == 1000
    for t in trajectories:
        assert t.outcome == Score(
            value=sum(turn.reward for turn in t.turns), is_success=t.stop is Stop.TERMINATED
        )
        assert (t.turns[-1].action.text == "right") == (t.stop is Stop.TERMINATED)
    assert len(book.made) == 1000


def test_malformed_completions_come_back_as_errors(chat: Chat) -> None:
    texts = (
        "<tool_call>{</tool_call>",
        '<tool_call>{"name": "gess", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "guess", "arguments": {"number": "x"}}</tool_call>',
        "I give up",
    )
    said = [chat.write(text) for text in texts]
    turn = iter([*said, *said])
    engine = Scripted(lambda request, stream: next(turn))
    collecting = Rollout(JsonTools(chat), lambda: Guess(max_turns=5), engine, limits=Limits(max_turns=4))
    (group,) = collecting.groups([Guess().task("train", 0)], size=1, seed=0)
    (trajectory,) = group.trajectories
    assert [t.is_valid for t in trajectory.turns] == [False] * 4
    told = [t.observation[0] for t in trajectory.turns[1:]] + [trajectory.final_observation[0]]
    messages = [part.text for part in told if isinstance(part, Text)]
    assert all(message.startswith("Error: ") for message in messages)
    assert trajectory.turns[0].action.error is not None
    assert trajectory.turns[0].action.error in messages[0]
    assert "did you mean 'guess'?" in messages[1]
    assert "guess(number): expected integer" in messages[2]
    assert "no tool was called" in messages[3]
    assert trajectory.outcome == Score(value=0.0, is_success=False)


class Hammer(Environment):
    """Break it."""

    def reset(self, task: Task) -> Observation:
        return "A wall."

    @tool
    def hit(self) -> str:
        """Hit."""
        raise RuntimeError("ouch")


def test_a_tool_that_raises_is_a_failure_of_the_tool(chat: Chat) -> None:
    call = chat.write('<tool_call>{"name": "hit", "arguments": {}}</tool_call>')
    limits = Limits(max_failure_share=1.0)
    collecting = Rollout(JsonTools(chat), Hammer, Scripted(lambda request, stream: call), limits=limits)
    (trajectory,) = all_of(collecting.groups([Hammer().task("train", 0)], size=1, seed=0))
    assert isinstance(trajectory.outcome, Failure)
    assert trajectory.outcome.owner == "tool"
    assert "ouch" in trajectory.outcome.message


def test_weights_that_are_not_finite_are_a_failure_of_the_engine(
    tokenizer: PreTrainedTokenizerFast, chat: Chat
) -> None:
    model = build_tiny(tokenizer, size="micro", seed=0)
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    limits = Limits(max_failure_share=1.0)
    collecting = Rollout(PlainText(chat), lambda: World(Book()), Local(model), limits=limits)
    for trajectory in all_of(collecting.groups(tasks(2), size=2, seed=0)):
        assert isinstance(trajectory.outcome, Failure)
        assert (trajectory.outcome.owner, trajectory.outcome.kind) == ("engine", "not_finite")
        assert trajectory.turns == ()
    strict = Rollout(PlainText(chat), lambda: World(Book()), Local(model))
    with pytest.raises(FailureRateError, match=r"by the engine \(not_finite\)"):
        strict.groups(tasks(2), size=2, seed=0)


class Fragile(World):
    def __init__(self) -> None:
        raise OSError("no such\nfile")


def refused() -> Environment:
    raise UsageError("world: got nothing; give something")


def test_a_constructor_that_raises_is_named(chat: Chat) -> None:
    engine = Scripted(saying(chat, "right"))
    with pytest.raises(EnvironmentFault) as caught:
        Rollout(PlainText(chat), Fragile, engine).groups(tasks(1), size=1, seed=0)
    why = r"got OSError: no such file \(test_collect\.py, line \d+\); mend __init__"
    assert re.fullmatch(f"making environment Fragile: {why}", str(caught.value))
    with pytest.raises(UsageError, match="world: got nothing"):
        Rollout(PlainText(chat), refused, engine).groups(tasks(1), size=1, seed=0)


@pytest.mark.parametrize("breaks", [1, 2])
def test_an_environment_whose_process_breaks_while_it_begins_is_made_again(chat: Chat, breaks: int) -> None:
    made: list[World] = []

    def make() -> World:
        made.append(World(Book()))
        if len(made) <= breaks:
            raise WorkerFault.of("environment", "crash", "open ended its process")
        return made[-1]

    rollout = Rollout(PlainText(chat), make, Scripted(saying(chat, "right")), limits=Limits(attempts=2))
    if breaks == 2:
        with pytest.raises(WorkerFault, match="open ended its process"):
            rollout.groups(tasks(1), size=1, seed=0)
    else:
        rollout.groups(tasks(1), size=1, seed=0)
        assert rollout.pool.num_attempts == 2
    assert len(made) == 2
    assert [(failure.owner, failure.kind) for failure in rollout.pool.broken] == [("environment", "crash")]


class Listing(World):
    """Go."""

    def __init__(self, *actions: object) -> None:
        super().__init__(Book())
        self.actions = list(actions)

    def legal_actions(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.actions)


def test_legal_actions_are_texts(chat: Chat) -> None:
    engine = Scripted(saying(chat, "left", "right"))
    told: list[tuple[str, ...]] = []

    class Heard:
        """Plain text that writes down the legal actions it is told."""

        def open(self, brief: Brief) -> Any:
            told.append(brief.legal_actions)
            return PlainText(chat).open(brief)

    Rollout(Heard(), lambda: Listing("left", "right"), engine).groups(tasks(1), size=1, seed=0)
    assert told == [("left", "right")]
    with pytest.raises(FailureRateError, match=r"Listing.legal_actions must return texts: got \('left', 3\)"):
        Rollout(Heard(), lambda: Listing("left", 3), engine).groups(tasks(1), size=1, seed=0)


class Fresh:
    """An agent that starts a new token stream every turn."""

    def open(self, brief: Brief) -> "Fresh":
        return self

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        return Prompt(token_ids=(5, 6, 7), starts_segment=True, sampling=Sampling(max_tokens=4))

    def read(self, completion: Completion) -> Action:
        return Action(text="left")

    def write(self, action: Action) -> tuple[int, ...]:
        return (9,)


def test_a_new_segment_is_a_new_stream() -> None:
    streams: list[tuple[int, ...]] = []

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        streams.append(stream)
        return (8, 9)

    engine = Scripted(script, max_length=6)
    collecting = Rollout(Fresh(), lambda: World(Book()), engine, limits=Limits(max_turns=3))
    (trajectory,) = all_of(collecting.groups(tasks(1), size=1, seed=0))
    assert streams == [(5, 6, 7)] * 3
    assert [r.session.rsplit("/", 1)[1] for r in engine.requests] == ["0", "1", "2"]
    assert [turn.starts_segment for turn in trajectory.turns] == [True] * 3
    assert trajectory.stop is Stop.CUT
