"""What was gathered for a pipeline: prompts as they will be trained, whatever a conversation calls."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quintain.agents.transcripts import Rules, Transcriber
from quintain.cli.pipelines import chat_of, show
from quintain.data.calls import right_calls
from quintain.data.files import read_objects
from quintain.data.pipeline import Pipeline, example_samples
from quintain.data.records import read_records
from quintain.data.samples import imitation_samples
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.pipelines.episode_sources import EpisodeSet, gather
from quintain.pipelines.likelihood import perplexity_under


def listed(name: str, *fields: str) -> dict[str, Any]:
    properties = {field: {"type": "string"} for field in fields}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "Look.", "parameters": schema}}


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


MISCALLED = {
    "messages": [
        {"role": "user", "content": "Is it warm in Rome?"},
        calling("wether", city="Rome"),
        {"role": "tool", "content": "Error: no such tool."},
        calling("weather", city="Rome"),
        {"role": "tool", "content": "Warm."},
        {"role": "assistant", "content": "Yes."},
    ],
    "tools": [listed("weather", "city")],
}


@pytest.fixture
def miscalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EpisodeSet:
    """A conversation that calls a tool which it does not list, then the right one."""
    monkeypatch.chdir(tmp_path)
    Path("chats.jsonl").write_text(json.dumps(MISCALLED) + "\n")
    return gathered("chats.jsonl")


def gathered(*names: str) -> EpisodeSet:
    return gather(names, Path("runs"), lambda files: chat_of(files, None))


def test_what_is_shown_is_what_the_written_file_is_trained_as(
    miscalled: EpisodeSet, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Pipeline(right_calls(miscalled.told)).run(miscalled.examples)
    (example,) = made.examples
    show(1, example, miscalled)
    shown = capsys.readouterr().out
    assert shown.count('"wether"') == 1 and "[masked] " in shown, (
        "the call, and no tool of that name in the list"
    )
    Path("out.jsonl").write_text("".join(miscalled.lines(made.examples)))
    reader = Transcriber(miscalled.origin(example).chat, Rules())
    again = list(reader.trajectories(read_records(read_objects(Path("out.jsonl")))))
    (before,), (after,) = example_samples(made.examples), imitation_samples(again)
    assert before.token_ids.tolist() == after.token_ids.tolist()
    assert (before.loss_weight > 0).tolist() == (after.loss_weight > 0).tolist()


def test_perplexity_is_asked_of_the_same_tokens(
    miscalled: EpisodeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = miscalled.examples
    tokenizer = miscalled.origin(example).chat.tokenizer
    save(build_tiny(tokenizer, size="micro"), tokenizer, tmp_path / "own")
    asked: list[Sequence[int]] = []

    class Engine:
        def score(self, streams: Sequence[Sequence[int]]) -> list[list[float]]:
            asked.extend(streams)
            return [[-1.0] * len(stream) for stream in streams]

    monkeypatch.setattr("quintain.pipelines.likelihood.build_engine", lambda *_: Engine())
    perplexity_under(str(tmp_path / "own"), miscalled, "perplexity")(example.trajectory)
    (record,) = read_records(read_objects(Path("chats.jsonl")))
    turns = Transcriber(miscalled.origin(example).chat, Rules()).turns(record)
    assert asked == [[i for turn in turns for i in (*turn.prompt_ids, *turn.completion.token_ids)]]
