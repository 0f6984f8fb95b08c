from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents.code import CodeAct, find_shelf
from quintain.agents.code_world import InCode, code_of
from quintain.agents.context import Window
from quintain.agents.harness import PlainText
from quintain.agents.library import ActionLibrary
from quintain.agents.protocol import Agent, Brief, Session, equip
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.baselines import expert, noop, play
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, Expert, Snapshot, StateKey, advance, begin
from quintain.environments.tools import tool
from quintain.errors import DataError, EnvironmentFault, SandboxError, UsageError
from quintain.rollout.collect import Limits, Rollout
from quintain.safety.isolation import find_fault
from quintain.safety.limits import Limits as BoxLimits
from quintain.safety.python import PythonProcess
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, Failure, Score, StepResult, Task, ToolCall
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor
from quintain.worlds.ledger.game import LedgerWorld

pytestmark = pytest.mark.skipif(bool(find_fault()), reason=find_fault())
CORPUS = [
    "<|system|>Go.<|user|>lower<|assistant|>```python\nprint(guess(number=16))\n```<|end|>",
    "<|tool|>higher",
]
SEARCH = (
    "low, high = 1, 32\nwhile True:\n    middle = (low + high) // 2\n    said = guess(middle)\n    print(said)\n"
    "    low, high = (middle + 1, high) if said == 'higher' else (low, middle - 1)"
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(CORPUS, 300)


@pytest.fixture(scope="module")
def chat(tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tokenizer)


@pytest.fixture
def guess() -> Iterator[InCode]:
    world = InCode(Guess(), limits=BoxLimits(seconds=30.0), max_calls=10)
    begin(world, world.task("train", 0))
    yield world
    world.close()


def say(world: Environment, code: str) -> StepResult:
    return advance(world, Action(text=code))


def acts(environment: Environment, _rng: Random, _seen: Any) -> Action:
    assert isinstance(environment, Expert)
    return environment.expert_action()


class Shelf(Environment):
    """Sum the prices."""

    def reset(self, task: Task) -> str:
        self.prices = [task.rng.randint(1, 9) for _ in range(3)]
        return "Bind the sum to `total`."

    def objects(self) -> Mapping[str, Any]:
        return {"prices": self.prices, "table": {"a": [1.5, None]}}

    def wanted(self) -> tuple[str, ...]:
        return ("total", "extra")

    def take(self, objects: Mapping[str, Any]) -> StepResult:
        is_right = objects.get("total") == sum(self.prices)
        return StepResult(
            observation="right" if is_right else f"got {sorted(objects)}",
            reward=float(is_right),
            is_terminated=is_right,
        )


class Adder(Environment):
    """Add up."""

    def reset(self, task: Task) -> str:
        self.calls = 0
        return "Add up the numbers of a list with add."

    @tool
    def add(self, a: int, b: int = 1) -> str:
        """Add two numbers."""
        self.calls += 1
        return str(a + b)

    @tool
    def answer(self, value: int) -> str:
        """Answer."""
        return self.finish("done", reward=float(value == 6))


def test_golden_ids_of_code(chat: Chat) -> None:
    session = CodeAct(chat, max_tokens=40).open(
        Brief(task=Task(id="t", environment="t", seed=0, prompt="Find it."), instructions="Go.")
    )
    first = session.observe("A wall.")
    assert chat.encoder.decode(first.token_ids) == (
        "<|system|>Go.\n\nFind it.\n\nWrite Python:\n```python\nCODE\n```<|user|>A wall.<|assistant|>"
    )
    ids = session.write(Action(tool_calls=(ToolCall(name="guess", arguments={"number": 16}),)))
    assert chat.text(ids) == "```python\nprint(guess(number=16))\n```"
    action = session.read(Completion(token_ids=ids, logprobs=(), stop="stop"))
    assert action == Action(text="print(guess(number=16))")
    second = session.observe("lower")
    assert not second.starts_segment and chat.encoder.decode(second.token_ids) == "<|user|>lower<|assistant|>"
    assert second.token_ids == GOLDEN


GOLDEN = (3, 287, 4)
"""The ids of \"lower\" as an observation."""


def test_an_episode_in_one_turn_where_json_takes_several(guess: InCode) -> None:
    task = guess.task("train", 0)
    by_calls = play(Guess(), Guess().task("train", 0), expert)
    begin(guess, task)
    result = say(guess, SEARCH)
    assert (result.reward, result.is_terminated, result.is_success, result.is_valid) == (
        1.0,
        True,
        True,
        True,
    )
    assert isinstance(result.observation, str) and result.observation.endswith("correct")
    assert result.observation.count("er\n") + 1 == len(by_calls.rewards) > 1
    assert guess.instructions() == (
        "Find the hidden number with as few guesses as you can.\n\nFunctions:\n"
        "guess(number: integer): Guess the hidden number."
    )


def test_variables_live_on_and_errors_are_told(guess: InCode) -> None:
    assert say(guess, "x = 2").observation == "(no output)"
    assert say(guess, "x + 1") == StepResult(observation="3")
    failed = say(guess, "x / 0")
    assert str(failed.observation).endswith("ZeroDivisionError: division by zero") and not failed.is_valid
    wrong = say(guess, "guess('a')")
    assert str(wrong.observation).endswith('ToolError: guess(number): expected integer, got "a"')
    assert not wrong.is_valid and [error.cause for error in wrong.tool_errors] == ["invalid_call"]
    caught = say(
        guess, "try:\n    guess()\nexcept ToolError as error:\n    print('caught', error)\nguess(99)"
    )
    assert (
        str(caught.observation).splitlines() == ["caught guess(number): missing", "'lower'"]
        and caught.is_valid
    )
    assert say(guess, "guess(x)").is_valid
    many = say(guess, "for n in range(40, 60): guess(n)")
    assert "more than 10 calls in one turn" in str(many.observation)
    assert not advance(guess, Action(text="x", error="there is no code")).is_valid
    assert (
        advance(guess, Action(tool_calls=(ToolCall(name="guess", arguments={"number": 99}),))).observation
        == "lower"
    )


def test_code_that_passes_a_limit_is_stopped_and_told() -> None:
    world = InCode(Guess(), limits=BoxLimits(seconds=0.5))
    begin(world, world.task("train", 0))
    assert str(say(world, "print('a')\nwhile True: pass").observation) == (
        "a\nThe code was stopped: it took too long. Its variables are lost."
    )
    world.close()
    world.close()
    with pytest.raises(DataError, match="got no episode"):
        world.retrieve("x")


def test_a_world_of_words_has_an_action_to_call() -> None:
    world = InCode(KeyDoor(rooms=1, distractors=0))
    assert [spec.name for spec in world.tools()] == ["act", "legal_actions"]
    task = world.task("train", 0)
    begin(world, task)
    assert "wait" in str(say(world, "legal_actions()").observation)
    assert not say(world, "act('fly')").is_valid
    episode = play(world, task, expert)
    assert episode.is_success and episode.total == 1
    assert play(world, task, noop, 2).total == 0
    world.close()


def test_two_episodes_at_once_share_nothing() -> None:
    first, second = InCode(Guess()), InCode(Guess())
    for world in (first, second):
        begin(world, world.task("train", 0))
    say(first, "x = 1")
    assert "NameError" in str(say(second, "x").observation)
    begin(first, first.task("train", 0))
    assert "NameError" in str(say(first, "x").observation)
    first.close()
    second.close()


def test_objects_go_in_and_come_out() -> None:
    world = InCode(Shelf(), shows_state=True, limits=BoxLimits(seconds=30.0))
    begin(world, world.task("train", 0))
    assert world.retrieve("table") == {"a": [1.5, None]}
    assert say(world, "prices = list(prices)").observation == "Variables: prices: list"
    wrong = say(world, "total = -1; extra = {1}")
    assert wrong.observation == "got ['total']\nVariables: total: int, extra: set"
    right = say(world, "total = sum(prices)\nprint('ok')")
    assert (right.observation, right.reward, right.is_terminated) == ("ok\nright", 1.0, True)
    world.close()


def test_a_restored_state_has_its_variables_again_and_calls_nothing() -> None:
    first, second = (InCode(Guess(high=9), limits=BoxLimits(seconds=30.0)) for _ in range(2))

    def inside(world: InCode) -> str:
        assert isinstance(world, Snapshot) and isinstance(world.inner, StateKey)
        return world.inner.state_key()

    begin(first, first.task("train", 0))
    say(first, "import random\nboth = [random.random()]\nalias = both\nseen = [guess(number=9)]")
    saved, at = first.snapshot(), first.state_key()
    say(first, "both = seen = None")
    begin(second, second.task("train", 5))
    for world in (first, second):
        world.restore(saved)
        assert world.state_key() == at and inside(world) == inside(first)
        told = say(world, "alias.append(1)\nprint(both[0] == alias[0], len(both), seen, random.random())")
        assert str(told.observation).startswith("True 2 ['")
        assert inside(world) == inside(first), "what was guessed is not guessed again"
    assert first.retrieve("seen") == second.retrieve("seen") and first.state_key() == second.state_key()
    first.close()
    second.close()


def test_a_state_of_lost_variables_has_none_and_code_that_is_not_repeated_is_a_fault() -> None:
    world = InCode(Guess(), limits=BoxLimits(seconds=30.0))
    begin(world, world.task("train", 0))
    say(world, "x = 1")
    say(world, "import os; os._exit(0)")
    world.restore(world.snapshot())
    assert "NameError" in str(say(world, "print(x)").observation)
    say(world, "import time; print(time.time_ns())")
    world.restore(world.snapshot())
    with pytest.raises(
        EnvironmentFault, match=r"did not do what it had done; let code depend on its variables"
    ):
        say(world, "print(1)")
    world.close()


@pytest.mark.parametrize("withhold", [False, True])
def test_long_output_is_cut_or_withheld_and_said_to_be(withhold: bool) -> None:
    world = InCode(Guess(), max_output=10, withhold=withhold)
    begin(world, world.task("train", 0))
    told = "(50 characters, more than 10, were withheld; print less)"
    shown = "xxxxxxxxxx\n... (40 more characters; print less)"
    assert say(world, "print('x' * 50)").observation == (told if withhold else shown)
    assert say(world, "print('x' * 10)").observation == "x" * 10
    assert str(say(world, "nobody").observation).startswith("Traceback"), "an error is cut, never withheld"
    world.close()


class Clock(Environment):
    """Say the time, which is an object of the environment and goes on when it is asked for."""

    def reset(self, task: Task) -> str:
        self.hands: Any = {"hour": 0, "ticks": [0.0]}
        return "Wait."

    def objects(self) -> Mapping[str, Any]:
        return {"clock": self.hands, "day": 1}

    @tool
    def wait(self) -> str:
        """Wait."""
        self.hands["hour"] += 1
        self.hands["ticks"].append(-0.0)
        return "later"

    @tool
    def stop(self) -> str:
        """Stop the clock."""
        self.hands = [0]
        return "stopped"


def test_what_the_environment_changes_is_bound_anew_also_in_a_new_process() -> None:
    world = InCode(Clock(), limits=BoxLimits(seconds=30.0))
    begin(world, world.task("train", 0))
    assert say(world, "mine = clock; day = 7; print(wait()); print(mine)").observation == (
        "later\n{'hour': 0, 'ticks': [0.0]}"
    )
    told = say(world, "print(mine is clock, clock, day)")
    assert told.observation == "False {'hour': 1, 'ticks': [0.0, -0.0]} 7", (
        "what code bound to another name stays"
    )
    assert say(world, "same = clock").is_valid and say(world, "print(same is clock)").observation == "True"
    say(world, "import os; os._exit(0)")
    assert say(world, "print(clock['hour'], day)").observation == "1 1", "and a new process has it as it is"
    say(world, "stop()")
    with pytest.raises(
        EnvironmentFault, match=r"got clock as list, which was dict; let an object keep its type"
    ):
        say(world, "print(1)")
    world.close()


def test_a_restored_state_has_its_objects_as_they_were_bound() -> None:
    world = InCode(LedgerWorld(rows=4, changes=True, ask="sum"), limits=BoxLimits(seconds=30.0))
    begin(world, world.task("train", 0))
    assert isinstance(world, Snapshot)
    say(world, "old = rows")
    earlier = world.snapshot()
    say(world, "print(refresh())")
    say(world, "seen = [old == rows, rows is old]")
    saved = world.snapshot()
    say(world, "rows.clear(); old.clear(); seen = None")
    world.restore(saved)
    assert say(
        world, "print(seen, len(rows), len(old), sum(a != b for a, b in zip(rows, old)))"
    ).observation == ("[False, False] 4 4 1")
    world.restore(earlier)
    assert say(world, "print(rows is old)").observation == "True", "nothing had changed by then"
    world.close()


def draw_json(rng: Random, depth: int = 3) -> Any:
    """Return an object that has a JSON form."""
    kinds: list[Any] = [
        None, True, False, -0.0, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 2**70, -1, "", "\u00e9\u6f22\U0001f600",
        'a"b\\c\n\x00', "\ud800", rng.random(), rng.randint(-99, 99),
    ]  # fmt: skip
    if depth and rng.random() < 0.6:
        parts = [draw_json(rng, depth - 1) for _ in range(rng.randrange(4))]
        return parts if rng.random() < 0.5 else {f"k{n}\u00df": part for n, part in enumerate(parts)}
    return rng.choice(kinds)


def test_500_objects_come_back_as_they_went_in() -> None:
    rng = Random(1)
    given = [draw_json(rng) for _ in range(500)]
    with PythonProcess(BoxLimits(seconds=30.0), objects={"given": given}) as python:
        assert not python.run("kept = list(given); shared = [kept, kept]; shared[0].append(1)").error
        assert repr(python.get("kept")) == repr([*given, 1])
        assert repr(python.get("shared")) == repr([[*given, 1], [*given, 1]]), "an alias is followed"
        for broken in ("float('nan')", "{1}", "[given, object()]"):
            python.run(f"broken = {broken}")
            with pytest.raises(DataError, match="no JSON form"):
                python.get("broken")
    with pytest.raises(DataError, match="no JSON form"):
        PythonProcess(objects={"x": float("nan")})


def test_no_detour_of_imports_leads_out_of_the_box(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("outside")
    with PythonProcess(BoxLimits(seconds=30.0)) as python:
        for way in (
            "import os.path as p; seen = p.exists",
            "seen = __import__('importlib').import_module('os').path.exists",
            "seen = [c for c in object.__subclasses__() if c.__name__ == '_wrap_close'][0].__init__"
            ".__globals__['stat']",
            "import subprocess; seen = lambda path: subprocess.run(['/bin/cat', path], capture_output=True).stdout",
        ):
            found = python.run(
                f"{way}\ntry: print(bool(seen({str(secret)!r})))\nexcept OSError: print(False)"
            )
            assert found.output == "False\n", way


ADD = """def add_all(numbers):
    '''Add up the numbers of a list.'''
    total = 0
    for n in numbers: total = int(add(total, n))
    return total"""
TWICE = "def double(number):\n    '''Return a number twice.'''\n    return 2 * number"


def test_functions_are_told_found_and_called_and_no_episode_writes_them(chat: Chat, tmp_path: Path) -> None:
    grown = ActionLibrary()
    grown.learn(Adder().task("train", 0), [ADD, TWICE, "def f(): return look()"], {"add", "look"})
    path = tmp_path / "actions.jsonl"
    grown.bank.save(path)
    agent = CodeAct(chat, library=str(path), shown=1, seconds=30.0)
    before = agent.shelf.bank.digest()
    assert find_shelf(Window(agent, turns=2)) is agent.shelf and agent.shelf.bank.is_frozen
    world = equip(agent, Adder())
    begin(world, world.task("train", 2))
    told = world.instructions()
    assert "add_all(numbers): Add up the numbers of a list." in told and "double(" not in told
    assert "find_functions(wanted: string)" in told
    found = say(
        world, "print(find_functions('a number twice'), find_functions('look'), find_functions('zebra'))"
    )
    assert "double(number): Return a number twice." in str(found.observation)
    assert "f()" not in str(found.observation), "there is no tool look here"
    assert str(found.observation).endswith("none fits none fits")
    assert say(world, f"{TWICE.replace('double', 'other')}\nanswer(add_all([1, double(1), 3]))").is_success
    assert agent.shelf.bank.digest() == before and path.read_bytes().count(b"\n") == 3
    world.close()


def test_who_writes_no_code_has_no_library(chat: Chat) -> None:
    with pytest.raises(UsageError, match="library of an agent: got PlainText, which writes no code"):
        find_shelf(PlainText(chat))
    bare = equip(CodeAct(chat, seconds=30.0), Adder())
    begin(bare, bare.task("train", 0))
    assert "find_functions" not in bare.instructions()
    bare.close()


@pytest.mark.parametrize("make", [Guess, KeyDoor])
def test_demonstrations_are_code_and_a_script_repeats_them(chat: Chat, make: type[Environment]) -> None:
    agent: Agent = CodeAct(chat, seconds=30.0)
    rollout = Rollout(agent, make, None)
    (group,) = rollout.demonstrations([make().task("train", 4)], acts, seed=1)
    rollout.close()
    known = group.trajectories[0]
    assert known.outcome == Score(value=1.0, is_success=True)
    assert all(turn.action.text.startswith("print(") and turn.is_valid for turn in known.turns)
    said = iter([turn.completion.token_ids for turn in known.turns])

    def script(_request: Request, _stream: tuple[int, ...]) -> tuple[int, ...]:
        return next(said)

    again = Rollout(agent, make, Scripted(script))
    (group,) = again.groups([known.task], size=1, seed=3)
    again.close()
    assert group.trajectories[0].outcome == known.outcome
    for turn, other in zip(known.turns, group.trajectories[0].turns, strict=True):
        assert (turn.prompt_ids, turn.action, turn.reward) == (other.prompt_ids, other.action, other.reward)


def test_a_noisy_expert_errs_in_code() -> None:
    world = InCode(KeyDoor(rooms=1), limits=BoxLimits(seconds=30.0))
    begin(world, world.task("train", 0))
    action = noisy(1.0)(world, Random(0), ("",))
    assert action.text.startswith("print(act(") and advance(world, action).is_valid
    world.close()


def test_a_missing_sandbox_stops_the_run_and_a_lost_one_is_the_tool_s_failure(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise SandboxError("running code in a sandbox needs bwrap: it is not installed; install it")

    engine = Scripted(lambda _request, _stream: chat.write("```python\nguess(1)\n```"))
    rollout = Rollout(CodeAct(chat), Guess, engine, limits=Limits(max_failure_share=1.0, attempts=1))
    monkeypatch.setattr("quintain.safety.box.require", missing)
    (group,) = rollout.groups([Guess().task("train", 0)], size=2, seed=0)
    rollout.close()
    for trajectory in group.trajectories:
        failure = trajectory.outcome
        assert isinstance(failure, Failure)
        assert (failure.owner, failure.kind) == ("tool", "sandbox") and "needs bwrap" in failure.message
    assert group.scored == ()
    monkeypatch.setattr("quintain.agents.code.require", missing)
    with pytest.raises(SandboxError, match="needs bwrap"):
        Rollout(CodeAct(chat), Guess, engine).groups([Guess().task("train", 0)], size=1, seed=0)


def test_only_harnesses_of_code_change_an_environment(chat: Chat) -> None:
    @dataclass(frozen=True)
    class Wrapping:
        agent: Agent

        def open(self, brief: Brief) -> Session:
            return self.agent.open(brief)

    plain = Guess()
    assert isinstance(equip(Wrapping(agent=CodeAct(chat)), plain), InCode)
    assert isinstance(equip(Wrapping(agent=Wrapping(agent=CodeAct(chat))), Shelf()), InCode)
    assert equip(Wrapping(agent=PlainText(chat)), plain) is plain


def test_calls_as_code_by_value() -> None:
    calls = (ToolCall(name="f", arguments={"a": "x'y", "b": [1, None, True]}), ToolCall(name="g"))
    assert code_of(Action(tool_calls=calls)) == 'print(f(a="x\'y", b=[1, None, True]))\nprint(g())'
    assert code_of(Action(text="go north"), has_tools=False) == "print(act('go north'))"


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"max_calls": -1}, {"shown": -1}, {"style": "html"}])
def test_options_that_make_no_sense(chat: Chat, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="harness code: got "):
        CodeAct(chat, **wrong)
