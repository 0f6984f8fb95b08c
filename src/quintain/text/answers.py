"""What a model wrote: its words, its thought, the calls that it made or tried to make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from quintain.text.bodies import CallStatus


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call that a model wrote, or tried to: ``ReadCall(name="guess", arguments={"number": 16})``."""

    name: str = ""
    arguments: Mapping[str, Any] | None = None
    """None where they could not be read."""
    id: str = ""
    status: CallStatus = "ok"
    problem: str = ""
    """What is wrong, a sentence for the model; empty where nothing is."""
    raw: str = ""
    """The call as it was written, with its marks."""
    span: tuple[int, int] = (0, 0)
    """Where `raw` stands in the answer; it begins below 0 where the prompt began it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model wrote: ``Answer(content="Let me look.", calls=(ReadCall(name="find", arguments={}),))``."""

    content: str = ""
    reasoning: str = ""
    is_reasoning_complete: bool = True
    """False where the answer ends inside a thought."""
    calls: tuple[ReadCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Words that a stream added: ``Delta("content", "Let me")``."""

    field: Literal["content", "reasoning"]
    text: str


AnswerEvent = Delta | ReadCall
