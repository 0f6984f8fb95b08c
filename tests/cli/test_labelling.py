"""``quintain label``: what is asked of a run and of a file, in the terminal and in the page, and what comes out."""

import io
import json
import re
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.cli.main import main
from quintain.data.labels import read_labels
from quintain.data.samples import num_shared
from quintain.environments.catalog import find
from quintain.eval.reward_model import by_dispute
from quintain.learning.policies import build_policies
from quintain.learning.train_config import PolicySpec, TrainConfig
from quintain.models.heads import ValueHead
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.runs.context import make_engine
from quintain.serve.listener import Listener
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Pair, Trajectory
from quintain.warm_start.demonstrations import load_data, tokenizer_of, write_run
from quintain.warm_start.start import build_agent

Cli = Callable[..., Any]


@pytest.fixture
def typed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run ``quintain label`` with lines on standard input."""

    def call(*argv: str, lines: str = "") -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return cli("label", *argv)

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes each of three tasks of ``guess``, the expert's and one that errs, in the run ``both``."""
    root = tmp_path_factory.mktemp("labelled")
    for name, mistakes in (("right", "0"), ("wrong", "0.7")):
        given = ("--episodes", "3", "--expert-noise", mistakes, "--out", str(root / name))
        assert main(["collect", "guess", *given]) == 0
    episodes: list[Trajectory] = []
    config: dict[str, Any] = {}
    for index, name in enumerate(("right", "wrong")):
        with Run.open(root / name, writable=False) as made:
            episodes += [replace(t, index=index, id="") for t in made.trajectories()]
            config = dict(made.config)
    chat = Chat(tokenizer_of(root / "right"))
    episodes[-1] = misspelt(episodes[-1], chat)
    write_run(episodes, tokenizer_of(root / "right"), root / "both", config)
    return root


@pytest.fixture
def run(cli: Cli, tmp_path: Path, runs: Path) -> Path:
    """The run ``both`` beside those that it was made of, in the folder of a test."""
    return shutil.copytree(runs, tmp_path / "runs") / "both"


def misspelt(trajectory: Trajectory, chat: Chat) -> Trajectory:
    """Return an episode of one turn, whose call cannot be read."""
    said = chat.write('<tool_call>{"name": "guess"')
    turn = trajectory.turns[0]
    turn = replace(
        turn,
        completion=replace(turn.completion, token_ids=said, logprobs=()),
        action=Action(text=chat.text(said), error="no JSON"),
    )
    return replace(trajectory, turns=(turn,))


def test_a_person_compares_in_the_terminal_and_goes_on_later(typed: Callable[..., Any], run: Path) -> None:
    first = typed("both", "--labeller", "ann", "--terminal", "--count", "2", lines="better\n1\nu\n2\n")
    assert first.status == 0, first.error
    assert "answer: got 'better'; " in first.out and "taken back: the answer to " in first.out
    assert "1: first" in first.out and "both begin with" in first.out and "[assistant]" in first.out
    assert first.out.splitlines()[-1] == "ann: 1 of 2 answered"
    assert [label.choice for label in read_labels(run / "labels.jsonl").given] == ["second"]
    again = typed("both", "--labeller", "ann", "--terminal", lines="u\n=\n=\nq\n")
    assert again.out.splitlines()[-1].removeprefix("> ") == "ann: 2 of 2 answered"
    more = typed("both", "--labeller", "ann", "--terminal", "--count", "3", lines="q\n")
    assert "2 of 3 answered by ann" in more.out
    assert "nothing to undo" in typed("both", "--labeller", "bob", "--terminal", lines="u\n").out


def test_a_run_s_pairs_come_back_token_by_token(typed: Callable[..., Any], run: Path) -> None:
    typed("both", "--labeller", "ann", "--terminal", lines="1\n2\n1\n")
    out = typed("both", "--export", "pairs.jsonl").out
    assert out.splitlines() == ["ann: 3 of 3 answered", "pairs.jsonl: 3 preferences"]
    with Run.open(run, writable=False) as made:
        by_name = {t.id: t for t in made.trajectories()}
        environment = str(made.config["environment"])
    labels = read_labels(run / "labels.jsonl")
    tokenizer = tokenizer_of(run)
    harness = build_agent(tokenizer, find(environment), temperature=1.0, agent="auto")
    config = TrainConfig(environment=environment)
    found = load_data(
        Path("pairs.jsonl"), tokenizer, config, agent=harness, max_length=4096, form="preferences"
    )
    for pair, query, choice in zip(
        found.data, labels.queries.values(), ("first", "second", "first"), strict=True
    ):
        better, worse = query.sources if choice == "first" else query.sources[::-1]
        assert isinstance(pair, Pair)
        assert tokens(pair.chosen) == tokens(by_name[better])
        assert tokens(pair.rejected) == tokens(by_name[worse])


def tokens(trajectory: Trajectory) -> list[int]:
    return [i for turn in trajectory.turns for i in (*turn.prompt_ids, *turn.completion.token_ids)]


def test_steps_are_what_two_episodes_did_next(typed: Callable[..., Any], run: Path) -> None:
    typed("both", "--labeller", "ann", "--terminal", "--level", "step", "--labels", "steps.jsonl")
    queries = read_labels(Path("steps.jsonl")).queries.values()
    with Run.open(run, writable=False) as made:
        for query in queries:
            one, other = (made.episode(name) for name in query.sources)
            turn = num_shared(Pair(chosen=one, rejected=other))
            for side in (query.first, query.second):
                assert sum(m["role"] == "assistant" for m in side["messages"]) == turn + 1
                assert not {"reward", "is_success"} & side.keys()
            assert one.task.id == other.task.id
    assert queries


