"""``quintain methods`` and ``quintain environments``."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.cli import listing
from quintain.cli.listing import environment_names, method_rows
from quintain.environments import scores
from quintain.environments.catalog import ELSEWHERE
from quintain.environments.scores import load_scores
from quintain.errors import UsageError
from quintain.methods.table import MODULES

Cli = Callable[..., Any]
FAMILIES = {
    "imitation": 18,
    "selftraining": 8,
    "preference": 17,
    "rlhf": 4,
    "rl": 25,
    "critic": 6,
    "toolrl": 10,
    "horizon": 9,
    "multiagent": 8,
    "search": 10,
    "agents": 13,
    "synthesis": 2,
    "safety": 5,
    "evaluation": 4,
    "infra": 2,
    "surveys": 11,
}

OWN_PROGRAMS = {"alfworld-engine", "scienceworld"}
"""Adapters that need more than a package from the extras, and have no scores yet."""


def test_there_are_152_methods_in_their_families() -> None:
    rows = method_rows()
    assert len(rows) == len({row["title"] for row in rows}) == 152
    assert Counter(row["family"] for row in rows) == FAMILIES


def test_states_and_names_are_known() -> None:
    for row in method_rows():
        assert set(row) == {"title", "family", "state", "name"}
        assert row["state"] in ("planned", "not shown") or str(row["state"]).startswith("works, ")
        assert row["name"] is None or row["name"] in MODULES
        assert row["state"] != "planned" or row["name"] is None


def test_names_are_those_of_the_papers() -> None:
    names = {row["title"] for row in method_rows()}
    assert names > {"PG, PPO, GRPO, REINFORCE++", "ReST-MCTS*", "DPO", "ReAct", "The blog's lessons"}


def test_methods_as_json(cli: Cli) -> None:
    rows = json.loads(cli("methods", "--json").out)
    assert rows == method_rows()
    (dpo,) = [row for row in rows if row["title"] == "DPO"]
    assert (dpo["family"], dpo["name"]) == ("preference", "dpo") and dpo["state"] != "planned"


def test_methods_in_a_pipe_are_tab_separated(cli: Cli) -> None:
    lines = cli("methods").out.splitlines()
    assert len(lines) == 153
    assert lines[0] == "method\tfamily\tstate\tname"
    (dpo,) = [row for row in method_rows() if row["title"] == "DPO"]
    assert f"DPO\tpreference\t{dpo['state']}\tdpo" in lines


def test_methods_on_a_terminal_are_a_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = cli("methods").out
    assert "152 methods: " in out
    assert "\t" not in out


def test_environments_as_json(cli: Cli) -> None:
    rows = {row["name"]: row for row in json.loads(cli("environments", "--json").out)}
    assert rows["guess"]["kind"] == "embedded"
    assert "tools" in rows["guess"]["tags"]
    assert rows["gymnasium/FrozenLake-v1"]["kind"] == "real"
    assert (rows["guess"]["noop"], rows["guess"]["expert"]) == (0.0, 1.0)
    assert all(set(row) >= {"name", "kind", "tags", "noop", "random", "expert"} for row in rows.values())


def test_every_environment_has_recorded_scores(cli: Cli) -> None:
    again = "measure them: quintain environments --measure --record"
    names = environment_names()
    unmeasured = set(names) - set(load_scores())
    assert set(load_scores()) <= set(names), again
    assert {name.partition("/")[0] for name in unmeasured} <= ELSEWHERE | OWN_PROGRAMS, again
    for row in json.loads(cli("environments", "--json").out):
        if row["name"] in unmeasured:
            assert row["kind"] == "real" and row["random"] is None
            continue
        assert 0 <= row["noop"] <= row["random"] <= 1, row["name"]
        assert row["expert"] is None or row["expert"] > row["random"], row["name"]


def test_environments_in_a_pipe(cli: Cli) -> None:
    lines = cli("environments").out.splitlines()
    assert lines[0] == "name\tkind\ttags\tnoop\trandom\texpert\tsteps_per_second"
    assert any(line.startswith("keydoor\tembedded\t") for line in lines)


def test_environments_are_measured_and_recorded(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "FILE", tmp_path / "scores.json")
    monkeypatch.setattr(listing, "environment_names", lambda: ["guess", "gymnasium/FrozenLake-v1"])
    assert [row["expert"] for row in json.loads(cli("environments", "--json").out)] == [None, None]
    rows = json.loads(cli("environments", "--measure", "--record", "--episodes", "3", "--json").out)
    assert (rows[0]["noop"], rows[0]["expert"]) == (0.0, 1.0)
    assert load_scores()["guess"].keys() == {"noop", "random", "expert", "steps_per_second", "episodes"}
    again = json.loads(cli("environments", "--json").out)
    assert [row["random"] for row in again] == pytest.approx([row["random"] for row in rows], rel=0.01)
    assert cli("environments", "--record").status == UsageError.exit_code
