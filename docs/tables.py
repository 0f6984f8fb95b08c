"""Write the tables of methods, stages and settings into README, docs and navigation, what is known of methods into
their columns, and the head and the flags of the page of each.

    python docs/tables.py [--check]

A method without a page gets one. Each table stands between two marks in its file. With --check nothing is written, and
the exit status says whether all are current.
"""

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from quintain.cli.stages import stage_rows
from quintain.config import options as config_options
from quintain.config import sections as config_sections
from quintain.config import show
from quintain.config.fields import NAME, own_options
from quintain.learning.train_config import GroupConfig
from quintain.methods.find import find_method
from quintain.methods.table import MODULES, PURPOSES, TABLE, Entry
from quintain.models.memory import fitting_lines
from quintain.warm_start.recommended import rate_lines, setting_lines
from quintain_evidence.layers.needs import needs_of
from quintain_evidence.layers.records import RESULTS
from quintain_evidence.layers.spec import signatures
from quintain_evidence.layers.standing import standings
from quintain_evidence.pages import count_behind

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ROOT / "src" / "quintain" / "methods" / "columns.json"
KNOWN = standings(signatures(), RESULTS)
"""row → what its results say"""
DIFFERENCES, BAR = r"^Differences to [^:]*: (.)", "\\|"


def told() -> list[Entry]:
    """Return the entries that have a page."""
    return [entry for entry in TABLE if entry.page]


def columns_of_all() -> dict[str, dict[str, Any]]:
    """Return the columns of every method, by name: what its results say, and what it needs."""
    found: dict[str, dict[str, Any]] = {name: each.columns() for name, each in KNOWN.items()}
    for name in MODULES:
        needs, reads_files = needs_of(name)
        found[name] = {**found.get(name, {}), "needs": needs, "reads_files": reads_files}
    return dict(sorted(found.items()))


def readme_lines() -> Iterator[str]:
    """Yield the table of README.md: methods by what they are for, and of how many of them what is known."""
    yield "| you have, or want | methods | formula holds | mechanism shown | ran on a real model |"
    yield "|---|---|---|---|---|"
    for purpose, names in PURPOSES.items():
        cells = [cells_of(name) for name in names]
        counts = (
            sum(formula == "holds" for formula, *_ in cells),
            sum(mechanism in ("shown", "property") for _, mechanism, *_ in cells),
            sum(model != "no" for *_, model in cells),
        )
        some = ", ".join(f"[`{name}`](docs/methods/{name}.md)" for name in names[:3])
        more = (
            f" and [{len(names) - 3} more](docs/which-method.md#{anchor_of(purpose)})"
            if len(names) > 3
            else ""
        )
        yield f"| {purpose} | {some}{more} | {' | '.join(f'{count} of {len(names)}' for count in counts)} |"


def purpose_lines() -> Iterator[str]:
    """Yield the tables of docs/which-method.md: methods by what they are for, each with its columns."""
    entries = {entry.name: entry for entry in told()}
    yield count_behind(KNOWN)
    for purpose, names in PURPOSES.items():
        yield ""
        yield f"### {purpose}"
        yield ""
        yield "| method | what it is about | formula | mechanism | comparison | real model |"
        yield "|---|---|---|---|---|---|"
        for name in names:
            yield f"| [`{name}`](methods/{name}.md) | {entries[name].about} | {' | '.join(cells_of(name))} |"
    yield ""


def anchor_of(heading: str) -> str:
    """Return what a link to `heading` ends with."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def cells_of(name: str) -> tuple[str, str, str, str]:
    """Return the three columns and the promise of a method as they stand in a table."""
    if name not in KNOWN:
        return "not run", "not shown", "none", "no"
    found = KNOWN[name]
    date = found.promise.date if found.promise is not None and found.has_promise else ""
    lost = found.comparison is not None and found.comparison.worst == "worse" != found.compared
    return (
        found.formula,
        found.mechanism,
        found.compared + (", by its values worse" if lost else ""),
        f"yes, {date}" if date else "no",
    )


def index_lines() -> Iterator[str]:
    """Yield the tables of docs/methods/index.md: a section, and what each method is about."""
    for section in sections():
        yield f"## {section}"
        yield ""
        yield "| method | what it is about | against |"
        yield "|---|---|---|"
        for e in told():
            if e.section == section:
                yield f"| [`{e.name}`]({e.name}.md) | {e.about} | {e.against} |"
        yield ""


def navigation_lines() -> Iterator[str]:
    """Yield the entries of mkdocs.yml."""
    for e in sorted(told(), key=lambda e: e.page.lower()):
        yield f"      - {e.page}: methods/{e.name}.md"


def stage_lines() -> Iterator[str]:
    """Yield the table of docs/data.md: the stages of `quintain data`, as `--list` shows them."""
    yield "| stage | options | what it does |"
    yield "|---|---|---|"
    for name, options, summary in stage_rows():
        told = f"`{options}`".replace("|", "\\|") if options else ""
        yield f"| `{name}` | {told} | {summary.replace('``', '`')} |"


def head_lines(e: Entry) -> Iterator[str]:
    """Yield the head of a method's page: its name, and what its file says of it and of how it differs."""
    text = inspect.getdoc(import_module(MODULES[e.name])) or ""
    yield f"# {e.page}: `{e.name}`"
    yield ""
    for line in re.sub(
        DIFFERENCES, lambda k: f"**Differences.** {k[1].upper()}", text, flags=re.M
    ).splitlines():
        yield line.replace("``", "`")


