"""Small chat templates of three families: Hermes calls and thoughts, GLM's keys and values, harmony's channels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.text.test_chat_format import GLM_MARKS, HARMONY_MARKS, IM, QWEN, tokenizer_of
from transformers import PreTrainedTokenizerFast

from quintain.types import Message, ToolSpec, as_text

GLM = (
    "{%- if tools -%}<|system|>\n{{ tools | tojson }}{%- endif -%}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'assistant' -%}"
    "{{ '<|assistant|>\n<think>' + (m.reasoning_content or '') + '</think>' }}"
    "{%- if m.content -%}{{ '\n' + m.content }}{%- endif -%}"
    "{%- for c in m.tool_calls or [] -%}{{ '\n<tool_call>' + c.function.name }}"
    "{%- for k, v in c.function.arguments.items() -%}"
    "{{ '\n<arg_key>' + k + '</arg_key>\n<arg_value>' + (v if v is string else v | tojson) + '</arg_value>' }}"
    "{%- endfor -%}{{ '\n</tool_call>' }}{%- endfor -%}"
    "{%- elif m.role == 'tool' -%}"
    "{%- if loop.first or loop.previtem.role != 'tool' -%}{{ '<|observation|>' }}{%- endif -%}"
    "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{%- else -%}{{ '<|' + m.role + '|>\n' + m.content }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}"
)
"""No end of its own: an answer ends where the message after it begins."""
HARMONY = (
    "{%- if tools -%}{{ '<|start|>developer<|message|># Tools\n' + (tools | tojson) + '<|end|>' }}{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
    "{%- if m.thinking -%}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif -%}"
    "{%- if m.tool_calls -%}"
    "{%- if m.tool_calls | length > 1 -%}{{ raise_exception('one call at once') }}{%- endif -%}"
    "{%- if m.content -%}"
    "{{ '<|start|>assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}{%- endif -%}"
    "{%- for c in m.tool_calls -%}"
    "{{ '<|start|>assistant to=functions.' + c.function.name + '<|channel|>commentary json<|message|>'"
    " + (c.function.arguments | tojson) + '<|call|>' }}{%- endfor -%}"
    "{%- else -%}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content"
    " + ('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}{%- endif -%}"
    "{%- elif m.role == 'tool' -%}"
    "{{ '<|start|>functions.' + m.name + ' to=assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}"
    "{%- else -%}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}"
)
GLM_PLAIN = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
    "<tool_response>", "</tool_response>",
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A family of templates: the format its answers are read by, and a call with words as a model writes it."""

    template: str
    marks: tuple[str, ...]
    eos: str
    format: str
    ends: frozenset[str]
    call: str
    """Words and a call, ``Hm.`` and ``look(at="a")``, up to its end."""
    plain: tuple[str, ...] = GLM_PLAIN

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return a tokenizer of bytes with the family's marks and template."""
        return tokenizer_of(self.template, self.marks, self.eos, self.plain)


FAMILIES = {
    "qwen": Family(
        template=QWEN,
        marks=IM,
        eos="<|im_end|>",
        format="hermes",
        ends=frozenset({"<|im_end|>"}),
        call='Hm.\n<tool_call>\n{"name": "look", "arguments": {"at": "a"}}\n</tool_call><|im_end|>',
    ),
    "glm": Family(
        template=GLM,
        marks=GLM_MARKS,
        eos="<|endoftext|>",
        format="glm",
        ends=frozenset({"<|user|>", "<|observation|>", "<|endoftext|>"}),
        call="<think></think>\nHm.\n<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>a</arg_value>\n</tool_call><|observation|>",
    ),
    "harmony": Family(
        template=HARMONY,
        marks=HARMONY_MARKS,
        eos="<|return|>",
        format="harmony",
        ends=frozenset({"<|return|>", "<|call|>"}),
        call='<|channel|>commentary<|message|>Hm.<|end|><|start|>assistant to=functions.look<|channel|>commentary json'
        '<|message|>{"at": "a"}<|call|>',
    ),
}  # fmt: skip


def as_row(message: Message) -> dict[str, Any]:
    """Return `message` as users of transformers write it, with every name that templates have for a thought."""
    row: dict[str, Any] = {"role": message.role, "content": as_text(message.content)}
    if message.reasoning:
        row |= {"reasoning_content": message.reasoning, "thinking": message.reasoning}
    if message.tool_calls:
        row["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        row |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return row


def as_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return `tools` as users of transformers write them."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]
