"""Chat templates and recorded answers of others are read back: 86 templates that write calls, 469 answers."""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import pytest
from tests.text.differences import CASES, TEMPLATES, UNRENDERED
from tests.text.foreign import Case, load_cases, load_templates
from tests.text.samples import sample_template, writes_calls

from quintain.text.reading import Answer, AnswerFormat, Delta, ReadCall, choose_format, load_formats
from quintain.types import ToolSpec

pytestmark = pytest.mark.templates
READABLE = ("ok", "unknown_tool", "mistyped")
FORMATS_OF_MODELS = {
    "DeepSeek-V3.1": "deepseek-v31",
    "DeepSeek-V3.2": "deepseek-v32",
    "DeepSeek-V4": "deepseek-v32",
    "DeepSeek": "deepseek-v3",
    "gemma-4": "gemma4",
    "GLM": "glm",
    "gpt-oss": "harmony",
    "Kimi-K3": "kimi-k3",
    "Kimi": "kimi-k2",
    "Llama-4": "llama4",
    "Llama-3": "llama",
    "Mistral-7B-Instruct-v0.3": "mistral-v3",
    "istral": "mistral-v11",
    "Qwen3-Coder": "qwen-xml",
    "Qwen3.": "qwen-xml",
    "Qwen3": "hermes",
}


def format_of(case: Case) -> AnswerFormat:
    return load_formats()[next(name for key, name in FORMATS_OF_MODELS.items() if key in case.models[0])]


@cache
def cases() -> dict[str, Case]:
    return {case.id: case for case in load_cases()}


def tools_of(case: Case) -> tuple[ToolSpec, ...]:
    functions = [tool["function"] for tool in case.tools]
    return tuple(
        ToolSpec(name=tool["name"], description="", parameters=tool.get("parameters", {}))
        for tool in functions
    )


def read(case: Case, text: str | None = None) -> Answer:
    return format_of(case).parse(
        case.text if text is None else text, prefix=case.prompt or "", tools=tools_of(case)
    )


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal, where `true` is not 1 and 1 is 1.0."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        left, right = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)
        return left.keys() == right.keys() and all(are_equal(left[key], right[key]) for key in left)
    if isinstance(one, list) and isinstance(other, list):
        pairs = list(zip(cast("list[Any]", one), cast("list[Any]", other), strict=False))
        return len(pairs) == max(len(one), len(other)) and all(
            are_equal(left, right) for left, right in pairs
        )
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def made(answer: Answer) -> list[tuple[str, Any]]:
    """Return the calls that are carried out."""
    return [(call.name, dict(call.arguments or {})) for call in answer.calls if call.status in READABLE]


def is_as_expected(answer: Answer, case: Case) -> bool:
    calls = made(answer)
    if case.expected is None:
        return not calls
    wanted = [(call["name"], call["arguments"]) for call in case.expected["tool_calls"]]
    said = (case.expected["content"] or "").strip(), (case.expected["reasoning_content"] or "").strip()
    are_same = [name for name, _ in calls] == [name for name, _ in wanted] and all(
        are_equal(got, due) for (_, got), (_, due) in zip(calls, wanted, strict=True)
    )
    return are_same and (answer.content, answer.reasoning) == said


def test_recorded_answers_are_read_as_expected() -> None:
    differing = {name for name, case in cases().items() if not is_as_expected(read(case), case)}
    assert differing == set(CASES)
    assert len(cases()) - len(differing) >= 440


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_wrong_in_silence(name: str) -> None:
    case = cases()[name]
    answer = read(case)
    wanted = [(call["name"], call["arguments"]) for call in (case.expected or {}).get("tool_calls", ())]
    assert all(call in wanted for call in made(answer))
    assert (
        made(answer) == wanted
        or not answer.is_reasoning_complete
        or any(call.problem for call in answer.calls)
    )


@pytest.mark.parametrize("size", [1, 3, 7])
def test_recorded_answers_in_pieces(size: int) -> None:
    for name, case in cases().items():
        reader = format_of(case).stream(prefix=case.prompt or "", tools=tools_of(case))
        events = [
            event for at in range(0, len(case.text), size) for event in reader.feed(case.text[at : at + size])
        ]
        answer = reader.close()
        events += reader.last_events
        assert answer == read(case), name
        for field in ("content", "reasoning"):
            said = "".join(
                event.text for event in events if isinstance(event, Delta) and event.field == field
            )
            assert said == getattr(answer, field), (name, field)
        assert tuple(event for event in events if isinstance(event, ReadCall)) == answer.calls, name


def test_what_is_cut_makes_no_other_call() -> None:
    for name, case in cases().items():
        whole = made(read(case))
        for eighth in range(1, 8):
            calls = made(read(case, case.text[: len(case.text) * eighth // 8]))
            assert calls == whole[: len(calls)], (name, eighth)


def test_what_templates_write_is_read_back() -> None:
    texts = load_templates()
    samples = {name: sample_template(source) for name, source in texts.items()}
    assert {name for name, found in samples.items() if not found} == set(UNRENDERED)
    with_calls = {
        name: list(found.values()) for name, found in samples.items() if found and writes_calls(found)
    }
    chosen = {name: choose_format(found) for name, found in with_calls.items()}
    unread = {name for name, choice in chosen.items() if choice.format is None or not all(choice.is_read)}
    assert unread == set(TEMPLATES)
    assert (len(with_calls), len(with_calls) - len(unread)) == (86, 85)


def test_what_templates_write_is_read_in_pieces() -> None:
    for name, source in load_templates().items():
        samples = sample_template(source)
        form = choose_format(list(samples.values())).format if samples else None
        for place, sample in samples.items():
            if form is None:
                continue
            whole = form.parse(sample.written, prefix=sample.prompt, tools=sample.tools)
            for size in (1, 3, 7):
                reader = form.stream(prefix=sample.prompt, tools=sample.tools)
                for at in range(0, len(sample.written), size):
                    reader.feed(sample.written[at : at + size])
                assert reader.close() == whole, (name, place, size)
