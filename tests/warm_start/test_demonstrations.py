"""Conversations as demonstrations: runs that learn from files and runs, with an environment and without."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain import api
from quintain.cli.episodes import write_messages
from quintain.cli.main import main
from quintain.data.files import read_objects
from quintain.data.records import read_records
from quintain.data.samples import imitation_samples
from quintain.environments.nothing import NO_ENVIRONMENT, Nothing
from quintain.environments.protocol import advance, begin
from quintain.environments.task_files import tasks_spec
from quintain.errors import ConfigError, DataError, UsageError
from quintain.learning.train_config import TrainConfig
from quintain.methods.imitation import sft
from quintain.methods.preference import dpo
from quintain.models.load import load_tokenizer
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.store import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Trajectory
from quintain.warm_start.demonstrations import (
    find_source,
    load_data,
    place_data,
    rules_of,
    teller,
    without_held_out,
    write_run,
)

QUICK: dict[str, Any] = {
    "steps": 2,
    "eval_every": 1,
    "eval_episodes": 2,
    "batch_size": 4,
    "max_turn_tokens": 8,
}


def quick(place: Path, **more: Any) -> dict[str, Any]:
    """Return settings of a run of a second, with the model that `place` has unless `more` names another."""
    return {**QUICK, "model": str(place / "model"), **more}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with expert episodes of guess, as a file and as the run ``runs/taught``, and a model for them."""
    root = tmp_path_factory.mktemp("data")
    episodes, tokenizer = api.collect("guess", "expert", episodes=12)
    write_messages(episodes, tokenizer, root / "guess.jsonl", teller("guess"))
    write_run(episodes, tokenizer, root / "runs" / "taught", {"environment": "guess", "agent": "auto"})
    save(build_tiny(tokenizer, size="micro"), tokenizer, root / "model")
    return root


def imitated(folder: Path) -> list[Trajectory]:
    """Return the demonstrations that the journal of the run `folder` has."""
    with Run.open(folder, writable=False) as run:
        return list(run.trajectories(phase="demonstrations"))


def rows(folder: Path) -> Sequence[dict[str, Any]]:
    with Run.open(folder, writable=False) as run:
        return run.metrics()


@pytest.mark.slow
def test_a_file_without_an_environment_is_judged_by_held_out_loss(place: Path, capsys: Any) -> None:
    folder = api.train(
        "sft",
        demonstrations=str(place / "guess.jsonl"),
        run="alone",
        root=place / "runs",
        **quick(place, model="micro"),
    )
    found = imitated(folder)
    assert [t.task.id for t in found[:2]] == ["guess.jsonl:1", "guess.jsonl:2"]
    assert found[2].task.data.items() >= {"file": "guess.jsonl", "line": 3, "task": "guess/train/2"}.items()
    losses = [row["eval/loss"] for row in rows(folder)]
    assert len(losses) == 3 and losses[2] < losses[0]
    assert "eval/success" not in rows(folder)[0]
    assert "held-out loss" in capsys.readouterr().out


def test_with_an_environment_the_tokens_are_those_of_a_rollout(place: Path) -> None:
    settings = quick(place, steps=1, environment="guess")
    read = api.train(
        "sft", demonstrations=str(place / "guess.jsonl"), run="read", root=place / "runs", **settings
    )
    known = {t.task.id: t for t in _episodes(place / "runs" / "taught")}
    for trajectory in imitated(read):
        played = known[str(trajectory.task.data["task"])]
        assert [t.observation for t in trajectory.turns] == [t.observation for t in played.turns]
        assert [t.action.tool_calls for t in trajectory.turns] == [t.action.tool_calls for t in played.turns]
    assert "eval/success" in rows(read)[-1] and "eval/loss" in rows(read)[-1]


def _episodes(folder: Path) -> list[Trajectory]:
    with Run.open(folder, writable=False) as run:
        return list(run.trajectories())


def test_a_run_is_taken_token_by_token_and_names_its_episodes(place: Path) -> None:
    folder = api.train(
        "sft", demonstrations="taught", run="again", root=place / "runs", **quick(place, steps=1)
    )
    with Run.open(folder, writable=False) as run:
        assert run.config["environment"] == "guess"
    taught = _episodes(place / "runs" / "taught")
    found = imitated(folder)
    assert [t.group for t in found] == [f"taught:{t.id}" for t in taught]
    assert [[(x.prompt_ids, x.completion.token_ids) for x in t.turns] for t in found] == [
        [(x.prompt_ids, x.completion.token_ids) for x in t.turns] for t in taught
    ]