def flag_lines(e: Entry) -> Iterator[str]:
    """Yield the table of what a method's own flags are: those that not all have, or that it begins otherwise."""
    yield "| flag | default | meaning |"
    yield "|---|---|---|"
    usual = {option.name: option.default for option in own_options(GroupConfig)}
    for option in own_options(find_method(e.name).config_class):
        if option.section and option.default == usual.get(option.name):
            continue
        is_table = isinstance(option.default, Mapping)
        flag = option.name if is_table else f"--{option.name.replace('_', '-')}"
        default = "" if is_table or option.default == "" else default_text(option.default)
        yield f"| `{flag}` | {default} | {option.help.replace('|', BAR).replace('``', '`')} |"


def default_text(value: Any) -> str:
    """Return a default as a command line has it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


PAGE = """<!-- head -->
<!-- /head -->

<!-- flags -->
<!-- /flags -->

```
quintain train {name} --environment guess
```

<!-- measured: written by `quintain bench methods --pages`, do not edit -->
<!-- end of measured -->
"""
"""What the page of a method begins as."""


def add_pages() -> Iterator[str]:
    """Write a page for each method that has none, and yield what is to be done with it."""
    for e in told():
        page = ROOT / "docs" / "methods" / f"{e.name}.md"
        if e.module and not page.is_file():
            page.write_text(PAGE.format(name=e.name), encoding="utf-8")
            yield f"{page.relative_to(ROOT)}: begun; say there what the method is for, and when not to take it"


def find_unplaced() -> list[str]:
    """Return what is wrong with `PURPOSES`: each method with a page stands there once, and nothing else does."""
    placed = Counter(name for names in PURPOSES.values() for name in names)
    known = {e.name for e in told()}
    return [
        f"{name}: got {placed[name]} places in PURPOSES (methods/table.py); give it {int(name in known)}, since it has "
        f"{'a' if name in known else 'no'} page"
        for name in sorted({*placed} | known)
        if placed[name] != (name in known)
    ]


def page_plan() -> Iterator[tuple[str, Iterator[str], tuple[str, str]]]:
    """Yield what is generated in the pages of methods, where they have the marks for it."""
    for e in told():
        page = f"docs/methods/{e.name}.md"
        if not e.module or not (ROOT / page).is_file():
            continue
        text = (ROOT / page).read_text(encoding="utf-8")
        for mark, lines in (("head", head_lines), ("flags", flag_lines)):
            if f"<!-- {mark} -->" in text:
                yield page, lines(e), (f"<!-- {mark} -->", f"<!-- /{mark} -->")


def option_lines() -> Iterator[str]:
    """Yield the tables of docs/configuration.md: the options of every method, by section."""
    found = config_options(GroupConfig)
    for name, section in config_sections(GroupConfig).items():
        yield ""
        yield f"### {name}"
        yield ""
        yield f"{section.about[0].upper()}{section.about[1:]}."
        yield ""
        yield "| option | default | meaning |"
        yield "|---|---|---|"
        for option in found:
            if option.section == name and "." not in option.name:
                meaning = option.help.replace("``", "`").replace("|", "\\|")
                yield f"| `{option.name}` | {show(option.default) or 'empty'} | {meaning} |"
            elif option.section == name and NAME in option.name and option.name.count(".") == 2:
                yield f"| `{option.name}` | {show(option.default) or 'empty'} | {option.help} |"
    yield ""


def sections() -> list[str]:
    """Return the sections in order of their first entries."""
    return list(dict.fromkeys(e.section for e in told()))


def replaced(text: str, lines: Iterator[str], marks: tuple[str, str]) -> str:
    """Return `text` with `lines` between the two marks."""
    begin, end = marks
    before, _, rest = text.partition(begin + "\n")
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n" + "".join(line + "\n" for line in lines) + end + after


def main(is_check: bool) -> int:
    """Write the tables, or check them."""
    if unplaced := find_unplaced():
        print("\n".join(unplaced), file=sys.stderr)
        return 1
    for line in () if is_check else add_pages():
        print(line, file=sys.stderr)
    marks = ("<!-- methods -->", "<!-- /methods -->")
    plan = (
        ("README.md", readme_lines(), marks),
        ("docs/which-method.md", purpose_lines(), marks),
        ("docs/methods/index.md", index_lines(), marks),
        ("docs/data.md", stage_lines(), ("<!-- stages -->", "<!-- /stages -->")),
        ("docs/pretrained.md", rate_lines(), ("<!-- rates -->", "<!-- /rates -->")),
        ("docs/machines.md", fitting_lines(), ("<!-- fits -->", "<!-- /fits -->")),
        ("docs/pretrained.md", setting_lines(), ("<!-- settings -->", "<!-- /settings -->")),
        ("docs/configuration.md", option_lines(), ("<!-- options -->", "<!-- /options -->")),
        ("mkdocs.yml", navigation_lines(), ("      # methods", "      # /methods")),
        *page_plan(),
    )
    stale: list[str] = []
    rows = [
        f"{json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}"
        for name, each in columns_of_all().items()
    ]
    columns = "{\n" + ",\n".join(rows) + "\n}\n"
    if COLUMNS.read_text(encoding="utf-8") != columns:
        stale.append(COLUMNS.name)
        if not is_check:
            COLUMNS.write_text(columns, encoding="utf-8")
    for name, lines, (begin, end) in plan:
        text = (ROOT / name).read_text(encoding="utf-8")
        wanted = replaced(text, lines, (begin, end))
        if wanted == text:
            continue
        stale.append(name)
        if not is_check:
            (ROOT / name).write_text(wanted, encoding="utf-8")
    if stale and is_check:
        print(f"stale tables in {', '.join(stale)}: run python docs/tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))  # noqa: TID251
