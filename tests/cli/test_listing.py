"""``quintain methods`` and ``quintain environments``."""

import json
import re
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
from quintain.methods.table import MODULES, PURPOSES, TABLE, Columns

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

OWN_PROGRAMS = {"alfworld-engine", "scienceworld", "tau-bench", "tau2"}
"""Adapters that need more than a package from the extras, and have no scores yet."""


def test_there_are_152_methods_in_their_families() -> None:
    rows = method_rows()
    beside = "a method that is none of the published systems that the project is to hold has is_row=False in its table"
    assert Counter(row["family"] for row in rows) == FAMILIES, beside
    assert len(rows) == len({row["title"] for row in rows}) == sum(FAMILIES.values()) == 152


def test_columns_and_names_are_known() -> None:
    for row in method_rows():
        assert set(row) == {"title", "about", "family", "name", *Columns._fields}
        assert row["formula"] in ("holds", "departs", "not run")
        assert row["mechanism"] in ("shown", "not shown", "property")
        assert row["comparison"] in ("better", "not worse", "unresolved", "worse", "none")
        assert row["name"] is None or row["name"] in MODULES
        is_kept = row["real_model"] != "no"
        assert row["real_model"] == "no" or re.fullmatch(r"yes, 20\d\d-\d\d-\d\d", row["real_model"])
        is_done = row["formula"] == "holds" and row["mechanism"] != "not shown" and is_kept
        assert row["done"] is is_done, row["title"]
        assert row["needs"] or row["name"] is None


def test_surveys_are_among_them_and_no_methods_that_are_done() -> None:
    surveys = {entry.title for entry in TABLE if entry.family == "surveys"}
    rows = [row for row in method_rows() if row["title"] in surveys]
    assert len(rows) == len(surveys) == 11
    assert not any(row["done"] for row in rows)


def test_a_comparison_that_is_none_says_why() -> None:
    told = [row["compared"] for row in method_rows() if row["compared"]]
    assert len(told) > 60
    for row in method_rows():
        if row["compared"] and row["comparison"] == "none":
            assert row["compared"]["reasons"]
        if row["formula"] == "departs":
            assert row["departs"]
        if row["mechanism"] == "not shown" and row["compared"]:
            assert row["not_shown"]


def test_every_method_with_a_page_has_one_purpose() -> None:
    told = [name for names in PURPOSES.values() for name in names]
    differing = {*told} ^ {entry.name for entry in TABLE if entry.page}
    assert not differing and len({*told}) == len(told), "give each one place in PURPOSES of methods/table.py"


def test_names_are_those_of_the_papers() -> None:
    names = {row["title"] for row in method_rows()}
    assert names > {"PG, PPO, GRPO, REINFORCE++", "ReST-MCTS*", "DPO", "ReAct", "The blog's lessons"}


def test_methods_as_json(cli: Cli) -> None:
    rows = json.loads(cli("methods", "--json").out)
    assert rows == json.loads(json.dumps(method_rows()))
    (dpo,) = [row for row in rows if row["title"] == "DPO"]
    assert (dpo["family"], dpo["name"]) == ("preference", "dpo")
    assert dpo["needs"] == ["recorded episodes or pairs", "a frozen copy"] and dpo["reads_files"]


def test_methods_in_a_pipe_are_tab_separated(cli: Cli) -> None:
    lines = cli("methods").out.splitlines()
    assert len(lines) == len(method_rows()) + 1
    assert lines[0] == "method\tabout\tfamily\tname\tdone\tformula\tmechanism\tcomparison\treal model\tneeds"
    (dpo,) = [row for row in method_rows() if row["title"] == "DPO"]
    known = [dpo[column] for column in ("formula", "mechanism", "comparison", "real_model")]
    cells = [
        "DPO",
        dpo["about"],
        "preference",
        "dpo",
        "yes" if dpo["done"] else "no",
        *known,
        ", ".join(dpo["needs"]),
    ]
    assert "\t".join(cells) in lines
    places = [next(e for e in method_rows() if e["title"] == line.partition("\t")[0]) for line in lines[1:]]
    kinds = [0 if row["done"] else 1 if row["about"] else 2 for row in places]
    assert kinds == sorted(kinds) and set(kinds) == {0, 1, 2}, "what is done first, what has no code last"


def test_methods_on_a_terminal_are_a_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = cli("methods").out
    assert f"{len(method_rows())} methods, " in out
    assert "\t" not in out


def test_environments_as_json(cli: Cli) -> None:
    rows = {row["name"]: row for row in json.loads(cli("environments", "--json").out)}
    assert rows["guess"]["kind"] == "embedded"
    assert "tools" in rows["guess"]["tags"]
    assert rows["gymnasium/FrozenLake-v1"]["kind"] == "real"
    assert (rows["guess"]["noop"], rows["guess"]["expert"]) == (0.0, 1.0)
    assert rows["guess"]["about"].startswith("Guess a hidden number")
    assert all(len(row["about"]) > 20 for row in rows.values())
    assert all(
        set(row) >= {"name", "about", "kind", "tags", "noop", "random", "expert"} for row in rows.values()
    )


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
    assert lines[0] == "name\tabout\tkind\ttags\tnoop\trandom\texpert\tsteps_per_second"
    assert any(line.startswith("keydoor\tRooms in a row, locked doors between them") for line in lines)


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
