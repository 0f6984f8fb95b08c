"""smolagents' CodeAgent, which writes Python."""

import atexit
from typing import Any

import httpx
from lesson import PROMPT, Game, any_number, is_over
from smolagents import EMPTY_PROMPT_TEMPLATES, CodeAgent, LogLevel, OpenAIServerModel, tool

from quintain import Task

HTTP = httpx.Client()  # one for all episodes: to make one takes longer than a call
atexit.register(HTTP.close)


def run_agent(base_url: str, api_key: str, task: Task) -> bool:
    """Play with code until the model gives its final answer."""
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
    templates: Any = {**EMPTY_PROMPT_TEMPLATES, "system_prompt": "Write print(guess(number)) as code."}
    agent = CodeAgent([guess], model, prompt_templates=templates, max_steps=2, verbosity_level=LogLevel.OFF)
    agent.run(PROMPT)
    return game.is_won


def expert(task: Task, messages: list[dict[str, Any]]) -> str:
    """Guess any number."""
    if is_over(messages):
        return "<code>\nfinal_answer(0)\n</code>"
    return f"<code>\nprint(guess({any_number(task, messages)}))\n</code>"
