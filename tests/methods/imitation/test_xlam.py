from dataclasses import dataclass, replace

import pytest
from tests.build import make_episode, make_turn

from quintain.data.pipeline import PipelineResult
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.errors import ConfigError, DataError
from quintain.methods.imitation import sft, xlam
from quintain.types import (
    Action,
    Score,
    Task,
    ToolCall,
    Trajectory,
    Turn,
)


@dataclass
class Shown:
    """Who shows episodes of an environment."""

    shown: list[Trajectory]
    environment: str = "calc"

    def demonstrations(self) -> list[Trajectory]:
        return self.shown


def turn(observation: str, name: str, **arguments: object) -> Turn:
    return make_turn(
        (5, 2),
        logprob=None,
        shows=observation,
        action=Action(tool_calls=(ToolCall(name=name, arguments=arguments),)),
    )


def episode(*turns: Turn) -> Trajectory:
    task = Task(id="calc/train/0", environment="calc", seed=0)
    return make_episode(*turns, task=task, id="e0")


RIGHT = episode(turn("What is 17 + 25?", "add", a=17, b=25), turn("= 42", "answer", number=42))
GUESSED = episode(turn("What is 17 + 25?", "answer", number=42))
RENAMED = episode(turn("What is 17 + 25?", "add", x=17, b=25), *RIGHT.turns)


def weights(collector: Shown, **options: bool) -> list[list[float]]:
    made = xlam.method(xlam.Config(environment="calc", **options)).data(collector)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert isinstance(made, PipelineResult)
    return [[float(w[0]) for w in e.weights or ()] for e in made.examples]


def test_turns_whose_calls_are_wrong_are_context() -> None:
    assert weights(Shown([RIGHT, RENAMED])) == [[1, 1], [0, 1, 1]]
    assert weights(Shown([RIGHT, GUESSED])) == [[1, 1]]
    assert weights(Shown([RIGHT, GUESSED]), semantic=False) == [[1, 1], [1]]


def test_what_is_left_of_nothing_is_told() -> None:
    with pytest.raises(
        DataError, match="imitating 1 demonstrations: got 1 episodes into right_calls and none out"
    ):
        weights(Shown([GUESSED]))
    with pytest.raises(
        ConfigError, match="xlam: got no environment, whose tools the calls are checked against"
    ):
        weights(Shown([RIGHT], environment=NO_ENVIRONMENT))
    with pytest.raises(DataError, match=r"got 1 episodes into solved and none out .*; raise demonstrations"):
        weights(Shown([replace(RIGHT, outcome=Score(value=0.0, is_success=False))]))
    config = xlam.Config(environment="calc")
    assert xlam.method(config).batch_size == sft.method(sft.Config(environment="calc")).batch_size
