"""A loop over the Anthropic SDK."""

from typing import Any

import anthropic
from lesson import PARAMETERS, PROMPT, SYSTEM, Game

from quintain import Task

CLIENT = anthropic.Anthropic(base_url="http://127.0.0.1", api_key="none")
TOOL: Any = {"name": "guess", "input_schema": PARAMETERS}


def run_agent(base_url: str, api_key: str, task: Task) -> bool:
    """Play with tools until the model calls none."""
    game = Game(task)
    client = CLIENT.with_options(base_url=base_url.removesuffix("/v1"), api_key=api_key)
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    for _ in range(3):
        said = client.messages.create(
            model="policy", max_tokens=64, system=SYSTEM, messages=messages, tools=[TOOL]
        )
        calls = [block for block in said.content if block.type == "tool_use"]
        if not calls:
            break
        messages.append({"role": "assistant", "content": said.content})
        results = [(call.id, game.call(call.name, call.input)) for call in calls]
        told = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results]
        messages.append({"role": "user", "content": told})
    return game.is_won
