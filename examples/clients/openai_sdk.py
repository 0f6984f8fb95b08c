"""A loop over the OpenAI SDK."""

import json
from typing import Any

import openai
from lesson import PARAMETERS, PROMPT, SYSTEM, Game

from quintain import Task

CLIENT = openai.OpenAI(base_url="http://127.0.0.1", api_key="none")
TOOL: Any = {"type": "function", "function": {"name": "guess", "parameters": PARAMETERS}}


def run_agent(base_url: str, api_key: str, task: Task) -> bool:
    """Play with tools until the model calls none."""
    game, client = Game(task), CLIENT.with_options(base_url=base_url, api_key=api_key)
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
    for _ in range(3):
        answer = client.chat.completions.create(model="policy", messages=messages, tools=[TOOL])
        said = answer.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            try:
                result = game.call(call.function.name, dict(json.loads(call.function.arguments)))
            except (TypeError, ValueError) as error:  # the model is told, and may try again
                result = f"Error: the arguments are no JSON object: {error}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return game.is_won
