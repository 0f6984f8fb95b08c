"""What the documentation says of the code is compared with the code."""

import re
import runpy
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

import quintain
from quintain.config import options, show
from quintain.environments.catalog import ADAPTERS, CATALOG, find
from quintain.environments.check import check
from quintain.environments.protocol import Environment, advance, begin, tool_action
from quintain.environments.scores import load_scores
from quintain.environments.tools import GraderFault
from quintain.errors import EXIT_CODES
from quintain.learning.thresholds import Thresholds
from quintain.learning.train_config import GroupConfig
from quintain.methods.rl import grpo
from quintain.methods.table import MODULES, PURPOSES, TABLE
from quintain.runs.monitors.alarms import Alarm
from quintain.runs.monitors.cures import CURES, INSTEAD, WHICH, WHY, Advice
from quintain.types import Action, Failure

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLE = ROOT / "examples" / "guess.py"

QUICKSTARTS = frozenset({"quickstart", "quickstart-real"})
"""GRPO under names of their own, whose pages are those of the first runs."""


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of `language` in `page`."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def example(monkeypatch: pytest.MonkeyPatch) -> tuple[type[Environment], dict[str, Any]]:
    """Return the class in the example and the arguments it would train with."""
    asked: dict[str, Any] = {}

    def train(method: str, **settings: Any) -> None:
        asked.update(settings, method=method)

    monkeypatch.setitem(vars(quintain), "train", train)  # without importing the real one
    scope = runpy.run_path(str(EXAMPLE), run_name="guess")
    return cast("type[Environment]", scope["Guess"]), asked


def test_every_promise_of_security_names_a_suite_that_there_is() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    promises = [row for row in text.splitlines() if row.startswith("| **")]
    table = text.partition("| who sends it |")[2]
    threats = [row for row in table.splitlines()[2:] if row.startswith("| ")]
    assert len(promises) > 15 and len(threats) > 10
    for row in (*promises, *threats):
        suites = re.findall(r"`(tests/[\w./]+|make [a-z-]+)`", row.rsplit("|", 2)[1])
        assert suites, f"no suite holds: {row}"
        for suite in suites:
            is_there = suite[5:] in targets if suite.startswith("make ") else (ROOT / suite).exists()
            assert is_there, f"{suite}: {row}"


def test_the_table_of_exit_codes() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


@pytest.mark.parametrize("page", ["README.md", "docs/own-environment.md"])
def test_the_example_stands_in_the_page_as_it_is(page: str) -> None:
    assert EXAMPLE.read_text(encoding="utf-8") in blocks(ROOT / page, "python")
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 30


def test_the_example_is_an_environment_that_can_be_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    guess_class, asked = example(monkeypatch)
    assert asked == {"method": "grpo", "environment": guess_class, "model": "tiny"}
    environment = guess_class()
    assert environment.instructions() == "Find the hidden number between 1 and 32."
    assert [tool.name for tool in environment.tools()] == ["guess"]
    assert begin(environment, environment.task("train", 0)) == environment.instructions()
    low, high = 1, 32
    for _ in range(5):
        middle = (low + high) // 2
        result = advance(environment, tool_action("guess", number=middle))
        if result.is_terminated:
            assert (result.observation, result.reward, result.is_success) == ("correct", 1.0, True)
            return
        low, high = (middle + 1, high) if result.observation == "higher" else (low, middle - 1)
    raise AssertionError("halving 32 numbers takes more than five guesses")


def test_the_environment_without_tools(tmp_path: Path) -> None:
    file = tmp_path / "echo.py"
    file.write_text("import quintain\n\n" + blocks(ROOT / "docs" / "own-environment.md", "python")[1])
    echo = cast("type[Environment]", runpy.run_path(str(file))["Echo"])()
    word = str(begin(echo, echo.task("train", 0))).removeprefix("Say: ")
    assert advance(echo, Action(text=f" {word}\n")).is_success
    assert not advance(echo, Action(text="wall")).is_success


