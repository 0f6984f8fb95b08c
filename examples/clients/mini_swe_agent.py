"""mini-swe-agent's default agent, over litellm, in an environment that knows one command."""

from typing import Any

from lesson import PROMPT, SYSTEM, Game, any_number
from minisweagent.agents.default import DefaultAgent
from minisweagent.models.litellm_model import LitellmModel

from quintain import Task


class Shell:
    """An environment of mini-swe-agent: ``guess 2``."""

    config: Any = None

    def __init__(self, game: Game) -> None:
        """Play `game`."""
        self.game = game

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Carry out a command."""
        name, _, number = str(action["command"]).partition(" ")
        said = self.game.guess(int(number)) if name == "guess" and number in tuple("123456") else "unknown"
        return {"output": said, "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        """Return nothing more for templates."""
        return {}

    def serialize(self) -> dict[str, Any]:
        """Return nothing more for trajectories."""
        return {}


def run_agent(base_url: str, api_key: str, task: Task) -> bool:
    """Play for two steps."""
    game = Game(task)
    model = LitellmModel(
        model_name="openai/policy", model_kwargs={"api_base": base_url, "api_key": api_key},
        cost_tracking="ignore_errors", observation_template="{{output.output}}",
        format_error_template="{{error}}",
    )  # fmt: skip
    DefaultAgent(model, Shell(game), system_template=SYSTEM, instance_template=PROMPT, step_limit=2).run("")
    return game.is_won


def expert(task: Task, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the command with any number."""
    return {"name": "bash", "arguments": {"command": f"guess {any_number(task, messages)}"}}
