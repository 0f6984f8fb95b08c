"""An empty answer is asked for again, warmer each time, in the very prompt, and the harness inside never sees it."""

from collections.abc import Callable

import pytest

from quintain.agents.catalog import build
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.ramp import Ramp, next_temperature
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Completion, StepResult, Task

Briefs = Callable[..., Brief]


class Walk(Environment):
    """Walk on."""

    max_turns = 2

    def reset(self, task: Task) -> str:
        return "A wall."

    def step(self, action: Action) -> StepResult:
        return StepResult(observation=f"went {action.text}")


def test_the_temperature_rises_to_the_hottest_and_no_further() -> None:
    assert [next_temperature(t, 0.4) for t in (0.0, 0.4, 0.8, 1.0, 1.5)] == [0.4, 0.8, 1.0, None, None]


def test_an_answer_is_sampled_again_from_the_same_prompt(small_chat: Chat) -> None:
    said = iter(["", "  a ", "left", "", "right"])
    heard: list[tuple[float, tuple[int, ...]]] = []

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        heard.append((request.sampling.temperature, stream))
        return small_chat.write(next(said))

    agent = Ramp(PlainText(small_chat, temperature=0.0), small_chat, step=0.3, least=2)
    rollout = Rollout(agent, Walk, Scripted(script), limits=Limits(max_turns=2))
    (group,) = rollout.groups([Walk().task("train", 0)], size=1, seed=0)
    (episode,) = group.trajectories
    assert [temperature for temperature, _ in heard] == [0.0, 0.3, 0.6, 0.0, 0.3]
    assert heard[0][1] == heard[1][1] == heard[2][1] and heard[3][1] == heard[4][1]
    assert heard[3][1][: len(heard[0][1])] == heard[0][1], "the empty answers are in nobody's history"
    assert small_chat.encoder.decode(heard[4][1]).endswith(
        "<|assistant|>left<|end|><|user|>went left<|assistant|>"
    )
    assert [turn.action.text for turn in episode.turns if not turn.is_internal] == ["left", "right"]
    assert [turn.is_internal for turn in episode.turns] == [True, True, False, True, False]


def test_the_last_answer_is_taken_as_it_is(small_chat: Chat, brief_of: Briefs) -> None:
    session = Ramp(PlainText(small_chat, temperature=0.8), small_chat).open(brief_of())
    session.observe("A wall.")
    empty = Completion(token_ids=small_chat.write(""), logprobs=(), stop="stop")
    session.read(empty)
    again = session.more()
    assert again is not None and again.sampling.temperature == 1.0 and again.starts_segment
    assert session.read(empty).text == "" and session.more() is None


def test_what_is_said_is_left_alone_and_so_is_who_is_warm(small_chat: Chat, brief_of: Briefs) -> None:
    for temperature, text in ((0.0, "right"), (1.0, "")):
        session = Ramp(PlainText(small_chat, temperature=temperature), small_chat).open(brief_of())
        session.observe("A wall.")
        session.read(Completion(token_ids=small_chat.write(text), logprobs=(), stop="stop"))
        assert session.more() is None


def test_a_ramp_rises(small_chat: Chat) -> None:
    with pytest.raises(UsageError, match=r"ramp: got step=0.0, least=5; give a step above 0"):
        build("ramp?step=0+text", small_chat, Walk())
