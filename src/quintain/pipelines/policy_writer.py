"""A model behind a chat endpoint writes a policy for the tools of an environment, which is then checked and narrowed.

It is told the tools with their schemas, what the user wants where that is said, and the form of a policy; it answers
with JSON. What is no policy, names what is no tool, contradicts itself, or forbids in place of allowing, is told to it
once, and is an error after that. Under a wider policy only what both allow is allowed (`quintain.safety.narrowing`), so
that a model that is talked into something can make a policy too narrow, and never too wide (Progent, 2504.11703).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from quintain.data.messages import write_tool
from quintain.engines.chat_client import ChatClient
from quintain.errors import ConfigError, EngineFault
from quintain.processes.http_json import HttpTrouble
from quintain.safety.narrowing import as_table, narrow_rules
from quintain.safety.policy import Rule, Rules, read_rules, refuse_unknown
from quintain.types import ToolSpec
from quintain.types.json_text import load_json

ATTEMPTS, MAX_TOKENS = 2, 2_048
FORM = """\
You write a policy that says which tool calls an agent may make. Answer with one JSON object and nothing else: tool
→ list of rules, {} for a tool that may be called with any arguments, {"when": {argument: JSON schema}} where
arguments must fulfil a condition. Conditions are strict: a pattern fits the whole text. {"said_by": ["task", TOOL]}
asks that a value was said by the task or in a result of TOOL. A tool that you leave out may not be called. Allow
what the work needs, and no more. Example:
{"find": [{}], "pay": [{"when": {"amount": {"maximum": 20}, "to": {"said_by": ["task", "find"]}}}]}"""


def write_policy(
    client: ChatClient,
    tools: Sequence[ToolSpec],
    instructions: str,
    *,
    task: str = "",
    wide: Rules | None = None,
    temperature: float = 0.0,
) -> Mapping[str, Any]:
    """Return a policy for `tools` as a file has it, that the model behind `client` wrote and `wide` bounds.

    Raises:
        EngineFault: it does not answer, or twice with what is no such policy.
    """
    asked = {"instructions": instructions, "tools": [write_tool(tool) for tool in tools], "task": task}
    messages = [
        {"role": "system", "content": FORM},
        {"role": "user", "content": json.dumps({name: each for name, each in asked.items() if each})},
    ]
    problem = ""
    for number in range(ATTEMPTS):
        try:
            text = client.ask(messages, temperature=temperature, max_tokens=MAX_TOKENS, number=number)
        except HttpTrouble as trouble:
            raise EngineFault(
                f"policy by {client.url}: got {trouble.got}; check the endpoint, nothing was written"
            ) from trouble
        try:
            return as_table(_read(text, tools, wide))
        except ConfigError as error:
            problem = str(error)
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": f"This cannot be used: {problem} Answer with the JSON object alone."},
        ]
    raise EngineFault(
        f"policy by {client.url}: got none in {ATTEMPTS} answers ({problem}); take a stronger model, or write one"
    )


def _read(text: str, tools: Sequence[ToolSpec], wide: Rules | None) -> Rules:
    """Return the rules that `text` holds, no wider than `wide`.

    Raises:
        ConfigError: it is no policy for `tools`, or nothing is left of it.
    """
    begin, end = text.find("{"), text.rfind("}") + 1
    try:
        table = load_json(text[begin:end]) if 0 <= begin < end else None
    except ValueError as error:
        raise ConfigError(f"policy: got {text[:60]!r}, which is no JSON ({error})") from error
    if not isinstance(table, dict) or not table:
        raise ConfigError(f"policy: got {text[:60]!r}, which holds no JSON object with a tool")
    rules = read_rules(cast("dict[str, object]", table), "policy")
    refuse_unknown(rules, tools, "policy")
    found = narrow_rules(dict.fromkeys(rules, (Rule(),)) if wide is None else wide, rules)
    if not any(found.values()):
        raise ConfigError("policy: got none of the tools that the wider policy allows")
    return found
