"""Texts of 10 MB from an environment: what is tokenised of them is bounded, counted in characters, not in seconds."""

from collections.abc import Callable
from typing import Any

import pytest

from quintain.agents.harness import JsonTools, PlainText
from quintain.engines.scripted import Scripted
from quintain.environments.boundary import check_instructions, check_tools, tasks_of
from quintain.environments.protocol import Environment, advance, begin, check_result
from quintain.environments.sizes import MAX_CHARACTERS, MAX_PARTS, cut_parts, cut_text
from quintain.environments.tools import tool
from quintain.errors import EnvironmentFault
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.views import check_actions
from quintain.text.chat import Chat
from quintain.text.encoder import TextEncoder
from quintain.text.tokenizer import train_tokenizer
from quintain.types import (
    Action,
    CallResult,
    Failure,
    Image,
    Split,
    StepResult,
    Task,
    Text,
    ToolSpec,
    as_text,
)

LONG = "a page " * (10_000_000 // 7)
ROOM = 4096
"""Characters for what is said around an observation."""


class Page(Environment):
    """Go."""

    max_turns = 2
    at_reset: Any = LONG
    at_step: Any = LONG

    def reset(self, task: Task) -> Any:
        return self.at_reset

    def step(self, action: Action) -> StepResult:
        return StepResult(observation=self.at_step)


class Reader(Page):
    """Read."""

    def reset(self, task: Task) -> Any:
        return "Read."

    @tool
    def read(self) -> str:
        """Read."""
        return LONG

    def step(self, action: Action) -> StepResult:
        return Environment.step(self, action)


class Around(Page):
    """Go."""

    def __init__(self, inner: Page) -> None:
        self.inner = inner

    def reset(self, task: Task) -> Any:
        return begin(self.inner, task)

    def step(self, action: Action) -> StepResult:
        return advance(self.inner, action)


class Parts(Page):
    """Go."""

    at_reset = at_step = (Text(text=LONG), Text(text=LONG))


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(
        train_tokenizer(["<|system|>Go.<|user|>a page of more characters<|assistant|>left<|end|>"], 300)
    )


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all texts that a tokenizer encodes."""
    lengths: list[int] = []
    encode: Callable[..., tuple[int, ...]] = TextEncoder._encode  # pyright: ignore[reportPrivateUsage]

    def note(self: TextEncoder, text: str, continues: bool) -> tuple[int, ...]:
        lengths.append(len(text))
        return encode(self, text, continues)

    monkeypatch.setattr(TextEncoder, "_encode", note)
    return lengths


@pytest.mark.slow
@pytest.mark.parametrize("world", [Page, Parts, Reader])
def test_what_is_tokenised_of_an_observation_is_bounded(
    world: type[Page], chat: Chat, encoded: list[int]
) -> None:
    say = '<tool_call>{"name": "read", "arguments": {}}</tool_call>' if world is Reader else "left"
    agent = JsonTools(chat) if world is Reader else PlainText(chat)
    engine = Scripted(lambda request, stream: chat.write(say), max_length=1 << 30)
    rollout = Rollout(agent, world, engine, limits=Limits(attempts=1))
    (group,) = rollout.groups([Task(id="t/0", environment="page", seed=0)], size=1, seed=0)
    (episode,) = group.trajectories
    assert not isinstance(episode.outcome, Failure) and len(episode.turns) == 2
    seen = [as_text(turn.observation) for turn in episode.turns]
    assert "[8,951,421 more characters were cut]" in "".join(seen)
    assert 0 < sum(encoded) < 2 * (MAX_CHARACTERS + ROOM)


def test_a_text_is_cut_where_it_is_too_long() -> None:
    assert cut_text("x" * 5, 5) == "x" * 5
    assert cut_text("x" * 6, 5) == "xxxxx\n[1 more characters were cut]"
    picture = Image(data=b"x", media_type="image/png")
    short = (Text(text="a"), picture, CallResult(text="b", call=1))
    assert cut_parts(short) == short
    long = "y" * (MAX_CHARACTERS - 1)
    first, second, third, last = cut_parts((Text(text=long), *short[1:], Text(text="cd")))
    assert isinstance(first, Text) and first.text == long and second is picture
    assert third == CallResult(text="b", call=1)
    assert last == Text(text="\n[2 more characters were cut]")


@pytest.mark.parametrize("world", [Page, Parts])
def test_what_an_environment_inside_of_another_shows_is_cut_and_counted_once(world: type[Page]) -> None:
    task, act = Task(id="t/0", environment="page", seed=0), Action(text="x")
    alone, within = world(), Around(Around(world()))
    assert begin(within, task) == begin(alone, task)
    assert advance(within, act).observation == advance(alone, act).observation


def test_parts_that_are_short_stay_the_same_object() -> None:
    world = Page()
    world.at_step = (Text(text="a"), Text(text="b"))
    result = StepResult(observation=world.at_step)
    assert check_result(world, result, "step") is result


def test_environments_that_are_asked_directly() -> None:
    task = Task(id="t/0", environment="page", seed=0)
    for text in (begin(Page(), task), advance(Page(), Action(text="x")).observation):
        assert isinstance(text, str) and len(text) < MAX_CHARACTERS + ROOM
    world = Page()
    world.at_step = [Text(text="a"), Text(text="b")]
    assert advance(world, Action(text="x")).observation == (Text(text="a"), Text(text="b"))
    world.at_step = [Text(text="a")] * (MAX_PARTS + 1)
    with pytest.raises(EnvironmentFault, match="at most 4,096 parts: got 4,097"):
        advance(world, Action(text="x"))


class Wordy(Page):
    """Go."""

    at_reset = at_step = ""

    def instructions(self) -> str:
        return LONG

    def tools(self) -> tuple[ToolSpec, ...]:
        return (ToolSpec(name="a", description=LONG, parameters={}),)

    def legal_actions(self) -> tuple[str, ...]:
        return ("a",) * 10_000_000

    def task(self, split: Split, index: int) -> Task:
        return Task(id="t/0", environment="page", seed=0, prompt=LONG)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (check_instructions, "page.instructions|wordy.instructions"),
        (check_tools, "wordy.tools"),
        (check_actions, "Wordy.legal_actions"),
        (lambda _: tasks_of(Wordy)().task("train", 0), "environment Wordy: the prompt of task 0"),
    ],
)
def test_what_is_said_once_is_refused(ask: Callable[[Any], object], what: str) -> None:
    with pytest.raises(EnvironmentFault, match=rf"^({what}): got [\d,]+ characters; give at most 1,048,576$"):
        ask(Wordy())