def test_exported_rollouts_of_verifiers_give_the_tokens_of_the_run(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    assert main(["export", str(place / "runs" / "taught"), "--to", "verifiers", "--out", str(file)]) == 0
    tokenizer = load_tokenizer(str(place / "model"))
    from quintain.environments.catalog import find
    from quintain.warm_start.start import build_agent

    agent = build_agent(tokenizer, find("guess"), temperature=1.0)
    config = TrainConfig(environment="guess", demonstrations="x")
    found = load_data(file, tokenizer, config, agent=agent, max_length=4096)
    taught = _episodes(place / "runs" / "taught")
    assert [
        [(x.prompt_ids, x.completion.token_ids) for x in t.turns]
        for t in found.data
        if isinstance(t, Trajectory)
    ] == [[(x.prompt_ids, x.completion.token_ids) for x in t.turns] for t in taught]
    exported = [json.loads(line)["trajectory"] for line in file.read_text().splitlines()]
    assert [[tuple(step["tokens"]["completion_ids"]) for step in steps] for steps in exported] == [
        [x.completion.token_ids for x in t.turns] for t in taught
    ]
    assert main(["check", str(file), "--show", "0"]) == 0


def test_a_run_of_another_harness_is_written_anew(place: Path) -> None:
    _, tokenizer = api.collect("guess", "expert", episodes=1)
    config = TrainConfig(environment="guess", agent="react", demonstrations="x")
    from quintain.environments.catalog import find
    from quintain.warm_start.start import build_agent

    agent = build_agent(tokenizer, find("guess"), temperature=1.0, agent="react")
    found = load_data(place / "runs" / "taught", tokenizer, config, agent=agent, max_length=4096)
    first = found.data[0]
    assert isinstance(first, Trajectory)
    text = str(tokenizer.decode(list(first.turns[0].completion.token_ids)))
    assert text.startswith("Action: guess[") and first.task.id == "guess/train/0"
    assert found.summary == "12 episodes of the run taught"


def test_choices_made_in_another_world_are_imitated_and_illegal_ones_are_context(tmp_path: Path) -> None:
    from quintain.environments.catalog import find
    from quintain.warm_start.start import build_agent

    world = "craft?depth=1"
    episodes, tokenizer = api.collect(world, "expert", episodes=2)
    first, *rest = episodes[0].turns
    wrong = replace(first, action=Action(text="fly", error="not a legal action: got 'fly'"))
    episodes[0] = replace(episodes[0], turns=(wrong, *rest))
    write_run(episodes, tokenizer, tmp_path / "old", {"environment": world, "agent": "auto"})
    other = train_tokenizer(["another vocabulary of a few words"])
    for environment, agent, own in (
        ("keydoor", "choice", tokenizer),  # another world
        (world, "auto", other),  # the same one in other tokens
        (world, "auto", tokenizer),  # the same one, token by token
    ):
        config = TrainConfig(environment=environment, agent=agent, demonstrations="x")
        made = build_agent(own, find(environment), temperature=1.0, agent=agent)
        found = load_data(tmp_path / "old", own, config, agent=made, max_length=4096).data
        samples = imitation_samples(
            [t for t in found if isinstance(t, Trajectory)],
            is_left_out=lambda turn: turn.action.error is not None,
        )
        said = [Chat(own).encoder.decode(s.token_ids[s.loss_weight > 0].tolist()) for s in samples]
        said = [text.replace("<|end|>", "") for text in said]
        kept = [[turn.action.text for turn in rest], [turn.action.text for turn in episodes[1].turns]]
        assert said == ["".join(texts) for texts in kept], environment


def test_every_method_starts_from_a_file(place: Path) -> None:
    folder = api.train(
        "grpo", environment="guess", demonstrations=str(place / "guess.jsonl"), model=str(place / "model"),
        imitation_epochs=1, max_turn_tokens=8,
        steps=1, tasks=2, group_size=2, eval_episodes=2, train_on="last", run="warm", root=place / "runs",
    )  # fmt: skip
    assert all(len(t.turns) == 1 for t in imitated(folder))


def test_data_that_changed_is_refused_by_resume(place: Path) -> None:
    file = place / "changing.jsonl"
    file.write_text((place / "guess.jsonl").read_text())
    folder = api.train(
        "sft", demonstrations=str(file), run="changes", root=place / "runs", **quick(place, steps=1)
    )
    api.resume(folder)
    file.write_text(file.read_text() + file.read_text().splitlines()[0])
    with pytest.raises(DataError, match=r"digest .* began with .*bring the file back as it was") as raised:
        api.resume(folder)
    assert "\n" not in str(raised.value)


def test_preferences_of_a_file(place: Path) -> None:
    file = place / "pairs.jsonl"
    lines = [{"prompt": f"Say {n}.", "chosen": f"{n}!", "rejected": "no"} for n in range(8)]
    file.write_text("\n".join(map(json.dumps, lines)))
    folder = api.train("dpo", preferences=str(file), run="pairs", root=place / "runs", **quick(place))
    last = rows(folder)[-1]
    assert last["dpo/pairs"] == 7 and "eval/loss" in last
    with pytest.raises(
        DataError, match=r"got nothing to imitate .8 without an answer to train left out.; check it with"
    ):
        api.train(
            "dpo", preferences=str(file), train_on="tagged", run="none", root=place / "runs", **quick(place)
        )


@pytest.mark.parametrize(
    ("line", "settings", "error"),
    [
        ('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"name": "fly"}]}]}', {},
         "bad.jsonl line 2: got a call of the tool 'fly', and the tools of the environment guess are guess; call"),
        ("{", {}, "bad.jsonl line 2: got no JSON"),
        ('{"messages": [{"role": "assistant", "content": "b"}], "is_success": false}', {"max_context": 20},
         r"bad.jsonl line 1: got a conversation of \d+ tokens, and max_context is 20; raise --max-context,"),
        ("", {"overlong": "drop", "max_context": 40}, "nothing to imitate .12 longer than the context left out"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_used_is_named(place: Path, line: str, settings: Any, error: str) -> None:
    file = place / "bad.jsonl"
    first, *rest = (place / "guess.jsonl").read_text().splitlines()
    file.write_text("\n".join([first, line, *rest]))
    with pytest.raises(DataError, match=error) as raised:
        api.train(
            "sft", environment="guess", demonstrations=str(file), run="bad", root=place / "runs", replace=True,
            **quick(place), **settings,
        )  # fmt: skip
    assert "\n" not in str(raised.value)


def test_where_data_is_looked_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = place / "runs"
    assert find_source("taught", runs).is_run and not find_source(str(place / "guess.jsonl")).is_run
    with pytest.raises(DataError, match="no such file, folder or run; did you mean 'taught'"):
        find_source("tought", runs)
    with pytest.raises(DataError, match="no such file, folder or run; check the path"):
        find_source("./zzz.jsonl", runs)
    empty = place / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="a folder without"):
        find_source(str(empty))

    def refuse(*_: object, **__: object) -> str:
        raise OSError("offline\nmore")

    monkeypatch.setattr("quintain.warm_start.demonstrations.snapshot_download", refuse)
    with pytest.raises(DataError, match="the hub gave offline; check the name"):
        find_source("somebody/chats")
    monkeypatch.setattr("quintain.warm_start.demonstrations.snapshot_download", lambda *_, **__: str(place))
    assert find_source("somebody/chats").path == place


def test_the_environment_of_data(place: Path) -> None:
    file, runs = str(place / "guess.jsonl"), place / "runs"
    with pytest.raises(DataError, match="got neither data nor an environment; give --demonstrations FILE"):
        place_data(sft.Config())
    assert place_data(sft.Config(demonstrations=file)).environment == NO_ENVIRONMENT
    assert place_data(sft.Config(demonstrations=file, environment="guess")).environment == "guess"
    assert place_data(sft.Config(demonstrations="taught"), runs).environment == "guess"
    alone = place_data(sft.Config(demonstrations="taught", environment="none"), runs)
    assert (alone.environment, alone.demonstrations) == (NO_ENVIRONMENT, str(runs / "taught"))
    assert place_data(dpo.Config(preferences=file)).demonstrations == 0
    with pytest.raises(
        UsageError, match="got none for grpo, which learns from episodes; name one, or use sft or dpo"
    ):
        api.train("grpo", environment="none", run="x", root=runs)
    world = Nothing()
    assert begin(world, world.task("train", 0)) == "" and advance(world, Action()).is_terminated


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(
        ConfigError, match=r"expert_noise: got 0.5 with the conversations x.jsonl, in which no expert acts"
    ):
        TrainConfig(demonstrations="x.jsonl", expert_noise=0.5).check()
    assert rules_of(TrainConfig(), 100).limit == "the model's context"
    assert rules_of(replace(TrainConfig(), tokens_per_microbatch=9), 100).limit == "tokens_per_microbatch"


def test_a_conversation_of_a_held_out_task_of_a_file_is_refused(tmp_path: Path) -> None:
    rows = [{"id": n, "prompt": f"add {n}", "split": "eval" if n == 3 else "train"} for n in range(4)]
    tasks, chats = tmp_path / "tickets.jsonl", tmp_path / "chats.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = TrainConfig(environment=tasks_spec("", tasks))

    def read(prompt: str, **more: Any) -> list[Any]:
        said = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "4"}]
        chats.write_text(json.dumps({"messages": said, **more}) + "\n", encoding="utf-8")
        return list(without_held_out(read_records(read_objects(chats)), config))

    assert len(read("add 2")) == len(read("add 4", task="tickets.jsonl/1")) == 1
    told = "chats.jsonl line 1: got a conversation of tickets.jsonl line 4, a task that is held out"
    for prompt, more in ((" add 3\n", {}), ("add 9", {"task": "tickets.jsonl/3"})):
        with pytest.raises(DataError, match=told):
            read(prompt, **more)