def test_the_world_of_the_afternoon_keeps_the_rules(tmp_path: Path) -> None:
    (source,) = (
        block for block in blocks(ROOT / "docs" / "own-environment.md", "python") if "class Lift" in block
    )
    file = tmp_path / "lift.py"
    file.write_text(source, encoding="utf-8")
    report = check(f"{file}:Lift", episodes=20)
    assert report.has_passed, "\n".join(report.lines())
    assert report.measured["expert/success"] == 1
    assert report.measured["first_observation_overlap"] == 0


def test_the_table_of_worlds_has_the_recorded_scores() -> None:
    text = (ROOT / "docs" / "worlds" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \[`(\w+)`\]\((\w+)\.md\) \| [^|]+ \| (.+) \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE
    )
    known = load_scores()
    assert [row[0] for row in rows] == sorted(CATALOG.keys() - ADAPTERS.keys())
    for name, page, tags, *cells in rows:
        assert page == name
        assert tags.split(", ") == sorted(find(name).kind.tags)
        found = [known[name][measure] for measure in ("noop", "random", "expert")]
        assert [float(cell) / 100 for cell in cells] == pytest.approx(found)  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("page", ["docs/which-method.md", "docs/methods/index.md"])
def test_every_method_is_in_the_table_of_methods(page: str) -> None:
    table = (ROOT / page).read_text(encoding="utf-8").partition("<!-- methods -->")[2]
    linked = re.findall(r"\[`(\w+)`\]\((?:methods/)?(\w+)\.md\)", table)
    files = {name: module.rpartition(".")[2] for name, module in MODULES.items() if name not in QUICKSTARTS}
    files |= {
        entry.name: entry.name for entry in TABLE if entry.page and not entry.module
    }  # what does not train
    assert sorted(linked) == sorted(files.items())


