"""What a chat template writes for the answers of the probe chats, by the difference of two renderings."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.text.foreign import render_template

from quintain.text.probe_chats import PROBE_TOOLS, PROBES
from quintain.text.reading import FormatSample
from quintain.types import Message, as_text

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": {
                **tool.parameters,
                "properties": {
                    name: {"description": name, **schema}
                    for name, schema in tool.parameters["properties"].items()
                },
            },
        },
    }
    for tool in PROBE_TOOLS
]
"""The tools of the probe chats; some templates want a description of each argument."""
CUTS = re.compile(
    r"(?:<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<turn\|>|<\|tool_response>|<\|END_OF_TURN_TOKEN\|>|<\|return\|>|<\|call\|>|<sep>"
    r"|<\|START_OF_TURN_TOKEN\|>|<\|role_end\|>|</assistant>|<end_of_sentence>|<｜hy_eos:opensource｜>|\[e~\[|<seed:eos>|<\|end_of_msg\|>|<\|eot\|>"
    r"|<\|assistant_end\|>|<\|end_of_text\|>|<end_of_turn>|</s>|<end_of_utterance>)[\s\S]*\Z"
    r"|(?:\s*(?:<\|end\|>|<\|calls\|>|<\|message_sep\|>|<SPECIAL_12>|<｜end▁of▁sentence｜>|<｜Assistant｜>))+\s*\Z"
)
"""What ends an answer, and all behind it."""
OPENED = {
    "<think>": "</think>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "Here are my reasoning steps:\n": "\n[BEGIN FINAL RESPONSE]\n",
}
ALONE = re.compile(r"[<\[][^<>\[\]]*\Z")


def as_record(message: Message, *, arguments_as_text: bool = False) -> dict[str, Any]:
    """Return `message` as templates take it."""
    record: dict[str, Any] = {"role": message.role, "content": as_text(message.content)}
    if message.reasoning:
        record |= {
            "reasoning_content": message.reasoning,
            "reasoning": message.reasoning,
            "thinking": message.reasoning,
        }
    if message.tool_calls:
        record["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments) if arguments_as_text else dict(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        record |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return record


def sample_template(source: str) -> dict[str, FormatSample]:
    """Return what the chat template `source` writes for each answer of the probe chats, but for those it refuses."""
    found: dict[str, FormatSample] = {}
    for name, chat in PROBES.items():
        for place, message in enumerate(chat):
            if message.role != "assistant":
                continue
            for as_json in (False, True):
                records = [as_record(entry, arguments_as_text=as_json) for entry in chat]
                sample = _sample(source, records, place, message)
                if sample is not None:
                    found[f"{name}/{place}"] = sample
                    break
    return found


def writes_calls(samples: Mapping[str, FormatSample]) -> bool:
    """Return whether a template writes calls where there are some."""
    with_calls = (sample.written for sample in samples.values() if sample.message.tool_calls)
    return any("Rome" in written or "IC 9" in written for written in with_calls)


def _sample(source: str, records: list[dict[str, Any]], place: int, message: Message) -> FormatSample | None:
    tools = TOOLS if any("tool_calls" in record for record in records) else []
    options: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "tools": tools}
    try:
        whole = render_template(source, records[: place + 1], **options)
        before = render_template(source, records[:place], **options)
        prompt = render_template(source, records[:place], prompt=True, **options)
    except Exception:  # a template may raise whatever its author thought of
        return None
    prompt, written = _behind(prompt, before, whole)
    return FormatSample(message, prompt, CUTS.sub("", written), PROBE_TOOLS if tools else ())


def _behind(prompt: str, before: str, whole: str) -> tuple[str, str]:
    """Return the prompt that `whole` goes on from, and how; a thought that the prompt opened is closed first."""
    if whole.startswith(prompt):
        return prompt, whole[len(prompt) :]
    size = next(
        (at for at, (one, other) in enumerate(zip(prompt, whole, strict=False)) if one != other), len(whole)
    )
    alone = ALONE.search(prompt[:size])
    size = alone.start() if alone else size
    tail, rest = prompt[size:], whole[size:]
    begun = prompt.removeprefix(before)
    if size < len(before) and begun and begun in rest:  # what was said before is written otherwise now
        at = whole.rindex(begun) + len(begun)
        return whole[:at], whole[at:]
    common = max((end for end in range(len(tail) + 1) if rest.startswith(tail[len(tail) - end :])), default=0)
    if rest[:common].strip():  # the prompt has a text before its end that moved
        return prompt, rest[common:]
    opened = next((mark for mark in OPENED if mark in tail and OPENED[mark].strip() not in tail), None)
    if opened is not None and not rest.lstrip().startswith(OPENED[opened]):
        return prompt, OPENED[opened] + rest
    if opened is not None:
        return prompt, rest
    return whole[:size], rest
