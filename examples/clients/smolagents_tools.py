"""smolagents' ToolCallingAgent."""

import atexit
from typing import Any

import httpx
from lesson import PROMPT, SYSTEM, Game
from smolagents import EMPTY_PROMPT_TEMPLATES, LogLevel, OpenAIServerModel, ToolCallingAgent, tool

from quintain import Task

HTTP = httpx.Client()  # one for all episodes: to make one takes longer than a call
atexit.register(HTTP.close)


def run_agent(base_url: str, api_key: str, task: Task) -> bool:
    """Play with tools for two steps."""
    game = Game(task)

    @tool
    def guess(number: int) -> str:
        """Guess the hidden number.

        Args:
            number: the number you guess
        """
        return game.guess(number)

    model = OpenAIServerModel(
        "policy", api_base=base_url, api_key=api_key, client_kwargs={"http_client": HTTP}
    )
    templates: Any = {**EMPTY_PROMPT_TEMPLATES, "system_prompt": SYSTEM}
    agent = ToolCallingAgent(
        [guess], model, prompt_templates=templates, max_steps=2, verbosity_level=LogLevel.OFF
    )
    agent.run(PROMPT)
    return game.is_won