def test_the_columns_of_methods_are_those_of_the_command() -> None:
    rows = re.findall(
        r"^\| \[`(\w+)`\]\(methods/\w+\.md\) \| .* \| ([a-z ]+) \| ([a-z ]+) \| ([a-z, ]+) "
        r"\| (no|yes, [0-9-]+) \|$",
        (ROOT / "docs" / "which-method.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    told = {
        name: (formula, mechanism, comparison.partition(",")[0], model)
        for name, formula, mechanism, comparison, model in rows
    }
    listed = {
        e.name: (
            e.columns.formula,
            e.columns.mechanism,
            e.columns.comparison,
            f"yes, {e.columns.real_model}" if e.columns.real_model else "no",
        )
        for e in TABLE
        if e.page
    }
    assert told == listed


def test_the_readme_counts_what_is_known_of_methods() -> None:
    """One screen: a line for each purpose, with its first methods, and of how many of all of them something holds."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    rows = re.findall(
        r"^\| (.+?) \| \[`.* \| (\d+) of (\d+) \| (\d+) of \d+ \| (\d+) of \d+ \|$", text, re.MULTILINE
    )
    columns = {e.name: e.columns for e in TABLE}
    assert [row[0] for row in rows] == list(PURPOSES)
    for purpose, *counts in rows:
        own = [columns[name] for name in PURPOSES[purpose]]
        shown = [c.mechanism in ("shown", "property") for c in own]
        holds, ran = [c.formula == "holds" for c in own], [c.real_model is not None for c in own]
        assert list(map(int, counts)) == [sum(holds), len(own), sum(shown), sum(ran)], purpose
    page = (ROOT / "docs" / "which-method.md").read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^### (.+)$", page, re.MULTILINE)
    }
    assert set(re.findall(r"which-method\.md#([a-z0-9-]+)", text)) <= headings


def test_no_page_calls_a_method_by_the_words_of_before() -> None:
    """Columns say what is known: no single word stands for them."""
    former = re.compile(
        r"works, (better|not worse|unresolved)|better here|\*works\*|\*\*Evidence: ", re.IGNORECASE
    )
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    assert not [page.name for page in pages if former.search(page.read_text(encoding="utf-8"))]


def test_the_fields_of_every_job_are_told_with_their_defaults() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (\S+) \| .+ \|$", text, re.MULTILINE))
    words = {"None": "none", "": "empty", "True": "true", "False": "false"}
    own = [option for option in options(GroupConfig) if option.section and "." not in option.name]
    assert {name: told for name, told in rows.items() if "." not in name} == {
        option.name: words.get(show(option.default), show(option.default)) for option in own
    }


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, *(ROOT / "examples").rglob("*.ipynb")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_judge_of_the_page_is_a_reward_and_its_failure_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = blocks(ROOT / "docs" / "judge.md", "python")
    (tmp_path / "rubric.md").write_text("10: good.", encoding="utf-8")
    (tmp_path / "reply.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    scope = runpy.run_path("reply.py")
    said: list[float | Failure] = [0.8, 0.3, Failure(owner="judge", kind="judge_timeout", message="too late")]
    monkeypatch.setattr(scope["JUDGE"], "score", lambda material: said.pop(0) if material["ticket"] else None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    reply = cast("type[Environment]", scope["Reply"])()
    for reward in (0.8, 0.3):
        begin(reply, reply.task("train", 0))
        result = advance(reply, Action(text="Tomorrow."))
        assert (result.reward, result.is_success) == (reward, reward > 0.7)
    begin(reply, reply.task("train", 0))
    with pytest.raises(GraderFault, match="too late"):
        reply.step(Action(text="Tomorrow."))


def test_what_is_installed_by_the_page_is_an_extra() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").partition("| you want | extra |")[2]
    rows = [line.split(" | ")[1] for line in table.partition("\n\n")[0].splitlines()[2:]]
    named = [name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)]
    assert len(named) > 12 and set(named) <= set(settings["optional-dependencies"])


def test_every_method_has_its_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in {module.rpartition(".")[2] for name, module in MODULES.items() if name not in QUICKSTARTS}:
        assert f"methods/{name}.md" in navigation, "run python docs/tables.py"
        assert (ROOT / "docs" / "methods" / f"{name}.md").is_file(), (
            "run python docs/tables.py, which begins it"
        )


WRITTEN = re.compile(
    r"<!-- (head|flags) -->.*?<!-- /\1 -->|<!-- measured.*?<!-- end of measured -->|```.*?```", re.S
)
"""What `docs/tables.py` and `quintain bench methods --pages` write into the page of a method, and commands."""


@pytest.mark.parametrize("name", sorted(entry.name for entry in TABLE if entry.page))
def test_the_page_of_a_method_says_something_that_nothing_wrote(name: str) -> None:
    words = WRITTEN.sub("", (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")).split()
    assert len(words) >= 10, (
        f"say on docs/methods/{name}.md, outside of its marks, what it is for, what it costs, and when not to take it"
    )


def test_pages_of_methods_name_options_that_the_methods_have() -> None:
    for name, module in MODULES.items():
        page = ROOT / "docs" / "methods" / f"{name}.md"
        if page.is_file():
            known = {option.name for option in options(import_module(module).Config)}
            told = re.findall(r"`--([a-z][a-z0-9_-]*)", page.read_text(encoding="utf-8"))
            assert {flag for flag in told if flag.replace("-", "_") not in known} == set(), page.name


def test_options_that_others_call_otherwise_are_options() -> None:
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("as others call them")[2]
    named = {
        name
        for line in table.split("\n")
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    known = {option.name for module in MODULES.values() for option in options(import_module(module).Config)}
    assert len(named) > 12 and named <= known, named - known


def test_every_alarm_says_what_to_change_and_has_its_section() -> None:
    advice = Advice(options=[option.name for option in options(grpo.Config)], run="runs/a", best=25)
    page = (ROOT / "docs" / "alarms.md").read_text(encoding="utf-8")
    names = [field.name for field in fields(Thresholds) if field.name != "window"]
    assert sorted(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == sorted(names)
    for name in names:
        assert f"\n## {name}\n" in page
        line = advice.describe(Alarm(name=name, message="m"))
        assert line.startswith("m; ") and f" (docs/alarms.md#{name}, {WHY}, {WHICH})" in line
        assert len(line) > 90 and "see the page" not in line
    note = Alarm(name="zero_variance", subject="learned", message="m", is_note=True)
    learned = "m; take harder options of the environment, or stop here (docs/alarms.md#zero_variance)"
    assert advice.describe(note) == learned
    assert all((ROOT / each).is_file() for each in (WHY, WHICH))
    assert CURES.keys() == {*names, "zero_variance/learned"}


def test_cures_name_options_that_the_running_method_has() -> None:
    for name, module in MODULES.items():
        own = {option.name for option in options(import_module(module).Config)}
        advice = Advice(options=own, run="runs/a", best=25)
        for alarm in CURES:
            said, _, subject = alarm.partition("/")
            cure = advice.cure(Alarm(name=said, subject=subject, message="m"))
            assert cure != "see the page", (name, alarm)
            for part in cure.split(", or "):
                flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]*)", part)}
                assert "quintain " in part or part in INSTEAD.values() or flags <= own, (name, alarm, part)


def test_what_is_said_instead_names_methods_that_have_the_option() -> None:
    for asked, said in INSTEAD.items():
        (flag,) = re.findall(r"--([a-z][a-z-]*)", asked)
        named = [name for name in re.findall(r"\w+", said) if name in MODULES]
        assert named and f"--{flag}" in said
        for name in named:
            own = {option.name for option in options(import_module(MODULES[name]).Config)}
            assert flag.replace("-", "_") in own, (name, flag)


@pytest.mark.parametrize("page", [WHY, WHICH])
def test_commands_of_the_pages_that_alarms_name_are_ones(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    told = re.findall(r"^quintain train (\w+) (.*)$", text, re.MULTILINE)
    assert told
    for method, flags in told:
        known = {option.name for option in options(import_module(MODULES[method]).Config)} | {"run"}
        assert {flag.replace("-", "_") for flag in re.findall(r"--([a-z-]+)", flags)} <= known, (
            method,
            flags,
        )
    names = {
        name
        for name in re.findall(r"`(\w+)`", text.partition("<!-- methods -->")[0])
        if (ROOT / "docs" / "methods" / f"{name}.md").is_file()
    }
    assert names <= set(MODULES)


def test_no_page_has_marks_of_a_merge() -> None:
    for page in PAGES:
        assert not re.search(r"^(<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE), page.name


def test_every_room_has_a_floor_and_a_line_in_the_map() -> None:
    rooms = {path.parent.name for path in (ROOT / "src" / "quintain").glob("*/__init__.py")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    floors = {room.strip(" ()") for layer in contract["layers"] for room in layer.split("|")}
    map_of_rooms = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in rooms:
        assert room in floors
        assert f"`{room}`" in map_of_rooms


def test_pins_cover_the_packages_that_are_asked_for() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [
        *settings["dependencies"],
        *(d for extra in settings["optional-dependencies"].values() for d in extra),
    ]
    names = {re.split(r"[\[<>=,]", text)[0].lower().replace("_", "-") for text in asked} - {"quintain"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert names <= pins


def test_the_oldest_versions_are_the_pins_but_for_torch_and_transformers() -> None:
    usual, oldest = (
        {
            line
            for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
            if "==" in line and line[0] != "#"
        }
        for name in ("constraints.txt", "constraints-oldest.txt")
    )
    changed = {"huggingface_hub==1.33.0", "torch==2.11.0", "transformers==5.17.0"}
    assert oldest - usual == changed
    assert {line.split("==")[0] for line in usual - oldest} == {line.split("==")[0] for line in changed}
