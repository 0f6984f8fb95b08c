"""The programs in `examples/` keep the contract, and their experts solve them."""

import json
import runpy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus

from quintain.config import build
from quintain.config.files import read_file
from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.catalog import find
from quintain.environments.check import check
from quintain.environments.task_files import read_tasks
from quintain.learning.train_config import TrainConfig
from quintain.methods.find import find_method
from quintain.rollout.progress import Display
from quintain.store.run import Run
from quintain.types import Action, ToolCall
from quintain.warm_start import auto_warm_start
from quintain.warm_start.auto_warm_start import EVENT, SEARCH, teach
from quintain.warm_start.start import fitting_tokens, make_start

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SMALL: dict[str, Any] = {"model": "micro", "imitation_lr": 5e-3}
FILES, TRADE = f"{EXAMPLES / 'files.py'}:Files", f"{EXAMPLES / 'trade.py'}:Trade"
NEGOTIATE = f"{EXAMPLES / 'negotiate.py'}:Negotiate"


@pytest.mark.parametrize("spec", [FILES, f"{FILES}?folders=5&files=1", TRADE, NEGOTIATE])
def test_an_example_keeps_the_contract(spec: str) -> None:
    report = check(spec, episodes=8)
    assert report.has_passed, "\n".join(report.lines())


def test_who_looks_into_the_folders_finds_the_word() -> None:
    world = find(FILES)()
    for index in range(20):
        episode = play(world, world.task("eval", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert 5 <= len(episode.rewards) <= 11
        assert not play(world, world.task("eval", index), random_policy(index)).total > 0.2 + 1e-9
    world.reset(world.task("eval", 0))
    wrong = world.step(Action(tool_calls=(ToolCall(name="answer", arguments={"word": "none"}),)))
    assert (wrong.is_success, wrong.reward) == (False, 0.0)


def test_the_seller_gives_way_and_leaves_who_is_too_greedy() -> None:
    world = find(TRADE)()
    task = world.task("train", 3)
    ask = int(str(world.reset(task)).rstrip(".").split()[-1])
    paid = world.step(Action(text="accept"))
    assert (paid.is_success, paid.reward, paid.is_terminated) == (False, 0.0, True)
    world.reset(task)
    refused = world.step(Action(text="offer 99"))
    assert (refused.is_valid, refused.is_terminated) == (False, False)
    answer = world.step(Action(text=f"offer {ask - 6}"))
    assert answer.is_terminated or str(answer.observation) == f"No. The seller asks {ask - 2}."
    ends = [play(world, world.task("train", index), random_policy(index)).total for index in range(40)]
    assert min(ends) == 0.0 and 0.75 < max(ends) <= 1.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    shorten_corpus(monkeypatch, 16)
    monkeypatch.setattr(auto_warm_start, "MAX_TURNS", 4000)


def warmed(spec: str, folder: Path, **settings: Any) -> dict[str, dict[str, object]]:
    """What a run notes of its warm start in `spec`, by kind."""
    config = TrainConfig(environment=spec, **settings)
    model, tokenizer = make_start(config.model, find(spec), seed=0)
    with Run.create(folder, recipe="grpo", config=asdict(config)) as run, Display("t", 1) as display:
        teach(model, tokenizer, config, run, display)
        return {event["kind"]: event["data"] | {"said": event["message"]} for event in run.events()}


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_haggling_is_learned_from_random_play_to_half_of_the_tasks(tmp_path: Path) -> None:
    world = find(TRADE)()
    by_chance = [play(world, world.task("train", n), random_policy(n)).is_success for n in range(400)]
    assert sum(by_chance) / 400 < 0.25
    noted = warmed(TRADE, tmp_path / "trade", **SMALL)
    course = noted[EVENT]["success"]
    assert isinstance(course, list) and course[-1][1] >= 0.5


@pytest.mark.slow
def test_copying_out_of_files_is_learned_from_the_expert_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one folder of one file, where by chance a fiftieth is solved, and with the settings that a run has."""
    torch.set_num_threads(1)
    monkeypatch.setattr(auto_warm_start, "TAUGHT", 0.3)
    spec = f"{FILES}?folders=1&files=1"
    world = find(spec)()
    by_chance = [play(world, world.task("train", n), random_policy(n)).is_success for n in range(400)]
    assert sum(by_chance) / 400 < 0.05
    course = warmed(spec, tmp_path / "files")[EVENT]["success"]
    assert isinstance(course, list) and course[-1][1] >= 0.3 and course[-1][0] < 500


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_random_play_finds_files_and_is_paid_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_warm_start, "MAX_WORK", 0.0)
    monkeypatch.setattr(auto_warm_start, "MIN_UPDATES", 8)
    monkeypatch.setattr(auto_warm_start, "ROUND_UPDATES", 8)
    monkeypatch.setattr(auto_warm_start, "FRESH", 16)
    monkeypatch.setattr(auto_warm_start, "AGAIN", 16)
    monkeypatch.setattr(auto_warm_start, "MAX_TURNS", 1500)
    source = (EXAMPLES / "files.py").read_text(encoding="utf-8")
    (tmp_path / "alone.py").write_text(source.replace("expert_action", "no_expert"), encoding="utf-8")
    spec = f"{tmp_path / 'alone.py'}:Files"
    assert fitting_tokens(find(spec)) == "runs"
    noted = warmed(spec, tmp_path / "files", **SMALL)
    said = str(noted[SEARCH]["said"])
    assert "512 random episodes, the best" in said and "returned 0.2 to" in said
    assert noted[EVENT]["updates"] == 8


@pytest.mark.parametrize("name", ["fireact", "rest", "eto", "search_r1", "digi_rl"])
def test_the_settings_of_the_flagships_are_those_of_their_methods(name: str) -> None:
    file = EXAMPLES / f"flagship_{name}.toml"
    config: Any = build(find_method(name).config_class, read_file(file), file.name)
    config.check()
    assert (config.model, config.environment.partition("?")[0]) == ("smollm2", "hopqa")


@pytest.mark.parametrize("name", ["world_of_bits", "digi_rl"])
def test_the_settings_for_pages_in_a_browser_are_those_of_their_methods(name: str) -> None:
    file = EXAMPLES / f"web_{name}.toml"
    config: Any = build(find_method(name).config_class, read_file(file), file.name)
    config.check()
    assert config.environment.startswith("mix:miniwob/") and config.model == "mini?tokens=words"


def test_the_file_of_tickets_is_what_its_script_writes() -> None:
    """People, goods and complaints are on both sides; a ticket as a whole is on one."""
    tickets = list(runpy.run_path(str(EXAMPLES / "make_tickets.py"))["make_tickets"]())
    text = (EXAMPLES / "tickets.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in text.splitlines()] == tickets
    file = read_tasks(EXAMPLES / "tickets.jsonl")
    held_out, trained = ([task.prompt for task in file.of(split)] for split in ("eval", "train"))
    assert (len(held_out), len(trained)) == (121, 479) and set(held_out).isdisjoint(trained)
    complaints = [{prompt.split(": ")[1] for prompt in prompts} for prompts in (held_out, trained)]
    assert complaints[0] == complaints[1] and len(complaints[0]) == 24
