"""``quintain check`` on files as people have them: what is in them, what is trained of it, or the line that is bad."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli

from quintain.store.run import Run

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Look.", "parameters": SCHEMA}}
BARE = {"name": "weather", "description": "Look.", "parameters": SCHEMA}
ASK = "Weather in Rome and Oslo?"
SAID = {"role": "assistant", "content": "Sun in Rome, snow in Oslo."}


def call(id: str, city: str) -> dict[str, Any]:
    return {
        "id": id,
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps({"city": city})},
    }


def use(id: str, city: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "weather", "input": {"city": city}}


def block(id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def hermes(city: str) -> str:
    return "<tool_call>\n" + json.dumps({"name": "weather", "arguments": {"city": city}}) + "\n</tool_call>"


OPENAI = [
    {"role": "user", "content": ASK},
    {"role": "assistant", "content": None, "tool_calls": [call("1", "Rome"), call("2", "Oslo")]},
    {"role": "tool", "tool_call_id": "2", "content": "snow"},
    {"role": "tool", "tool_call_id": "1", "content": "sun"},
    SAID,
]
CALLS = "".join(
    f'<tool_call>{{"name": "weather", "arguments": {{"city": "{c}"}}}}</tool_call>\n'
    for c in ("Rome", "Oslo")
)
SHOWN = [
    f"[prompt] TOLD<|user|>{ASK}<|assistant|>",
    f"[trained] {CALLS}".rstrip(),
    "[prompt] <|tool|>sun<|tool|>snow<|assistant|>",
    "[trained] Sun in Rome, snow in Oslo.",
]
"""What each of the shapes with tools shows and trains, however its results are ordered."""
PARALLEL: dict[str, dict[str, Any]] = {
    "openai": {"messages": OPENAI, "tools": [TOOL], "parallel_tool_calls": True},
    "anthropic": {
        "messages": [
            {"role": "user", "content": ASK},
            {"role": "assistant", "content": [use("1", "Rome"), use("2", "Oslo")]},
            {"role": "user", "content": [block("2", "snow"), block("1", "sun")]},
            SAID,
        ],
        "tools": [{"name": "weather", "description": "Look.", "input_schema": SCHEMA}],
    },
    "sharegpt": {
        "conversations": [
            {"from": "human", "value": ASK},
            {
                "from": "function_call",
                "value": json.dumps({"name": "weather", "arguments": {"city": "Rome"}}),
            },
            {
                "from": "function_call",
                "value": json.dumps({"name": "weather", "arguments": {"city": "Oslo"}}),
            },
            {"from": "observation", "value": "sun"},
            {"from": "observation", "value": "snow"},
            {"from": "gpt", "value": SAID["content"]},
        ],
        "tools": json.dumps([BARE]),
    },
    "hermes": {
        "conversations": [
            {"from": "human", "value": ASK},
            {"from": "gpt", "value": f"{hermes('Rome')}\n{hermes('Oslo')}"},
            {
                "from": "tool",
                "value": "<tool_response>\nsun\n</tool_response>\n<tool_response>\nsnow\n</tool_response>",
            },
            {"from": "gpt", "value": SAID["content"]},
        ],
        "tools": [TOOL],
    },
    "atif": {
        "schema_version": "ATIF-v1.6",
        "session_id": "s",
        "agent": {"name": "a", "version": "1", "tool_definitions": [TOOL]},
        "steps": [
            {"step_id": 1, "source": "user", "message": ASK},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "tool_calls": [
                    {"tool_call_id": id, "function_name": "weather", "arguments": {"city": city}}
                    for id, city in (("1", "Rome"), ("2", "Oslo"))
                ],
                "observation": {
                    "results": [
                        {"source_call_id": "2", "content": "snow"},
                        {"source_call_id": "1", "content": "sun"},
                    ]
                },
            },
            {"step_id": 3, "source": "agent", "message": SAID["content"]},
        ],
    },
    "ms-swift": {
        "messages": [
            {"role": "user", "content": ASK},
            {"role": "tool_call", "content": json.dumps({"name": "weather", "arguments": {"city": "Rome"}})},
            {"role": "tool_call", "content": json.dumps({"name": "weather", "arguments": {"city": "Oslo"}})},
            {"role": "tool_response", "content": "sun"},
            {"role": "tool_response", "content": "snow"},
            SAID,
        ],
        "tools": json.dumps([TOOL]),
    },
}


def write(rows: list[dict[str, Any]]) -> str:
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "data.jsonl"


@pytest.mark.parametrize("shape", PARALLEL)
def test_every_shape_with_tools_is_the_same_conversation(cli: Cli, shape: str) -> None:
    found = cli("check", write([PARALLEL[shape]]), "--show", "1")
    assert found.status == 0, found.out
    pieces = found.out.partition("\nprobe")[0].replace("\n<tool_call>", "<tool_call>")
    for piece in SHOWN[1:]:
        assert piece.replace("\n<tool_call>", "<tool_call>") in pieces
    assert "2 calls, 1 records with tool schemas" in found.out and "executable\tpass" in found.out


ASKED = {"role": "user", "content": "one?"}
GOOD, BAD = {"role": "assistant", "content": "right"}, {"role": "assistant", "content": "wrong"}
MASKED: dict[str, dict[str, Any]] = {
    "axolotl": {"messages": [ASKED, {**BAD, "training": False}, ASKED, {**GOOD, "training": True}]},
    "axolotl, sharegpt": {
        "conversations": [
            {"from": "human", "value": "one?"},
            {"from": "gpt", "value": "wrong", "weight": 0},
            {"from": "human", "value": "one?"},
            {"from": "gpt", "value": "right", "weight": 1},
        ]
    },
    "ms-swift": {"messages": [ASKED, {**BAD, "loss": False}, ASKED, {**GOOD, "loss": True}]},
    "slime": {"messages": [ASKED, {**BAD, "step_loss_mask": 0}, ASKED, GOOD]},
    "verl": {"messages": [ASKED, BAD, ASKED, GOOD], "loss_mask": [0, 0, 0, 1], "enable_thinking": False},
    "llama-factory": {
        "conversations": [
            {"from": "human", "value": "one?"},
            {"from": "gpt", "value": "wrong"},
            {"from": "human", "value": "one?"},
            {"from": "gpt", "value": "right"},
        ],
        "loss_mask": [0, 0, 0, 1],
        "system": "",
        "tools": "",
    },
    "trl": {"prompt": [ASKED, BAD, ASKED], "completion": [GOOD]},
    "verl, prompt and response": {"prompt": [ASKED], "response": "right"},
}


@pytest.mark.parametrize("shape", MASKED)
def test_masks_of_other_tools_hold(cli: Cli, shape: str) -> None:
    found = cli("check", write([MASKED[shape]]), "--show", "1")
    assert found.status == 0, found.out
    assert (
        "[trained] right" in found.out and "[trained] wrong" not in found.out and "not read" not in found.out
    )


def test_columns_of_llama_factory(cli: Cli) -> None:
    row = {**PARALLEL["sharegpt"], "system": "Be brief."}
    found = cli("check", write([row]), "--show", "1")
    assert found.status == 0 and "[prompt] <|system|>Be brief.\nTools:" in found.out


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"prompt": "one?", "chosen": "right", "rejected": "wrong"}, "records\tpass\t1, 1 preferences"),
        (
            {"prompt": "one?", "completion": "wrong", "label": False},
            "1, 0 answers labelled good, 1 bad\nlabels\tpass\ttrain it with quintain train dpo --loss kto",
        ),
    ],
)
def test_what_is_no_demonstration_says_what_it_is_for(cli: Cli, row: dict[str, Any], line: str) -> None:
    found = cli("check", write([row]), "--show", "0")
    assert found.status == 0 and line in found.out


TASK = {
    "data_source": "x",
    "prompt": [ASKED],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "1"},
    "extra_info": {"index": 0},
}


def test_every_bad_line_is_named(cli: Cli) -> None:
    rows: list[dict[str, Any]] = [
        {"messages": [ASKED, GOOD]},
        TASK,
        {"messages": [*OPENAI[:2], {"role": "tool", "tool_call_id": "99", "content": "x"}, SAID]},
        {"messages": [*OPENAI[:3], SAID]},
        {"messages": [ASKED, {**GOOD, "loss": True, "weight": 0}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, GOOD]},
        {"messages": [ASKED, {**GOOD, "score": 3}, ASKED, {"role": "assistant", "content": None}]},
    ]
    file = write(rows)
    found = cli("check", file, "--show", "0")
    said = [
        "line 2: got a prompt that nobody answers",
        "line 3: got a result of the call '99', and before it stands '1', '2'",
        "line 4: got no result of the call '1' of weather before the next answer",
        "line 5: got weight 0 and loss True of one message, which contradict each other",
        "line 6: got content of the kind image_url",
    ]
    assert found.status == 5 and all(f"unusable\tfail\tdata.jsonl {line}" in found.out for line in said), (
        found.out
    )
    assert "not read\tnote\tkey 'score' of 1 messages is not read" in found.out
    assert "changed\tnote\t1 answers say nothing, and are not trained" in found.out
    dropped = cli("check", file, "--show", "0", "--unusable", "drop")
    assert dropped.status == 0 and dropped.out.count("unusable\tnote\t") == len(said)
    made = cli("data", file, "--unusable", "drop", "--out", "new.jsonl")
    assert "new.jsonl: 2 conversations" in made.out and f"note: left out: data.jsonl {said[0]}" in made.out
    assert cli("data", file, "--out", "other.jsonl").status != 0 and not Path("other.jsonl").exists()


def test_bad_lines_are_named_up_to_a_number(cli: Cli) -> None:
    found = cli("check", write([{"messages": [ASKED, GOOD]}, *[TASK] * 60]), "--show", "0")
    assert found.out.count("unusable\tfail\tdata.jsonl line") == 50 and "unusable\tfail\t10 more" in found.out


def test_masks_that_leave_nothing(cli: Cli) -> None:
    file = write([{"messages": [ASKED, {**GOOD, "train": False}]}])
    found = cli("check", file, "--show", "0")
    assert found.status == 5 and "trained\tfail\tno token: no answer is to be trained" in found.out
    none = cli("train", "sft", "--demonstrations", file, "--model", "micro", "--run", "a")
    assert none.status != 0 and "got nothing to imitate (1 without an answer to train left out)" in none.error
    assert not Path("runs/a").exists()


def test_without_data_it_is_said_what_to_give(cli: Cli) -> None:
    for method, option in (("sft", "demonstrations"), ("dpo", "preferences")):
        found = cli("train", method, "--model", "micro")
        assert found.status != 0 and "got neither data nor an environment" in found.error
        assert f"give --{option} FILE (docs/data.md), or --environment E" in found.error


@pytest.mark.slow
def test_a_run_gives_back_what_it_learned_from(cli: Cli) -> None:
    row = {
        **PARALLEL["openai"],
        "messages": [{"role": "system", "content": "Help."}, *OPENAI],
        "topic": "sky",
    }
    file = write([row, {**row, "messages": [*row["messages"], ASKED, GOOD]}])
    flags = ("--model", "micro", "--steps", "1", "--held-out", "0")
    trained = cli("train", "sft", "--demonstrations", file, *flags, "--run", "a")
    assert trained.status == 0, trained.error
    assert cli("export", "a", "--to", "messages", "--out", "out.jsonl").status == 0
    made = json.loads(Path("out.jsonl").read_text().splitlines()[0])
    assert [m["content"] or None for m in made["messages"]] == [
        "Help.",
        ASK,
        None,
        "sun",
        "snow",
        SAID["content"],
    ]
    assert [m.get("tool_call_id") for m in made["messages"][3:5]] == ["1", "2"]
    assert [call["id"] for call in made["messages"][2]["tool_calls"]] == ["1", "2"]
    assert (made["tools"], made["topic"]) == ([TOOL], "sky")
    before, after = (cli("check", name, "--show", "0").out.splitlines()[1:-1] for name in (file, "out.jsonl"))
    assert before == after
    again = cli("train", "sft", "--demonstrations", "a", *flags, "--agent", "react", "--run", "b")
    assert again.status == 0, again.error


@pytest.mark.slow
def test_labelled_answers_are_learned_from_one_by_one(cli: Cli) -> None:
    rows = [
        {"prompt": f"{k}?", "completion": "yes" if k % 2 else "no", "label": bool(k % 2)} for k in range(12)
    ]
    flags = ("--model", "micro", "--steps", "12", "--eval-every", "12", "--learning-rate", "0.003")
    found = cli("train", "dpo", "--loss", "kto", "--preferences", write(rows), *flags, "--run", "kto")
    assert found.status == 0, found.error
    with Run.open(Path("runs/kto"), writable=False) as run:
        first, last = run.metrics()[0], run.metrics()[-1]
    assert last["preference/accuracy"] == pytest.approx(1.0, abs=1e-5) and last["dpo/answers"] == 11.0
    assert first["eval/loss"] == pytest.approx(0.5, abs=1e-5)
    alike = [{**row, "label": True} for row in rows]
    one = cli("train", "dpo", "--loss", "kto", "--preferences", write(alike), *flags, "--run", "one")
    assert "got 12 answers that are all good; give some of the other kind" in one.error
    assert not Path("runs/one").exists()
    refused = cli("train", "sft", "--demonstrations", "data.jsonl", *flags, "--run", "sft")
    assert "got a labelled answer, and this takes a conversation" in refused.error
