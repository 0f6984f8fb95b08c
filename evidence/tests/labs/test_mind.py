"""Minds read what is rendered and nothing else; a blindfold takes it away, and finds out who knows more."""

import re
from typing import ClassVar

import pytest

from quintain.environments.protocol import Environment
from quintain.errors import DataError, UsageError
from quintain.types import Action, CallResult, Image, StepResult, Task, Text, as_text, flatten_scored
from quintain_evidence.labs.mind import BLANK, Blindness, Mind, blank, blindfold, play_mind, require_blindfold

LIMIT = 20


class Told(Environment):
    """Name the number that is shown, twice."""

    name, max_turns = "told", 2
    secret: ClassVar[int] = -1

    def task(self, split: str, index: int) -> Task:
        return Task(
            id=f"told/{split}/{index}",
            environment="told",
            seed=index,
            prompt=f"Tens: {index % 10}.",
            split="eval",
        )

    def reset(self, task: Task) -> str:
        assert task.prompt != BLANK, "the environment has the whole task"
        Told.secret = (task.seed * 7) % LIMIT
        self._said = 0
        return f"Say {Told.secret}."

    def step(self, action: Action) -> StepResult:
        self._said += action.text == str(Told.secret)
        return StepResult(observation=f"Say {Told.secret}.", is_success=self._said == 2)

    def legal_actions(self) -> tuple[str, ...]:
        return tuple(map(str, range(LIMIT)))


def read(prompt: str, draw: int) -> str:
    found = re.findall(r"Say (\d+)", prompt)
    return found[-1] if found else str(draw % LIMIT)


def know(prompt: str, draw: int) -> str:
    return str(Told.secret)


def test_a_mind_reads_the_whole_stream_and_draws_alike_in_both_arms() -> None:
    seen: list[tuple[str, int]] = []

    def say(prompt: str, draw: int) -> str:
        seen.append((prompt, draw))
        return read(prompt, draw)

    with play_mind(Mind(say), Told, seed=3, agent="text") as probe:
        (episode, *_) = flatten_scored(probe.play(probe.tasks(1)))
        first = list(seen)
    assert episode.is_success and len(first) == 2
    assert "Tens: 0." in first[0][0] and first[0][0].endswith("<|user|>Say 0.<|assistant|>")
    assert first[1][0].endswith("Say 0.<|assistant|>0<|end|><|user|>Say 0.<|assistant|>")
    seen.clear()
    with play_mind(Mind(say), Told, seed=3, agent="react") as probe:
        probe.play(probe.tasks(1))
    assert [draw for _, draw in seen] == [draw for _, draw in first], "another harness, the same draws"
    assert first[0][1] != first[1][1]


def test_arms_have_the_same_mind_by_its_source() -> None:
    assert Mind(read).digest == Mind(read).digest != Mind(know).digest


def test_nothing_is_left_of_what_is_shown() -> None:
    shown = (Text(text="a 7"), CallResult(text="b 8", call=1), Image(data=b"x", media_type="image/png"))
    assert blank(shown) == (Text(text=BLANK), CallResult(text=BLANK, call=1))
    assert blank("c 9") == blank(()) == (Text(text=BLANK),)
    prompts: list[str] = []

    def say(prompt: str, draw: int) -> str:
        prompts.append(prompt)
        return read(prompt, draw)

    found = blindfold(Mind(say), Told, seed=0, agent="text", num=20)
    assert not found.is_void and len(prompts) == 40 and not any("Say" in p or "Tens" in p for p in prompts)


def test_who_knows_what_it_cannot_have_read_makes_the_study_void() -> None:
    assert not require_blindfold(Mind(read), Told, seed=1, agent="text", num=40).is_void
    found = blindfold(Mind(know), Told, seed=1, agent="text", num=40)
    assert (found.blind, found.num, found.is_void) == (40, 40, True) and found.chance <= 3
    with pytest.raises(DataError, match=r"got 40 of 40 tasks solved where chance solves \d; take from it"):
        require_blindfold(Mind(know), Told, seed=1, agent="text", num=40)
    with pytest.raises(UsageError, match="got 5; give 20 or more"):
        blindfold(Mind(read), Told, seed=1, num=5)


def test_better_than_chance_is_counted_by_fisher() -> None:
    # 3 of 4 against 1 of 4: (C(4,3) C(4,1) + C(4,4) C(4,0)) / C(8,4) = 17 / 70
    assert Blindness(blind=3, chance=1, num=4).p_value == pytest.approx(17 / 70)
    assert Blindness(blind=0, chance=0, num=4).p_value == 1.0


def test_a_mind_calls_tools_as_a_model_writes_them() -> None:
    def say(prompt: str, draw: int) -> str:
        return '<tool_call>{"name": "guess", "arguments": {"number": 1}}</tool_call>'

    with play_mind(Mind(say), "guess", seed=0) as probe:
        (episode, *_) = flatten_scored(probe.play(probe.tasks(1)))
    calls = [call for turn in episode.turns for call in turn.action.tool_calls]
    assert calls and {(call.name, call.arguments["number"]) for call in calls} == {("guess", 1)}
    assert all(as_text(turn.observation) for turn in episode.turns)