def test_conversations_of_a_file(typed: Callable[..., Any]) -> None:
    def chat(answer: str, **fields: Any) -> str:
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer}]
        return json.dumps({"messages": messages, "reward": 1, **fields}) + "\n"

    Path("chats.jsonl").write_text("".join(chat(text, task="a") for text in ("x", "y", "x", "z")))
    assert typed("chats.jsonl", "--labeller", "ann", "--terminal", lines="1\n").status == 0
    found = read_labels(Path("chats.labels.jsonl"))
    assert len(found.queries) == 3, "x and x are no question, x and y one"
    assert all("chats.jsonl line" in source for query in found.queries.values() for source in query.sources)
    shown = typed("chats.labels.jsonl", "--labeller", "bob", "--terminal", "--count", "9", lines="2\n=\ns\n")
    ends = shown.out.splitlines()[-4:]
    assert [line.removeprefix("> ") for line in ends[:2]] == ["ann: 1 of 3 answered", "bob: 3 of 3 answered"]
    assert ends[2] == "ann and bob agree on 0.0% of 1 questions, Cohen's kappa 0.00"
    assert re.fullmatch(r"opposite answers to \w{20} \(1 in all\)", ends[3])
    refused = typed("chats.labels.jsonl", "--export", "out.jsonl")
    assert refused.line == (
        "preferences of chats.labels.jsonl: got 0 preferences; 1 with opposite answers; 1 as good as each other; 1 "
        "that could not be compared; label more"
    )
    typed("chats.labels.jsonl", "--labeller", "eve", "--terminal", lines="1\n1\n2\n")
    told = typed("chats.labels.jsonl", "--export", "out.jsonl").out.splitlines()
    assert told[-1] == "out.jsonl: 2 preferences; 1 with opposite answers"
    assert re.fullmatch(r"opposite answers to \w{20} \(1 in all\)", told[-2])
    assert typed("chats.labels.jsonl", "--export", "out.jsonl").line.endswith(
        "give a new file that ends in .jsonl"
    )
    assert (
        "steps are of a run"
        in typed("chats.jsonl", "--labeller", "a", "--level", "step", "--labels", "n.jsonl").line
    )
    Path("one.jsonl").write_text(chat("x", task="a") + chat("x", task="a") + chat("y", task="b"))
    assert "no two of the same task differ" in typed("one.jsonl", "--labeller", "a", "--terminal").line
    Path("bare.jsonl").write_text(chat("x"))
    assert (
        "bare.jsonl line 1: got the keys ['messages', 'reward']"
        in typed("bare.jsonl", "--labeller", "a").line
    )
    assert "needs --labeller" in typed("chats.jsonl").line


def test_reward_models_name_what_they_differ_on(typed: Callable[..., Any], run: Path) -> None:
    tokenizer = tokenizer_of(run)
    for seed, name in enumerate(("one", "other")):
        model = build_tiny(tokenizer, size="micro", seed=seed)
        save(model, tokenizer, Path("runs") / name, ValueHead(32, seed=seed))
    named = ("--reward-models", "one, other", "--terminal", "--labeller", "ann")
    assert typed("both", *named, "--labels", "all.jsonl").status == 0
    typed("both", *named, "--labels", "first.jsonl", "--count", "1")
    ordered = read_labels(Path("all.jsonl")).queries
    assert list(read_labels(Path("first.jsonl")).queries) == list(ordered)[:1] and len(ordered) == 3
    specs = {
        name: PolicySpec(head="value", model=str(Path("runs", name).absolute())) for name in ("one", "other")
    }
    policies = build_policies(
        TrainConfig(), Path("runs/one"), specs, has_critic=False, make_engine=make_engine
    )
    with Run.open(run, writable=False) as made:
        sides = [[made.episode(name) for name in query.sources] for query in ordered.values()]
    gaps = [[a - b for a, b in map(policies[name].episode_scores, sides)] for name in specs]
    assert by_dispute(gaps) == [0, 1, 2]
    assert (
        "name 2 runs of reward_model or more"
        in typed("both", "--labeller", "a", "--reward-models", "one").line
    )
    other = train_tokenizer(["other words"])
    save(build_tiny(other, size="micro"), other, Path("runs/strange"))
    refused = typed(
        "both", "--labeller", "a", "--reward-models", "one,strange", "--labels", "n.jsonl", "--terminal"
    )
    assert "whose tokenizer is not that of runs/both" in refused.line


def test_a_page_of_this_machine(
    typed: Callable[..., Any], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[str] = []

    def look(self: Listener) -> None:
        pages.append(urllib.request.urlopen(opened[0], timeout=10).read().decode())
        raise KeyboardInterrupt

    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(Listener, "run_until_closed", look)
    found = typed("both", "--labeller", "ann", "--port", "0", "--open")
    assert found.status == 0, found.error
    assert re.search(r"0 of 3 answered by ann: http://127\.0\.0\.1:\d+/[\w-]{32}/\n", found.out)
    assert "Which is better?" in pages[0]


def test_what_cannot_be_compared(typed: Callable[..., Any], run: Path, cli: Cli) -> None:
    for name in ("start", "tokenizer"):
        if (run / name).is_dir():
            (run / name).rename(run / f"{name}-gone")
    assert "got a run without a tokenizer" in typed("both", "--labeller", "ann", "--terminal").line
    cli("collect", "twocards", "--episodes", "2", "--out", "runs/seats")
    assert "with several seats" in typed("seats", "--labeller", "ann", "--terminal").line
