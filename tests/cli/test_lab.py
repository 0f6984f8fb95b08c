"""``quintain lab``: a recipe's batch is collected and looked at, a run is looked at again, and errors are one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quintain
from quintain.cli.flags import add_flags
from quintain.cli.lab import lab_parser
from quintain.config import options
from quintain.errors import UsageError
from quintain.methods.find import find_method
from quintain.methods.table import MODULES

Cli = Callable[..., Any]
WORLD = "sokoban?size=3&walls=0&scramble=10"
START = (
    "--environment", WORLD, "--model", "micro", "--demonstrations", "24", "--imitation-epochs", "6",
    "--imitation-lr", "0.01",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.slow
def test_a_recipe_collects_a_batch_and_its_run_is_looked_at_again(cli: Cli) -> None:
    first = cli(
        "lab", "rloo", *START, "--groups", "6", "--size", "4", "--parts", "3", "--ideas", "group,outcome,process",
        "--losses", "clipped,cispo",
    )  # fmt: skip
    assert first.status == 0, first.error
    assert "24 episodes in 6 groups" in first.out and "second update" not in first.error
    rows = {line.split("\t")[0]: line.split("\t") for line in first.out.splitlines() if "\t" in line}
    assert {"group", "outcome", "shuffled"} <= set(rows)
    assert "left out process: is made of rewards before the last turn, and there are none" in first.out
    folder = Path("runs/lab-rloo-1")
    found = json.loads((folder / "lab.json").read_text())
    assert found["recipe"] == "rloo" and set(found["losses"]["group"]) == {"clipped", "cispo"}
    assert (folder / "lab.png").exists() and not list((folder / "checkpoints").iterdir())
    again = cli("lab", "lab-rloo-1", "--ideas", "outcome", "--losses", "none", "--parts", "3", "--json")
    assert again.status == 0
    told = json.loads(again.out)
    same = {row["name"]: row["cosine"] for row in told["ideas"]}
    assert same["group"] == pytest.approx({r["name"]: r["cosine"] for r in found["ideas"]}["group"], abs=1e-4)
    assert told["losses"] == {}
    out = cli("lab", "lab-rloo-1", "--ideas", "group", "--losses", "none", "--parts", "2", "--out", "there")
    assert out.status == 0 and Path("there/lab.png").exists()
    with pytest.raises(UsageError, match="a run has its own; leave them out"):
        quintain.lab(folder, environment=WORLD)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["grop"], "run or recipe: got 'grop', and there is no such run; did you mean 'grpo'?"),
        (["nowhere/run"], "run: got 'nowhere/run', which has no journal; name the folder of a run"),
        (["--parts", "3"], "quintain lab needs a run or a recipe first: got '--parts'"),
        (["grpo", "--part", "3"], "flag of quintain lab grpo: got '--part'; did you mean '--parts'?"),
        (["grpo", "--parts", "1"], "--parts"),
    ],
)
def test_what_is_wrong_is_one_line(cli: Cli, asked: list[str], line: str) -> None:
    found = cli("lab", *asked)
    assert found.status != 0 and line in found.line and not Path("runs").exists()


def test_ideas_are_named_before_anything_is_collected(cli: Cli) -> None:
    found = cli("lab", "grpo", "--ideas", "gruop")
    assert found.line == "ideas: got 'gruop'; did you mean 'group'?" and not Path("runs").exists()


def test_the_usage_is_told(cli: Cli) -> None:
    assert cli("lab", "--help").out.startswith("usage: quintain lab RUN")
    assert cli("lab").status == UsageError.exit_code


@pytest.mark.parametrize("name", MODULES)
def test_flags_of_the_lab_are_none_of_a_method(name: str) -> None:
    parser = lab_parser(f"lab {name}", "")
    for flag in ("--groups", "--size", "--config", "--run"):
        parser.flag(flag, "", "N")
    add_flags(parser, options(find_method(name).config_class))
