import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents.harness import Choice, JsonTools, PlainText, ReAct, choices, for_environment
from quintain.agents.protocol import Agent, Brief, Prompt, Session
from quintain.environments.protocol import Environment
from quintain.environments.tools import tool
from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, Message, Observation, Task, ToolCall, ToolSpec, as_content

CORPUS = [
    "<|system|>Go.<|user|>A wall.<|assistant|>left<|end|>",
    "<|assistant|>right<|end|>",
    "<|assistant|>go on<|end|><|tool|>higher",
]
LEGAL = ("left", "right", "go on", "go on left", "done")
GOLDEN: dict[str, tuple[int, ...]] = {
    "plain": (2, 265, 19, 204, 204, 55, 74, 70, 72, 77, 226, 78, 89, 19, 3, 281, 19, 4),
    "wall": (3, 281, 19, 4),
    "tool": (5, 278, 4),
}
"""Exact prompt ids: the first turn of plain text, a later "A wall.", and "higher" from a tool."""
GUESS = ToolSpec(
    name="guess", description="Guess.", parameters={"properties": {"number": {"type": "integer"}}}
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(CORPUS, 300)


@pytest.fixture(scope="module")
def chat(tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tokenizer)


def brief(prompt: str = "", tools: tuple[ToolSpec, ...] = (), legal: tuple[str, ...] = ()) -> Brief:
    task = Task(id="t/train/0", environment="t", seed=0, prompt=prompt)
    return Brief(task=task, instructions="Go.", tools=tools, legal_actions=legal)


def completion(ids: tuple[int, ...]) -> Completion:
    return Completion(token_ids=ids, logprobs=tuple(-1.0 for _ in ids), stop="stop")


def read(session: Session, ids: tuple[int, ...]) -> Action:
    return session.read(completion(ids))


def sampled_under(prompt: Prompt, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return the prefix of `wanted` that sampling gives: it ends at the first stop token or the limit."""
    for index, token in enumerate(wanted[: prompt.sampling.max_tokens]):
        if token in prompt.sampling.stop_ids:
            return wanted[: index + 1]
    return wanted[: prompt.sampling.max_tokens]


def test_golden_ids_of_plain_text(chat: Chat) -> None:
    session = PlainText(chat, temperature=0.5, max_tokens=8).open(brief("Reach it."))
    first = session.observe("A wall.")
    assert chat.encoder.decode(first.token_ids) == "<|system|>Go.\n\nReach it.<|user|>A wall.<|assistant|>"
    assert first.token_ids == GOLDEN["plain"]
    assert first.starts_segment
    assert (first.sampling.temperature, first.sampling.max_tokens) == (0.5, 8)
    assert first.sampling.stop_ids == {1}
    ids = session.write(Action(text="go left"))
    assert read(session, ids) == Action(text="go left")
    second = session.observe("A wall.", legal_actions=("left",))
    assert second.token_ids == GOLDEN["wall"]
    assert not second.starts_segment
    assert read(session, ids[:-1]) == Action(text="go left")
    assert session.observe("A wall.").token_ids == (1, *GOLDEN["wall"])


def test_no_system_message_without_instructions(chat: Chat) -> None:
    empty = Brief(task=Task(id="t", environment="t", seed=0), instructions="")
    assert PlainText(chat).open(empty).observe("A wall.").token_ids == GOLDEN["wall"]


def test_golden_ids_of_a_choice(chat: Chat) -> None:
    session = Choice(chat).open(brief(legal=LEGAL))
    first = session.observe("A wall.")
    assert chat.encoder.decode(first.token_ids) == "<|system|>Go.<|user|>A wall.<|assistant|>"
    left = session.write(Action(text="left"))
    assert len(left) == 1
    assert left[0] in first.sampling.stop_ids
    assert read(session, left) == Action(text="left")
    second = session.observe("A wall.", LEGAL)
    assert second.token_ids == (1, *GOLDEN["wall"])
    assert not second.starts_segment
    wrong = read(session, (7,))
    assert wrong.error is not None
    assert wrong.error.startswith("not a legal action: got ")
    assert session.observe("A wall.").token_ids == (1, *GOLDEN["wall"])
    assert read(session, (*left, 1)) == Action(text="left")
    assert session.observe("A wall.").token_ids == GOLDEN["wall"]


def test_every_choice_is_written_as_it_would_be_sampled(chat: Chat) -> None:
    session = Choice(chat).open(brief())
    for legal in (LEGAL, ("go", "go on"), ("on", "go on", "go on go"), ("done",), (" left ", "")):
        prompt = session.observe("A wall.", legal)
        assert chat.stop_ids <= prompt.sampling.stop_ids
        for action in legal:
            ids = session.write(Action(text=action))
            assert sampled_under(prompt, ids) == ids
            assert ids[-1] in prompt.sampling.stop_ids
            assert not prompt.sampling.stop_ids & set(ids[:-1])
            assert chat.text(ids).strip() == action.strip()
        assert prompt.sampling.max_tokens == max(len(session.write(Action(text=action))) for action in legal)
        assert read(session, session.write(Action(text=legal[0]))) == Action(text=legal[0])


def test_what_ends_a_choice(chat: Chat) -> None:
    left, right, go_on, longer = (chat.answer_ids(text) for text in ("left", "right", "go on", "go on left"))
    assert [len(ids) for ids in (left, right, go_on)] == [1, 1, 1]
    assert longer[:1] == go_on
    simple = choices(chat, ("left", "right"))
    assert simple.stop_ids == {1, *left, *right}
    assert simple.written == {"left": left, "right": right}
    assert simple.longest == 1
    prefix = choices(chat, ("go on", "go on left"))
    assert prefix.stop_ids == {1, longer[-1]}
    assert prefix.written == {"go on": (*go_on, 1), "go on left": longer}
    assert prefix.longest == len(longer)
    assert choices(chat, ()).stop_ids == {1}


def test_legal_actions_can_change_and_otherwise_stay(chat: Chat) -> None:
    session = Choice(chat, max_tokens=1).open(brief(legal=("left", "go on left")))
    assert session.observe("A wall.").sampling.max_tokens == 1
    assert (
        read(session, chat.write("right")).error
        == "not a legal action: got 'right'; choose one of: left, go on left"
    )
    session.observe("A wall.", ("right",))
    assert read(session, chat.answer_ids("right")) == Action(text="right")
    session.observe("A wall.")
    assert read(session, chat.write("right")) == Action(text="right")
    with pytest.raises(
        DataError, match="writing a choice: not a legal action: got 'left'; choose one of: right"
    ):
        session.write(Action(text="left"))


def test_a_choice_can_list_its_actions(chat: Chat) -> None:
    session = Choice(chat, list_actions=True).open(brief())
    prompt = session.observe("A wall.", ("left", "go on"))
    expected = "<|system|>Go.<|user|>A wall.\nActions: left, go on<|assistant|>"
    assert chat.encoder.decode(prompt.token_ids) == expected


def test_a_choice_needs_legal_actions(chat: Chat) -> None:
    with pytest.raises(UsageError, match="got none from the environment; use PlainText"):
        Choice(chat).open(brief()).observe("A wall.")


def test_what_others_chose_elsewhere_is_not_checked(chat: Chat) -> None:
    session = Choice(chat).open(brief())
    session.show([Message(role="user", content=as_content("A wall."))])
    assert read(session, chat.write(" dig ")) == Action(text="dig")
    session.observe("A wall.", ("left",))
    assert read(session, chat.write("dig")).error == "not a legal action: got 'dig'; choose one of: left"


def test_golden_ids_of_json_tools(chat: Chat) -> None:
    session = JsonTools(chat).open(brief(tools=(GUESS,)))
    first = session.observe("A wall.")
    parameters = '{"properties": {"number": {"type": "integer"}}}'
    listed = f'{{"name": "guess", "description": "Guess.", "parameters": {parameters}}}'
    assert chat.encoder.decode(first.token_ids) == (
        f"<|system|>Go.\nTools:\n{listed}<|user|>A wall.<|assistant|>"
    )
    calls = (
        ToolCall(name="guess", arguments={"number": 16}),
        ToolCall(name="guess", arguments={"number": 2}),
    )
    ids = session.write(Action(tool_calls=calls))
    text = (
        '<tool_call>{"name": "guess", "arguments": {"number": 16}}</tool_call>'
        '<tool_call>{"name": "guess", "arguments": {"number": 2}}</tool_call>'
    )
    assert chat.encoder.decode(ids) == text + "<|end|>"
    call_start, call_end = cast(
        "list[int]", chat.encoder.encode_marked("<tool_call></tool_call>", continues=True)
    )
    assert (ids.count(call_start), ids.count(call_end)) == (2, 2)
    assert read(session, ids) == Action(text=text, tool_calls=calls)
    assert session.observe("higher").token_ids == GOLDEN["tool"]
    assert read(session, chat.write("<tool_call>{}</tool_call>")).error is not None
    assert chat.encoder.decode(session.observe("Error").token_ids) == "<|user|>Error<|assistant|>"
    assert read(session, session.write(Action(text="I give up."))) == Action(text="I give up.")


def test_tool_calls_are_written_the_way_the_template_shows_them(tokenizer: PreTrainedTokenizerFast) -> None:
    template = (
        "{% if tools %}{{ tools[0].function | tojson }}<|end|>{% endif %}"
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ '<tool_call>\n' + (c.function | tojson) + '\n</tool_call>' }}{% endfor %}<|end|>{% endfor %}"
    )
    other = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, eos_token="<|end|>", chat_template=template
    )
    session = JsonTools(Chat(other)).open(brief(tools=(GUESS,)))
    session.observe("A wall.")
    action = Action(tool_calls=(ToolCall(name="guess", arguments={"number": 1}),))
    ids = session.write(action)
    assert (
        other.decode(list(ids))
        == '<tool_call>\n{"name": "guess", "arguments": {"number": 1}}\n</tool_call><|end|>'
    )
    assert read(session, ids).tool_calls == action.tool_calls


def test_golden_ids_of_react(chat: Chat) -> None:
    session = ReAct(chat).open(brief())
    text = chat.encoder.decode(session.observe("A wall.").token_ids)
    assert text == (
        "<|system|>Go.\n\nAnswer with one thought and one action:\nThought: why\nAction: the action"
        "<|user|>A wall.<|assistant|>"
    )
    assert read(session, chat.write("Thought: a wall\nAction: go left")) == Action(text="go left")
    assert session.observe("A wall.").token_ids == GOLDEN["wall"]
    assert read(session, session.write(Action(text="go on"))) == Action(text="go on")


def test_a_verbose_demonstration_repeats_its_instructions(chat: Chat) -> None:
    told = replace(brief(), instructions="Go on. Is it far? Keep to the left!")
    verbose, action = ReAct(chat, filler=2), Action(text="go left")
    session = verbose.open(told)
    session.observe("A wall.")
    written = session.write(action)
    thought, _, acted = chat.text(written).partition("\n")
    assert acted == "Action: go left" and read(session, written) == action
    assert re.fullmatch(r"Thought: ((Go on\.|Is it far\?|Keep to the left!) ?){2}", thought)
    assert verbose.open(told).write(action) == written
    tasks = [replace(told, task=replace(told.task, id=f"t/train/{index}")) for index in range(40)]
    drawn = {chat.text(verbose.open(each).write(action)) for each in tasks}
    assert len(drawn) == 9
    assert chat.text(verbose.open(replace(told, instructions="")).write(action)) == "Action: go left"
    with pytest.raises(UsageError, match="filler of react: got -1; give 0 or more sentences"):
        ReAct(chat, filler=-1).open(told)


def test_react_with_tools_makes_a_call(chat: Chat) -> None:
    session = ReAct(chat).open(brief(tools=(GUESS,)))
    text = chat.encoder.decode(session.observe("A wall.").token_ids)
    assert '\n{"name": "guess"' in text
    assert text.endswith("Action: name[arguments as a JSON object]<|user|>A wall.<|assistant|>")
    call = ToolCall(name="guess", arguments={"number": 3})
    assert read(session, chat.write("Action: guess[3]")).tool_calls == (call,)
    assert session.observe("A wall.").token_ids == GOLDEN["wall"]
    written = session.write(Action(tool_calls=(call,)))
    assert chat.text(written) == 'Action: guess[{"number": 3}]'
    assert read(session, written).tool_calls == (call,)


class Bare(Environment):
    """Do nothing."""

    def reset(self, task: Task) -> Observation:
        return ""


class Listed(Bare):
    """Choose."""

    def legal_actions(self) -> tuple[str, ...]:
        return ("left",)


class Tooled(Listed):
    """Call."""

    @tool
    def look(self) -> str:
        """Look around."""
        return ""


@pytest.mark.parametrize(
    ("environment", "kind"), [(Bare(), PlainText), (Listed(), Choice), (Tooled(), JsonTools)]
)
def test_the_harness_that_fits(chat: Chat, environment: Environment, kind: type[Any]) -> None:
    agent = for_environment(chat, environment, temperature=0.0, max_tokens=3)
    assert isinstance(agent, kind)
    assert agent == kind(chat, temperature=0.0, max_tokens=3)


@pytest.mark.parametrize("make", [PlainText, ReAct, JsonTools, Choice])
def test_sampling_that_makes_no_sense_is_refused(chat: Chat, make: Callable[..., Agent]) -> None:
    with pytest.raises(
        UsageError, match=r"temperature of sampling: got -1; give 0 \(greedy\) or a positive number"
    ):
        make(chat, temperature=-1).open(brief())
    with pytest.raises(UsageError, match="temperature of sampling: got nan"):
        make(chat, temperature=float("nan")).open(brief())
    with pytest.raises(UsageError, match="max_tokens of a completion: got 0; give at least 1"):
        make(chat, max_tokens=0).open(brief())
