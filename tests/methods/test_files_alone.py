"""Methods that need recorded episodes and nothing else: a file of conversations, and no environment."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.methods.test_training import rows, weights

import quintain
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError, DataError
from quintain.methods.imitation import agent_tuning, atlas, goat
from quintain.store.run import Run
from quintain.types import Task, ToolSpec

LOOKUP = {"name": "lookup", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
WORDS = ("oak", "elm", "ash", "fir", "yew", "box", "bay", "fig")
SMALL: dict[str, Any] = {
    "model": "micro",
    "environment": "none",
    "eval_every": 1,
    "steps": 2,
    "max_turn_tokens": 8,
}

WARM = {"imitation_epochs": 2}


pytestmark = pytest.mark.usefixtures("quick")


def write(path: Path, *records: Mapping[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def agents(folder: Path) -> str:
    """Conversations in which a tool is called; every fourth one calls it with a word that nobody said."""
    found: list[dict[str, Any]] = []
    for number, word in enumerate(WORDS):
        said = word if number % 4 else "moon"
        call = {"name": "lookup", "arguments": json.dumps({"word": said})}
        found.append(
            {
                "messages": [
                    {"role": "system", "content": "Look words up."},
                    {"role": "user", "content": f"What is {word}?"},
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [{"type": "function", "function": call}],
                    },
                    {"role": "tool", "content": "a tree"},
                    {"role": "assistant", "content": f"answer a tree, {word}"},
                ],
                "tools": [{"type": "function", "function": LOOKUP}],
                "id": f"words/{number}",
            }
        )
    return write(folder / "agents.jsonl", *found)


def train(recipe: str, folder: Path, **fields: Any) -> Path:
    return quintain.train(recipe, run=recipe, root=folder / "runs", config={**SMALL, **fields})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "fields", "metrics"),
    [
        ("atlas", {"ratio": 0.5, "critical": ("lookup",)}, {"data/critical": 8.0, "data/kept": 8.0}),
        ("xlam", {"held_out": 0.0}, {"data/right_calls": 8.0}),
        ("swirl", {"tasks": 4, "group_size": 2, **WARM}, {}),
        ("toolrl", {"contexts": True, "tasks": 4, "group_size": 3, **WARM}, {}),
        ("step_agent", {"tasks": 6, "group_size": 2, **WARM}, {"step_agent/other": None}),
        (
            "step_agent",
            {"tasks": 6, "group_size": 2, "reward": "inverse", **WARM},
            {"step_agent/other": None},
        ),
    ],
)
def test_a_file_is_enough(
    recipe: str, fields: dict[str, Any], metrics: Mapping[str, float | None], tmp_path: Path
) -> None:
    folder = train(recipe, tmp_path, demonstrations=agents(tmp_path), **fields)
    row = rows(folder)[-1]
    for name, value in metrics.items():
        assert name in row and (value is None or row[name] == value), (name, row.get(name))
    if recipe in (
        "atlas",
        "xlam",
        "toolrl",
    ):  # a model that says nothing right is paid alike for all, and learns nothing
        assert weights(folder / "start") != weights(folder / "model")
    if recipe in ("swirl", "toolrl", "step_agent"):
        with Run.open(folder, writable=False) as run:
            answers = list(run.trajectories(step=1, phase="branch"))
        assert len(answers) == fields["tasks"] * fields["group_size"]
        assert all(len(t.turns) == 1 and "@" in t.task.id for t in answers)
        assert len({t.turns[0].prompt_ids for t in answers}) > 1


@pytest.mark.slow
def test_calls_of_conversations_are_checked_against_their_own_tools(tmp_path: Path) -> None:
    folder = train("xlam", tmp_path, demonstrations=agents(tmp_path), held_out=0.0)
    row = rows(folder)[-1]
    # Two of eight first answers call the tool with a word that nobody said: they are not trained.
    assert (
        row["data/kept"] == 8.0 and row["data/trained_turns"] == 14.0 if "data/trained_turns" in row else True
    )
    bare = [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}]
    with pytest.raises(
        DataError, match=r"tools of bare.jsonl: got 1 conversations none of which lists a tool"
    ):
        train("xlam", tmp_path / "bare", demonstrations=write(tmp_path / "bare.jsonl", *bare), held_out=0.0)


@pytest.mark.slow
def test_two_files_are_mixed_by_a_share(tmp_path: Path) -> None:
    chats = [
        {"messages": [{"role": "user", "content": f"Say {w}."}, {"role": "assistant", "content": w}]}
        for w in WORDS
    ]
    corpus = write(tmp_path / "chats.jsonl", *chats)
    folder = train(
        "agent_tuning",
        tmp_path,
        demonstrations=agents(tmp_path),
        corpus=corpus,
        agent_fraction=0.25,
        batch_size=4,
    )
    row = rows(folder)[-1]
    assert row["agent_tuning/samples"] == pytest.approx(0.25) and row["data/kept"] == 16.0
    agent_tuning.Config(general=(), corpus="chats.jsonl").check()
    with pytest.raises(ConfigError, match="name some, or give a corpus"):
        agent_tuning.Config(general=()).check()


def test_words_alone_say_what_is_critical_without_an_environment(tmp_path: Path) -> None:
    atlas.Config(environment="none", demonstrations="x.jsonl").check()
    with pytest.raises(DataError, match="name the first words of actions that matter"):
        train("atlas", tmp_path, demonstrations=agents(tmp_path), critical=("fly",))
    assert not atlas.needs_of(atlas.Config(environment="none", demonstrations="x")).expert
    assert atlas.needs_of(atlas.Config(environment="craft", demonstrations="x")).expert
    judged = atlas.Config(environment="craft", demonstrations="x", judge="http://127.0.0.1:1/v1?model=m")
    assert not atlas.needs_of(judged).expert


class Shop(Environment):
    """Find out what is asked for, then answer."""

    max_turns = 4

    def reset(self, task: Task) -> str:
        self.task_data = dict(task.data)
        return str(self.task_data.get("goal", "Find the price of item 1."))

    @quintain.tool
    def zorp(self, item: int) -> str:
        """Gives the price of an item."""
        return str(10 + item)

    @quintain.tool
    def submit(self, value: str) -> str:
        """Give the answer."""
        is_right = value == str(self.task_data.get("answer"))
        return self.finish("right" if is_right else "wrong", reward=float(is_right))

    def tools(self) -> tuple[ToolSpec, ...]:
        price, submit = super().tools()
        item = {"type": "integer", "description": "item number", "examples": list(range(12))}
        schema = {"type": "object", "properties": {"item": item}, "required": ["item"]}
        return ToolSpec(name="zorp", description=price.description, parameters=schema), submit


SHOP = f"{__file__}:Shop"


def test_the_tool_that_takes_an_answer_is_found() -> None:
    shop = Shop()
    found = goat.answer_tool(shop, {"zorp": shop.tools()[0]})
    assert found is not None and found.name == "submit"
    assert goat.answer_tool(shop, {spec.name: spec for spec in shop.tools()}) is None


@pytest.mark.slow
def test_goat_needs_no_expert(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "environment": SHOP,
        "demonstrations": 6,
        "hops": 1,
        "batch_size": 4,
        "eval_episodes": 4,
    }
    folder = train("goat", tmp_path, **fields)
    row = rows(folder)[-1]
    assert row["data/replayed"] == row["data/kept"] > 0
    assert weights(folder / "start") != weights(folder / "model")
