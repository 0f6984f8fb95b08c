"""An agent of the OpenAI Agents SDK that sends tickets to a queue; trained on a file of tickets by one command.

``quintain train grpo --tasks tickets.jsonl --agent "triage_agent.py:run_agent?grade=grade&expert=expert"``
"""

import random

from agents.exceptions import AgentsException
from openai import AsyncOpenAI

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

QUEUES = ("billing", "delivery", "account", "returns")
DRAWS = random.Random(0)
set_tracing_disabled(True)
CLIENT = AsyncOpenAI(base_url="http://127.0.0.1", api_key="unused")


@function_tool
def assign(queue: str) -> str:
    """Send the ticket to a queue.

    Args:
        queue: billing, delivery, account or returns
    """
    return queue


async def run_agent(base_url, api_key, task):
    """Let the model send the ticket on, and return the queue that it chose."""
    model = OpenAIChatCompletionsModel(
        model="policy", openai_client=CLIENT.with_options(base_url=base_url, api_key=api_key)
    )
    agent = Agent(
        name="triage",
        instructions="Send the ticket to its queue.",
        tools=[assign],
        model=model,
        model_settings=ModelSettings(max_tokens=32),
        tool_use_behavior="stop_on_first_tool",
    )
    try:
        return str((await Runner.run(agent, task.prompt, max_turns=2)).final_output)
    except AgentsException:  # what the model wrote is no call that the SDK takes
        return ""


def grade(task, answer):
    """Pay for the right queue."""
    return float(answer == task.data["queue"])


def expert(task, messages):
    """Show how a ticket is sent on, and not where to: the queue is drawn."""
    return {"name": "assign", "arguments": {"queue": DRAWS.choice(QUEUES)}}
