"""What trained folders show and answer in plain transformers is what our chat and engine show and answer."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.text.families import FAMILIES, Family, as_row, as_tools
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.models.load import load
from quintain.models.save import save
from quintain.models.tiny import TinySize, build_tiny
from quintain.text.chat import Chat
from quintain.text.reading import attach_table
from quintain.text.settings import store_settings
from quintain.text.template_check import check_template
from quintain.types import Completion, Message, ToolCall, ToolSpec, as_content

LOOK = ToolSpec(
    name="look",
    description="Look.",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}},
)
USER = Message(role="user", content=as_content("Where?"))
CALL = ToolCall(name="look", arguments={"at": "a <b>"}, id="call00000")
CALLED = Message(role="assistant", content=as_content("Hm."), reasoning="I look.", tool_calls=(CALL,))
RESULT = Message(role="tool", content=as_content("sun"), tool_call_id=CALL.id, name="look")
SAID = Message(role="assistant", content=as_content("In the sun."))
AGAIN = Message(role="user", content=as_content("Sure?"))
EPISODE = (([USER], CALLED), ([RESULT], SAID))
MOST = 160
"""Tokens of an answer, which all answers end before."""


def streams_of(chat: Chat) -> list[tuple[list[int], list[bool]]]:
    """Return the streams of the episode, and which of their tokens are answers."""
    conversation = chat.conversation((LOOK,))
    found: list[tuple[list[int], list[bool]]] = []
    for given, answer in EPISODE:
        prompt = conversation.prompt(given)
        if prompt.starts_segment:
            found.append(([], []))
        written = conversation.write(answer).token_ids
        conversation.record(written, answer)
        found[-1][0].extend((*prompt.token_ids, *written))
        found[-1][1].extend([False] * len(prompt.token_ids) + [True] * len(written))
    return found


def train(model: PreTrainedModel, chat: Chat, steps: int) -> None:
    """Let `model` learn the answers of the episode by heart."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        for ids, is_answer in streams_of(chat):
            labels = torch.tensor([[i if said else -100 for i, said in zip(ids, is_answer, strict=True)]])
            loss = model(input_ids=torch.tensor([ids]), labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def saved(family: Family, folder: Path, steps: int, size: str | TinySize = "micro") -> Path:
    """Return a folder with a model of `family`, trained and saved as a run does."""
    tokenizer = family.tokenizer()
    chat = Chat(tokenizer)
    assert chat.format is not None and chat.format.name == family.format
    attach_table(tokenizer, chat.format)
    store_settings(tokenizer, end_ids=[*chat.stop_ids])
    model = build_tiny(tokenizer, size=size, seed=1)
    if steps:
        train(model, chat, steps)
    return save(model, tokenizer, folder)


def shown(tokenizer: Any, messages: list[Message]) -> list[int]:
    """Return the prompt that plain transformers makes of `messages`."""
    return tokenizer.apply_chat_template(
        [as_row(message) for message in messages],
        tools=as_tools((LOOK,)),
        add_generation_prompt=True,
        return_dict=False,
    )


def ends_in(folder: Path) -> set[int]:
    """Return the tokens at which whoever loads `folder` stops."""
    named = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    return {*named} if isinstance(named, list) else {named}


def read_by_table(tokenizer: Any, ids: list[int], prompt: list[int]) -> Message:
    """Return what plain transformers reads by the table of the folder."""
    row = tokenizer.parse_response(ids, prefix=prompt, tools=as_tools((LOOK,)))
    functions = [call["function"] for call in row.get("tool_calls") or []]
    return Message(
        role="assistant",
        content=as_content((row.get("content") or "").strip()),
        reasoning=(row.get("thinking") or "").strip(),
        tool_calls=tuple(ToolCall(name=each["name"], arguments=each["arguments"]) for each in functions),
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_the_families_are_followed(name: str) -> None:
    chat = Chat(FAMILIES[name].tokenizer())
    report = check_template(chat)
    assert report.is_followed, report.line
    assert {chat.encoder.decode([each]) for each in chat.stop_ids} == FAMILIES[name].ends


@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_ends_and_answers_in_plain_transformers(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    folder = saved(family, tmp_path / name, 0)
    plain: Any = AutoTokenizer.from_pretrained(folder)
    chat = Chat(load(str(folder)).tokenizer)
    assert ends_in(folder) == chat.stop_ids
    conversation, stream = chat.conversation((LOOK,)), list[int]()
    history: list[Message] = []
    for given, answer in (*EPISODE, ([AGAIN], SAID)):
        prompt = conversation.prompt(given)
        history += given
        stream = [*prompt.token_ids] if prompt.starts_segment else [*stream, *prompt.token_ids]
        assert stream == shown(plain, history), name
        written = [*conversation.write(answer).token_ids]
        ours = conversation.read(written)
        assert [(call.name, call.arguments) for call in ours.calls] == [
            (call.name, dict(call.arguments)) for call in answer.tool_calls
        ]
        assert read_by_table(plain, written, stream) == answer
        conversation.record(written, answer)
        history.append(answer)
        stream += written


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_trained_folder_answers_in_plain_transformers_as_in_our_engine(name: str, tmp_path: Path) -> None:
    folder = saved(FAMILIES[name], tmp_path / name, 60)
    plain: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    loaded = load(str(folder))
    chat = Chat(loaded.tokenizer)
    engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    conversation = chat.conversation((LOOK,))
    history: list[Message] = []
    for given, answer in EPISODE:
        prompt = conversation.prompt(given)
        history += given
        sampling = Sampling(temperature=0.0, max_tokens=MOST, stop_ids=chat.stop_ids)
        engine.submit(Request(session="s", prompt_ids=prompt.token_ids, seed=1, sampling=sampling))
        while not (replies := engine.advance()):
            pass
        completion = cast("Completion", replies[0].result)
        given_ids = shown(plain, history)
        with torch.no_grad():
            whole = model.generate(torch.tensor([given_ids]), do_sample=False, max_new_tokens=MOST)
        said = whole[0, len(given_ids) :].tolist()
        assert said == [*completion.token_ids], chat.encoder.decode(said)
        assert completion.stop == "stop" and said[-1] in chat.stop_ids
        assert read_by_table(plain, said, given_ids) == answer
        conversation.record(completion.token_ids)
        history.append(answer)
    engine.close()
