"""A real OpenEnv server for `test_openenv`, written with the package; its interpreter runs it."""

import argparse
from typing import Any

import uvicorn  # pyright: ignore[reportMissingImports]
from fastapi import FastAPI  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.http_server import HTTPEnvServer  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import Action, Observation, State  # pyright: ignore[reportMissingImports]


class Say(Action):  # pyright: ignore[reportUntypedBaseClass]
    word: str


class Seen(Observation):  # pyright: ignore[reportUntypedBaseClass]
    text: str = ""


class Echo(Environment):  # pyright: ignore[reportUntypedBaseClass]
    """Say the number that you are shown, twice."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: Any = None, episode_id: Any = None, **_: Any) -> Any:
        self.number, self.left = (seed or 0) % 10, 2
        return Seen(text=f"say {self.number}")

    def step(self, action: Any, timeout_s: Any = None, **_: Any) -> Any:
        if action.word == "crash":
            raise RuntimeError("the echo is gone")
        self.left -= 1
        is_right = action.word.strip() == str(self.number)
        return Seen(text="right" if is_right else "wrong", done=not self.left, reward=float(is_right) / 2)

    @property
    def state(self) -> Any:
        return State()


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--sessions", type=int)
arguments = parser.parse_args()
app = FastAPI()
HTTPEnvServer(
    env=Echo, action_cls=Say, observation_cls=Seen, max_concurrent_envs=arguments.sessions
).register_routes(app)
uvicorn.run(app, host="127.0.0.1", port=arguments.port, log_level="warning")
