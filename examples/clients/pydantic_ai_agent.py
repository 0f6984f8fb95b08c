"""An agent of pydantic-ai, with its OpenAI provider."""

from contextlib import suppress

from lesson import PROMPT, SYSTEM, Game
from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from quintain import Task


async def run_agent(base_url: str, api_key: str, task: Task) -> bool:
    """Play with tools until the model calls none."""
    game = Game(task)
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        model = OpenAIChatModel("policy", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, system_prompt=SYSTEM, tools=[game.guess])
        with suppress(AgentRunError):  # the model goes on guessing, or calls what there is not
            await agent.run(PROMPT, usage_limits=UsageLimits(request_limit=3))
    return game.is_won
