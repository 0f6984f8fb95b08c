"""``quintain data``: what goes in, what comes out, and lines that can be trained on."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.chat_model import KEY, ChatModel

from quintain.agents.transcripts import Rules, Transcriber
from quintain.cli.pipelines import chat_of
from quintain.cli.stages import STAGES, options_of, stage_rows, write_option
from quintain.data.files import read_objects
from quintain.data.records import read_records
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.processes import http_json
from quintain.store.run import Run
from quintain.warm_start.demonstrations import tokenizer_of, write_run

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Look.",
        "parameters": {
            "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"],
        },
    },
}  # fmt: skip


def call(**arguments: Any) -> dict[str, Any]:
    function = {"name": "search", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def chat(asked: str, *turns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": asked}, *turns], "tools": [SEARCH], **fields}


RESULT = {"role": "tool", "content": "Found it in Rome."}
DONE = {"role": "assistant", "content": "It is in Rome."}
CHATS = [
    chat("Where is the Pantheon?", call(word="Pantheon"), RESULT, DONE, task="a", reward=1.0),
    chat(
        "Where is the Pantheon?", call(word="Pantheon"), RESULT, call(word="Rome"), RESULT, DONE,
        task="a", reward=1.0,
    ),
    chat("Where is the Pantheon?", call(word="Colosseum"), RESULT, DONE, task="a", reward=0.5),
    chat("Hint: Oslo. Where is the Kon-Tiki?", DONE, task="b", reward=0.0, is_success=False),
]  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "chats.jsonl", CHATS)


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def weights(row: dict[str, Any]) -> list[int]:
    return [m.get("weight", 1) for m in row["messages"] if m["role"] == "assistant"]


def test_the_funnel_and_lines_that_name_their_sources(cli: Callable[..., Any], chats: Path) -> None:
    out = cli(
        "data", "chats.jsonl", "--stage", "solved", "--stage", "shortest?share=0.5", "--stage", "last_turn",
        "--out", "short.jsonl", "--show", "1",
    ).out  # fmt: skip
    lines = out.splitlines()
    told = [re.sub(r" +", " ", line) for line in lines]
    assert any(
        re.fullmatch(r"training_tasks 4 → 4 \d+ tokens belongs to a held-out task", line) for line in told
    )
    assert any(re.fullmatch(r"solved 4 → 3 \d+ tokens did not solve its task", line) for line in told)
    assert any(re.match(r"shortest 3 → 2 \d+ tokens is not among the shortest 50%", line) for line in told)
    assert lines[0] == "--- example 1, of chats.jsonl:1: prompt, sampled and masked, sampled and trained"
    assert "[trained] It is in Rome." in lines and any(line.startswith("[masked]") for line in lines)
    assert "2 examples of 2 episodes, " in lines[-2] and lines[-1] == "short.jsonl: 2 conversations"
    made = rows(Path("short.jsonl"))
    assert [(row["sources"], weights(row), row["reward"]) for row in made] == [
        (["chats.jsonl:1"], [0, 1], 1.0),
        (["chats.jsonl:3"], [0, 1], 0.5),
    ]
    assert [record.tools[0].name for record in read_records(read_objects(Path("short.jsonl")))] == [
        "search"
    ] * 2
    cli("data", "short.jsonl", "--out", "again.jsonl")
    assert rows(Path("again.jsonl")) == made
    transcriber = Transcriber(chat_of([Path("again.jsonl")], None), Rules())
    told = transcriber.trajectories(read_records(read_objects(Path("again.jsonl"))))
    assert [t.task.data["sources"] for t in told] == ["chats.jsonl:1", "chats.jsonl:3"], (
        "a run's journal has them"
    )


def test_wrong_calls_are_context_and_hints_go(cli: Callable[..., Any], chats: Path) -> None:
    cli("data", "chats.jsonl", "--stage", "right_calls", "--out", "right.jsonl")
    assert [weights(row) for row in rows(Path("right.jsonl"))] == [[1, 1], [1, 1, 1], [0, 1], [1]]
    cli("data", "chats.jsonl", "--stage", "stripped?pattern=Hint: \\w%2B\\. ", "--out", "plain.jsonl")
    texts = [row["messages"][0]["content"] for row in rows(Path("plain.jsonl"))]
    assert texts == ["Where is the Pantheon?"] * 3 + ["Where is the Kon-Tiki?"]
    told = cli("data", "chats.jsonl", "--stage", "stripped?pattern=Rome").out
    assert "stripped             4 → 0" in told


def test_sources_are_mixed_by_shares_of_samples(cli: Callable[..., Any], chats: Path) -> None:
    write(chats.with_name("other.jsonl"), [chat("Hello", DONE)] * 4)
    out = cli(
        "data", "chats.jsonl", "other.jsonl", "--stage", "mixture?shares=chats.jsonl:0.25,other.jsonl:0.75"
    ).out
    assert "chats.jsonl: 25% of the samples" in out and "other.jsonl: 75% of the samples" in out
    write(
        chats.with_name("held.jsonl"),
        [chat("Look here: where is the Pantheon?", {"role": "assistant", "content": "Yes."})],
    )
    assert (
        "contamination        4 → 1"
        in cli("data", "chats.jsonl", "--stage", "contamination?held_out=held.jsonl&size=4").out
    )
    clash = json.loads(json.dumps(SEARCH).replace('"word"', '"query"'))
    write(chats.with_name("clash.jsonl"), [{**chat("Hello", DONE), "tools": [clash]}])
    assert (
        "mixture of chats.jsonl and clash.jsonl: got the tool 'search' with other arguments in each"
        in cli("data", "chats.jsonl", "clash.jsonl").error
    )


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("solvd", "--stage: got 'solvd'; did you mean 'solved'?"),
        ("best?cuont=2", "option of best: got 'cuont'; did you mean 'count'?"),
        ("solved?x=1", "option of solved: got 'x'; it has no options"),
        ("best?count=two", "count of best: got 'two'; give an integer"),
        ("shortest?per_task=perhaps", "per_task of shortest: got 'perhaps'; give true or false"),
        ("threshold", "stage threshold: got no above; write it as threshold?above=NUMBER"),
        ("best?2", "options of best: got '2'; write them as name=value&name=value"),
        (
            "threshold?above=9",
            "chats.jsonl: got 4 episodes into threshold and none out of it, because each has an",
        ),
        ("mixture?shares=chats:1", "shares of mixture: got 'chats'; did you mean 'chats.jsonl'?"),
        ("mixture?shares=chats.jsonl", "shares of mixture: got 'chats.jsonl'; write NAME:SHARE,NAME:SHARE"),
        (
            "mixture?shares=chats.jsonl:nan",
            "chats.jsonl of shares of mixture: got 'nan'; give a number of 0 or more",
        ),
        ("threshold?above=nan", "above of threshold: got 'nan'; give a finite number"),
        ("threshold?above=-inf", "above of threshold: got '-inf'; give a finite number"),
        ("turn_discount?by=much", "by of turn_discount: got 'much'; give a number"),
        ("contamination?held_out=gone", "held_out of contamination: got 'gone', which is not there"),
        (
            "executable",
            "stage executable: got conversations without an environment; say executable?environment",
        ),
        ("stripped?pattern=(", "pattern of stripped: got '('"),
        ("verified?by=expert", "by of verified: got 'expert'; give world or the address of a model, http://"),
        ("critical?ratio=0", "ratio of critical: got 0.0; give a share above 0 and at most 1"),
        ("critical?environment=guess", "stage critical by progress: got guess, which does not say how far"),
        (
            "relabelled",
            "stage relabelled: got conversations (chats.jsonl), whose prompts no harness wrote; give runs",
        ),
        (
            "relabelled?environment=craft",
            "option of relabelled: got 'environment'; it has no options",
        ),
        (
            "negatives",
            "stage negatives: got conversations (chats.jsonl), which do not say what came of a call",
        ),
        ("spliced?by=luck", "by of spliced: got 'luck'; choose from expert, progress"),
        ("spliced", "stage spliced: got conversations without an environment; say spliced?environment=E"),
        ("spliced?environment=twocards", "stage spliced: got twocards, in which several seats act; give"),
        (
            "spliced?environment=guess&by=progress",
            "stage spliced: got guess, which does not say how far a task has come; say spliced?by=expert",
        ),
        ("rationales?by=expert", "by of rationales: got 'expert'; give the address of a model, http://"),
        (
            "rationales?by=http://127.0.0.1:1/v1",
            "by of rationales: got 'http://127.0.0.1:1/v1' without a model",
        ),
        ("rationales?by=http://h/v1?model=m&marker=(", "marker of rationales: got '('"),
        (
            "one_transcript",
            "chats.jsonl: got 4 episodes into one_transcript and none out of it, because each has no roles",
        ),
        ("one_transcript?names=a", "names of one_transcript: got 'a'; write SEAT:MARK,SEAT:MARK"),
        ("perplexity?by=gone", "model 'gone': got no run, folder or file of that name"),
        ("refusals?share=1", "share of refusals: got 1; give one above 0 and below 1"),
        (
            "refusals?share=0.8",
            "share of refusals: got 0.8, which takes 16 negatives, and 3 conversations that",
        ),
        ("shuffled_tools?copies=0", "copies of shuffled_tools: got 0; give 1 or more"),
        (
            "distinct_states",
            "stage distinct_states: got conversations without an environment; say distinct_states?",
        ),
    ],
)
def test_what_is_wrong_is_one_line(cli: Callable[..., Any], chats: Path, stage: str, says: str) -> None:
    found = cli("data", "chats.jsonl", "--stage", stage)
    assert found.status and f"quintain: error: {says}" in found.error and found.error.count("\n") == 1


def test_weights_that_messages_cannot_hold(cli: Callable[..., Any], chats: Path) -> None:
    found = cli("data", "chats.jsonl", "--stage", "turn_discount?by=0.5", "--out", "o.jsonl")
    assert "weights of answer 0 of chats.jsonl:1: got 0.5, and messages hold 0 or 1" in found.error
    assert not Path("o.jsonl").exists()
    for arguments, says in (
        (["data"], "quintain data needs RUN|FILE: got nothing"),
        (["data", "chats.jsonl", "--out", "chats.jsonl"], "--out: got 'chats.jsonl', which exists"),
        (["data", "chats.jsonl", "--out", "o.csv"], "--out: got 'o.csv'; give a file that ends in .jsonl"),
        (["data", "gone.jsonl"], "got 'gone.jsonl', and there is no such file"),
        (["data", "chats.jsonl", "./chats.jsonl"], "got a second source that is called chats.jsonl"),
    ):
        assert says in cli(*arguments).error


def test_stages_choose_among_the_episodes_of_a_run(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "guess", "--episodes", "2", "--out", "runs/taught")
    cli("data", "taught", "--stage", "executable", "--stage", "last_turn", "--out", "last.jsonl")
    made = rows(tmp_path / "last.jsonl")
    assert [row["sources"][0].partition(":")[0] for row in made] == ["taught", "taught"]
    assert all(weights(row) == [*[0] * (len(weights(row)) - 1), 1] for row in made)


@pytest.mark.slow
def test_episodes_of_a_run(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "guess", "--episodes", "4", "--out", "runs/taught")
    cli(
        "data", "taught", "--stage", "solved", "--stage", "best", "--stage", "best", "--stage", "executable",
        "--stage", "right_calls?semantic=false", "--stage", "segment_reward", "--stage", "last_turn",
        "--out", "last.jsonl",
    )  # fmt: skip
    made = rows(tmp_path / "last.jsonl")
    assert len(made) == 4 and all(weights(row)[-1] == 1 and not any(weights(row)[:-1]) for row in made)
    assert all(row["sources"][0].startswith("taught:") for row in made)
    assert "best_2" in cli("data", "taught", "--stage", "best", "--stage", "best").out
    cli("data", "taught", "--stage", "stripped?pattern=number ", "--out", "plain.jsonl")
    cli("data", "taught", "--out", "whole.jsonl")
    before, after = (tmp_path / "whole.jsonl").read_text(), (tmp_path / "plain.jsonl").read_text()
    assert "number " in rows(tmp_path / "whole.jsonl")[0]["messages"][0]["content"] and before != after
    texts = [
        m["content"]
        for row in rows(tmp_path / "plain.jsonl")
        for m in row["messages"]
        if m["role"] != "assistant"
    ]
    assert texts and not any("number " in text for text in texts)
    cli("collect", "craft", "--episodes", "1", "--out", "runs/chosen")
    assert (
        "does not write again as they were recorded, so its text is fixed; write it as messages first: quintain export"
        in cli("data", "chosen", "--stage", "stripped?pattern=zzz").error
    )


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ChatModel, str]]:
    """A judge that likes what ends with Rome., and turn 1 of an episode."""
    monkeypatch.setattr(http_json, "PAUSE", 0.001)

    def say(body: dict[str, Any]) -> str:
        told = json.loads(body["messages"][1]["content"])
        if "turn" in told:
            return f"Well.\nSCORE: {9 if told['turn'] == 1 else 0}"
        if "answer" in told:
            return f"SCORE: {10 if 'secret' in told['answer'] else 0}"
        return f"SCORE: {8 if len(told['turns']) == 2 else 2}"

    model = ChatModel(say)
    (tmp_path / "key").write_text(KEY)
    yield model, f"by={model.url}?model=judge%26key_file={tmp_path}/key"
    model.listener.close()


def test_stages_by_the_judgement_of_a_model(
    cli: Callable[..., Any], chats: Path, judge: tuple[ChatModel, str]
) -> None:
    model, by = judge
    cli("data", "chats.jsonl", "--stage", f"critical?{by}&ratio=0.5", "--out", "critical.jsonl")
    assert [weights(row) for row in rows(Path("critical.jsonl"))] == [[0, 1], [0, 1, 0], [0, 1]]
    asked = [json.loads(body["messages"][1]["content"]) for body in model.seen]
    assert sorted(told["turn"] for told in asked if len(told["turns"]) == 3) == [0, 1, 2]
    assert "how critical that turn is" in model.seen[0]["messages"][0]["content"]
    cli("data", "chats.jsonl", "--stage", f"verified?{by}", "--out", "verified.jsonl")
    assert [row["sources"] for row in rows(Path("verified.jsonl"))] == [["chats.jsonl:1"], ["chats.jsonl:3"]]
    told = cli("data", "chats.jsonl", "--stage", f"verified?{by}&least=0.2").out
    assert re.search(r"verified +4 → 4 .*has a score below 0.2 of the judge", told)
    write(chats, [*CHATS, chat("Hint: Oslo. Where?", {"role": "assistant", "content": "In secret."})])
    out = cli(
        "data", "chats.jsonl", "--stage", f"stripped?pattern=Hint: Oslo. &{by}", "--out", "plain.jsonl"
    ).out
    assert re.search(r"stripped +5 → 4 ", out)
    model.say = lambda body: "no score" if "Oslo" in body["messages"][1]["content"] else "SCORE: 8"
    told = cli("data", "chats.jsonl", "--stage", f"verified?{by}%26rubric={chats}").out
    assert re.search(r"verified +5 → 3 .*\(2 have no verdict that can be read\)", told)
    model.say = lambda _: "no score"
    for stage in ("critical", "verified"):
        found = cli("data", "chats.jsonl", "--stage", f"{stage}?{by}")
        assert found.status and "which does not end with SCORE: n" in found.error


def test_stages_by_what_the_world_says(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "craft", "--episodes", "12", "--expert-noise", "0.8", "--out", "runs/made")
    before = cli("data", "made", "--stage", "verified").out
    num_solved = int(re.search(r"verified +12 → (\d+)", before)[1])  # type: ignore[index]
    out = cli(
        "data", "made", "--stage", "relabelled", "--stage", "verified", "--stage", "distinct_states",
        "--stage", "critical?words=make&ratio=1", "--out", "made.jsonl",
    ).out  # fmt: skip
    num_relabelled = int(re.search(r"relabelled +12 → (\d+)", out)[1])  # type: ignore[index]
    assert num_solved < num_relabelled
    assert re.search(rf"verified +{num_relabelled} → {num_relabelled} ", out)
    made = rows(tmp_path / "made.jsonl")
    assert made and all(row["is_success"] and row["sources"][0].startswith("made:") for row in made)
    for row in made:
        own = [m for m in row["messages"] if m["role"] == "assistant"]
        assert [m.get("weight", 1) for m in own] == [int(m["content"].startswith("make")) for m in own]
        goal = re.search(r"Goal: ([a-z ]+)\.", row["messages"][1]["content"])[1]  # type: ignore[index]
        assert any(m["content"].endswith(goal) for m in own)
    # A transcript without an outcome is judged by the world that it is of.
    lines = [
        {key: value for key, value in row.items() if key not in ("is_success", "reward")} for row in made
    ]
    lines[0]["messages"] = lines[0]["messages"][:-2]
    write(tmp_path / "told.jsonl", lines)
    told = cli("data", "told.jsonl", "--stage", "verified?environment=craft").out
    assert re.search(rf"verified +{len(lines)} → \d+ ", told)


def test_states_are_recorded_or_found_by_a_replay(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "guess?high=8", "--episodes", "6", "--out", "runs/taught")
    with Run.open(tmp_path / "runs" / "taught", writable=False) as run:
        episodes = list(run.trajectories())
        assert all(turn.state_key is not None for t in episodes for turn in t.turns)
        bare = [
            replace(t, turns=tuple(replace(turn, state_key=None) for turn in t.turns), index=index)
            for t in episodes
            for index in range(2)
        ]
        write_run(bare, tokenizer_of(run.folder), tmp_path / "runs" / "bare", dict(run.config))
    assert re.search(r"distinct_states +6 → 6 ", cli("data", "taught", "--stage", "distinct_states").out)
    assert re.search(r"distinct_states +12 → 6 ", cli("data", "bare", "--stage", "distinct_states").out)


def test_every_stage_is_listed_with_its_options(cli: Callable[..., Any]) -> None:
    listed = cli("data", "--list").out
    assert all(name in listed and text for name, _, text in stage_rows())
    assert write_option(options_of(STAGES["shortest"])["share"]) == "[share=0.2]"
    assert write_option(options_of(STAGES["num_turns"])["most"]) == "[most=N]"


def test_calls_are_looked_at_with_the_data(cli: Callable[..., Any], chats: Path) -> None:
    found = cli("check", "chats.jsonl", "--show", "0")
    assert "calls, executable\tpass\tnothing was found" in found.out
    assert (
        "calls, semantic\tnote\t1 values were not said before the call" in found.out
        and "chats.jsonl line 3, answer 0, search" in found.out
    )
    cli("data", "chats.jsonl", "--stage", "right_calls", "--out", "right.jsonl")
    assert "calls, semantic\tpass" in cli("check", "right.jsonl", "--show", "0").out, (
        "what is not trained is not told"
    )
    write(chats, [chat("Hello", call(wrd="Hello"), RESULT, DONE)])
    found = cli("check", "chats.jsonl", "--show", "0")
    assert found.status and "misnamed: got the argument 'wrd'; it is called 'word'" in found.out


def test_tools_that_differ_within_a_file_are_told(cli: Callable[..., Any], chats: Path) -> None:
    assert "other arguments" not in cli("check", "chats.jsonl", "--show", "0").out
    other = json.loads(json.dumps(SEARCH).replace('"word"', '"query"'))
    write(chats, [*CHATS, {**chat("Hello", DONE), "tools": [other]}])
    says = "1 with other arguments in other records: search (chats.jsonl line 1, chats.jsonl line 5)"
    assert f"differing tools\tnote\t{says}" in cli("check", "chats.jsonl", "--show", "0").out
    assert f"note: tools {says}" in cli("data", "chats.jsonl").out.splitlines()


def test_a_teacher_that_errs_has_turns_that_are_masked(cli: Callable[..., Any], chats: Path) -> None:
    cli("collect", "calc", "--episodes", "12", "--expert-noise", "0.5", "--out", "runs/erring")
    told = cli("data", "erring", "--stage", "right_calls").out.splitlines()
    before, after = (int(line.split(" tokens")[0].split()[-1].replace(",", "")) for line in told[:2])
    assert 0 < after < before
    assert (
        "expert_noise: got 0.5 with the agent random"
        in cli("collect", "calc", "--agent", "random", "--expert-noise", "0.5", "--out", "runs/other").error
    )


def test_the_way_out_of_a_failure_alone_counts(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "craft?depth=1", "--episodes", "3", "--expert-noise", "0.8", "--out", "runs/made")
    told = cli("data", "made", "--stage", "spliced", "--out", "right.jsonl").out
    num_right = int(re.search(r"\((?:.*, )?(\d+) were put right", told)[1])  # type: ignore[index]
    made = [row for row in rows(tmp_path / "right.jsonl") if 0 in weights(row)]
    assert num_right == len(made) > 0 and all(row["is_success"] and weights(row)[-1] for row in made)


@pytest.mark.slow
def test_failures_are_put_right_behind_their_first_bad_turn(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "craft", "--episodes", "12", "--expert-noise", "0.8", "--out", "runs/made")
    told = cli("data", "made", "--stage", "spliced", "--stage", "verified", "--out", "right.jsonl").out
    num_right = int(re.search(r"\((?:.*, )?(\d+) were put right", told)[1])  # type: ignore[index]
    num_left = int(re.search(r"spliced +12 → (\d+)", told)[1])  # type: ignore[index]
    assert num_right and re.search(rf"verified +{num_left} → {num_left} ", told)
    made = [row for row in rows(tmp_path / "right.jsonl") if 0 in weights(row)]
    assert len(made) == num_right and all(row["is_success"] for row in made)
    assert all(sorted(weights(row)) == weights(row) and weights(row)[-1] for row in made), (
        "first what went wrong"
    )
    cli("data", "made", "--out", "told.jsonl")
    cli("data", "told.jsonl", "--stage", "spliced?environment=craft", "--out", "again.jsonl")
    again = [row for row in rows(tmp_path / "again.jsonl") if 0 in weights(row)]
    assert [row["messages"] for row in again] == [row["messages"] for row in made]
    told = cli("data", "again.jsonl", "--stage", "spliced?environment=craft&solved=true").out
    assert re.search(rf"spliced +{num_left} → {num_left} .*put right", told)


@pytest.fixture
def thinker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ChatModel, str]]:
    """A writer of thoughts that speaks of the hint where Rome was looked for, and calls a tool in its answers."""
    monkeypatch.setattr(http_json, "PAUSE", 0.001)

    def say(body: dict[str, Any]) -> str:
        told = json.loads(body["messages"][1]["content"])
        if "Colosseum" in told["right action"]:
            return "As the hint says."
        return "So </think> it is." if told["right action"] == "It is in Rome." else "I look it up."

    model = ChatModel(say)
    (tmp_path / "key").write_text(KEY)
    yield model, f"by={model.url}?model=thinker%26key_file={tmp_path}/key"
    model.listener.close()


def test_thoughts_come_in_front_of_actions(
    cli: Callable[..., Any], chats: Path, thinker: tuple[ChatModel, str]
) -> None:
    model, by = thinker
    thinks = chat("And Oslo?", {"role": "assistant", "content": "<think>\nI know.\n</think>\n\nIn Norway."})
    write(chats, [*CHATS, thinks])
    told = cli("data", "chats.jsonl", "--stage", f"rationales?{by}", "--out", "thought.jsonl").out
    assert "(3 written, 4 dropped, which change the action, 1 dropped, which name what was told)" in told
    first, second, third, _, last = rows(Path("thought.jsonl"))
    said = [m["content"] for m in first["messages"] if m["role"] == "assistant"]
    assert said == ["I look it up.", "It is in Rome."] and first["messages"][1]["tool_calls"]
    assert [m["content"] for m in second["messages"] if m.get("tool_calls")] == ["I look it up."] * 2
    assert third["messages"][1]["content"] == "" and last["messages"] == thinks["messages"]
    asked = json.loads(model.seen[0]["messages"][1]["content"])
    assert set(asked) == {"so far", "right action"} and "right" in model.seen[0]["messages"][0]["content"]
    cli("data", "chats.jsonl", "--stage", f"rationales?{by}&needed=true", "--out", "only.jsonl")
    assert [weights(row) for row in rows(Path("only.jsonl"))] == [[1, 0], [1, 1, 0], [1]]
    model.say = lambda _: 500
    found = cli("data", "chats.jsonl", "--stage", f"rationales?{by}")
    assert "rationales of http" in found.error and "HTTP status 500" in found.error


def test_a_run_is_told_again_through_its_harness(
    cli: Callable[..., Any], chats: Path, thinker: tuple[ChatModel, str]
) -> None:
    _, by = thinker
    cli("collect", "calc", "--episodes", "2", "--out", "runs/taught")
    told = cli("data", "taught", "--stage", f"rationales?{by}", "--out", "thought.jsonl", "--show", "1").out
    assert "[trained] I look it up.<tool_call>" in told
    for row in rows(Path("thought.jsonl")):
        assert all(m["content"] == "I look it up." for m in row["messages"] if m["role"] == "assistant")
    cli("collect", "sokoban", "--episodes", "1", "--out", "runs/bare")
    assert cli("data", "bare", "--stage", f"rationales?{by}").status == 0  # a thought in front is no action


def test_several_seats_become_one_transcript(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "twocards", "--episodes", "4", "--out", "runs/two")
    told = cli("data", "two", "--stage", "one_transcript?names=A:left", "--out", "one.jsonl").out
    assert re.search(r"one_transcript +8 → 4 ", told)
    made = rows(tmp_path / "one.jsonl")
    for row in made:
        said = [m["content"] for m in row["messages"] if m["role"] == "assistant"]
        assert said[0].startswith("<left>say ") and said[1].startswith("<B>") and len(row["sources"]) == 2
        assert [m["role"] for m in row["messages"]] == ["system", *["user", "assistant"] * len(said)]
    cli("data", "one.jsonl", "--out", "again.jsonl")
    assert rows(tmp_path / "again.jsonl") == made
    write(tmp_path / "held.jsonl", [{"messages": made[0]["messages"][3:5]}])
    held = "contamination?held_out=held.jsonl&size=5"
    told = cli("data", "two", "--stage", held, "--stage", "one_transcript").out
    assert re.search(r"one_transcript +7 → 3 .*\(1 miss a seat\)", told)
    found = cli("data", "two", "--stage", "last_turn", "--stage", "one_transcript").error
    assert "got an episode that an earlier stage weighed or changed; put it behind filters" in found
    named = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "name": "solver", "content": "4 < 5"},
        {"role": "assistant", "name": "critic", "content": "5"},
    ]
    write(
        tmp_path / "team.jsonl", [{"messages": named}, {"messages": [*named[:1], {**named[1], "name": ""}]}]
    )
    out = cli(
        "data", "team.jsonl", "--stage", "one_transcript?names=critic:double_check", "--out", "t.jsonl"
    ).out
    assert "one_transcript       2 → 1 " in out and "(1 name no speakers)" in out
    (row,) = rows(tmp_path / "t.jsonl")
    assert row["messages"][1]["content"] == "<solver>4 &lt; 5</solver><double_check>5</double_check>"


def test_perplexity_under_another_model(cli: Callable[..., Any], chats: Path, tmp_path: Path) -> None:
    chat_format = chat_of([chats], None)
    save(build_tiny(chat_format.tokenizer, size="micro"), chat_format.tokenizer, tmp_path / "model")
    size = len(chat_format.tokenizer)
    told = cli("data", "chats.jsonl", "--stage", f"perplexity?by=model&low={size / 9}&high={size * 9}").out
    assert re.search(r"perplexity +4 → 4 ", told), "a new model finds all tokens about as likely"
    assert re.search(
        r"perplexity +4 → 0 ", cli("data", "chats.jsonl", "--stage", "perplexity?by=model&high=2").out
    )


@pytest.mark.slow
def test_perplexity_of_a_run_in_tokens_of_another_model(
    cli: Callable[..., Any], chats: Path, tmp_path: Path
) -> None:
    chat_format = chat_of([chats], None)
    save(build_tiny(chat_format.tokenizer, size="micro"), chat_format.tokenizer, tmp_path / "model")
    cli("collect", "craft", "--episodes", "2", "--out", "runs/made")
    assert (
        "as in demonstrations; measure it with another model"
        in cli("data", "made", "--stage", "perplexity").error
    )
    assert re.search(r"perplexity +2 → 2 ", cli("data", "made", "--stage", "perplexity?by=model").out)


def test_perplexity_by_an_endpoint(
    cli: Callable[..., Any], chats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)

    def say(body: dict[str, Any]) -> Any:
        """Answers are tokens of a letter each with a log-prob of -2 nats, all else has -9."""
        text, own = body["prompt"], len("Assistant:")
        is_said = [
            text[: n + 1].rpartition("\n")[2][: own + 1].startswith("Assistant:") for n in range(len(text))
        ]
        values = [
            -2.0 if said and text[: n + 1].rpartition("\n")[2] != "Assistant:" else -9.0
            for n, said in enumerate(is_said)
        ]
        told = {"text_offset": [*range(len(text)), len(text)], "token_logprobs": [None, *values[1:], -1.0]}
        return {"choices": [{"logprobs": told}]}

    model = ChatModel(say)
    (tmp_path / "key").write_text(KEY)
    by = f"by={model.url}?model=base%26key_file={tmp_path}/key"
    try:
        told = cli("data", "chats.jsonl", "--stage", f"perplexity?{by}&low=7&high=12").out
        assert re.search(r"perplexity +4 → 4 ", told), "exp(2) is 7.4, and a line's end is said, too"
        assert model.seen[0]["echo"] and model.seen[0]["prompt"].startswith(
            "User: Where is the Pantheon?\nAssistant: "
        )
        model.say = lambda _: {"choices": [{"logprobs": None}]}
        found = cli("data", "chats.jsonl", "--stage", f"perplexity?{by}")
        assert found.status and "give an endpoint that returns the log-probs of a prompt" in found.error
    finally:
        model.listener.close()


@pytest.mark.parametrize("stage", ["as_chat", "refusals", "shuffled_tools"])
def test_runs_are_not_said_otherwise(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("collect", "guess", "--episodes", "2", "--out", "runs/made")
    assert (
        f"stage {stage}: got a run (made), whose prompts its harness wrote; write it as messages first"
        in cli("data", "made", "--stage", stage).error
    )


def test_calls_become_chat(cli: Callable[..., Any], chats: Path) -> None:
    broken = {"role": "assistant", "content": "Action: search\nAction Input: {word"}
    write(chats, [*CHATS, {"messages": [{"role": "user", "content": "Where?"}, broken]}])
    out = cli(
        "data", "chats.jsonl", "--stage", "right_calls", "--stage", "as_chat", "--out", "plain.jsonl"
    ).out
    assert re.search(r"as_chat +5 → 4 .*holds a call that cannot be read \(4 were changed\)", out)
    made = rows(Path("plain.jsonl"))
    assert [weights(row) for row in made] == [[1, 1], [1, 1, 1], [0, 1], [1]], "masks stay"
    assert "tools" not in made[0] and "tool_calls" not in json.dumps(made)
    assert [m["content"] for m in made[0]["messages"]] == [
        "You can call search with word (string): Look.",
        "Where is the Pantheon?",
        'I call search with word = "Pantheon".',
        "The result: Found it in Rome.",
        "It is in Rome.",
    ]
    cli("data", "plain.jsonl", "--out", "again.jsonl")
    assert rows(Path("again.jsonl")) == made


def test_negatives_of_both_kinds_in_their_share(cli: Callable[..., Any], chats: Path) -> None:
    plain = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello!"}]
    write(chats, [*CHATS[:2], *[{"messages": plain, "reward": 2.0}] * 4])
    base = ("data", "chats.jsonl", "--stage", "refusals?share=0.45&text=No.", "--out")
    out = cli(*base, "one.jsonl").out
    counted = "gets negatives beside it (2 ask for tools that are not listed, 3 are plain chats beside tools)"
    assert re.search(r"refusals +6 → 11 ", out) and counted in out and "11 examples of 6 episodes" in out
    made = rows(Path("one.jsonl"))
    assert made[:2] == [{**row, "sources": [f"chats.jsonl:{k}"]} for k, row in enumerate(CHATS[:2], 1)]
    for row in made[6:8]:
        assert [m["content"] for m in row["messages"]] == ["Where is the Pantheon?", "No."]
        assert "tools" not in row and "reward" not in row
    for row in made[8:]:
        assert row["messages"] == plain and [t["function"]["name"] for t in row["tools"]] == ["search"]
    assert {row["sources"][0] for row in made[6:8]} == {"chats.jsonl:1", "chats.jsonl:2"}
    assert {row["sources"][0] for row in made[8:]} < {f"chats.jsonl:{k}" for k in range(3, 7)}
    cli(*base, "two.jsonl")
    assert rows(Path("two.jsonl")) == made


def test_copies_with_tools_in_another_order(cli: Callable[..., Any], chats: Path) -> None:
    tools = [
        json.loads(json.dumps(SEARCH).replace('"search"', f'"{name}"'))
        for name in ("search", "t0", "t1", "t2")
    ]
    write(chats, [{**CHATS[2], "tools": tools}, CHATS[0]])
    stages = ("--stage", "right_calls", "--stage", "shuffled_tools?copies=2")
    out = cli("data", "chats.jsonl", *stages, "--out", "more.jsonl").out
    assert re.search(r"shuffled_tools +2 → 4 .*\(1 have one tool of one parameter, or none\)", out)
    made = rows(Path("more.jsonl"))
    assert [row["sources"] for row in made] == [["chats.jsonl:1"]] * 3 + [["chats.jsonl:2"]]
    assert [weights(row) for row in made] == [[0, 1]] * 3 + [[1, 1]]
    orders = [[t["function"]["name"] for t in row["tools"]] for row in made[:3]]
    assert all(sorted(order) == sorted(orders[0]) for order in orders) and len(set(map(tuple, orders))) > 1
    assert made[1]["messages"] == made[0]["messages"]
