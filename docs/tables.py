"""Write the tables of methods, stages and settings into README, docs and navigation, and what is shown from results.

    python docs/tables.py [--check]

Each stands between two marks in its file. With --check nothing is written, and the exit status says whether all are
current.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from quintain.cli.stages import stage_rows
from quintain.methods.table import TABLE, Entry
from quintain.models.memory import fitting_lines
from quintain.warm_start.recommended import rate_lines, setting_lines
from quintain_evidence.layers.records import RESULTS
from quintain_evidence.layers.spec import signatures
from quintain_evidence.layers.standing import NOT_SHOWN, standings

ROOT = Path(__file__).resolve().parents[1]
WORDS = ("works, better here", "works, not worse", "works, unresolved", NOT_SHOWN)
SHOWN = ROOT / "src" / "quintain" / "methods" / "shown.json"
KNOWN = {row: found.word for row, found in standings(signatures(), RESULTS).items()}
"""row → what its results show"""


def told() -> list[Entry]:
    """Return the entries that have a page."""
    return [entry for entry in TABLE if entry.page]


def readme_lines() -> Iterator[str]:
    """Yield the table of README.md: the methods of a section by state."""
    yield "| methods | names | state |"
    yield "|---|---|---|"
    for section in sections():
        for state in WORDS:
            found = [e for e in told() if (e.section, KNOWN.get(e.name, NOT_SHOWN)) == (section, state)]
            if found:
                names = " ".join(f"[`{e.name}`](docs/methods/{e.name}.md)" for e in found)
                yield f"| {section[:1].lower() + section[1:]} | {names} | {state} |"


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
    marks = ("<!-- methods -->", "<!-- /methods -->")
    plan = (
        ("README.md", readme_lines(), marks),
        ("docs/methods/index.md", index_lines(), marks),
        ("docs/data.md", stage_lines(), ("<!-- stages -->", "<!-- /stages -->")),
        ("docs/pretrained.md", rate_lines(), ("<!-- rates -->", "<!-- /rates -->")),
        ("docs/machines.md", fitting_lines(), ("<!-- fits -->", "<!-- /fits -->")),
        ("docs/pretrained.md", setting_lines(), ("<!-- settings -->", "<!-- /settings -->")),
        ("mkdocs.yml", navigation_lines(), ("      # methods", "      # /methods")),
    )
    stale: list[str] = []
    shown = (
        json.dumps({row: word for row, word in sorted(KNOWN.items()) if word != NOT_SHOWN}, indent=2) + "\n"
    )
    if SHOWN.read_text(encoding="utf-8") != shown:
        stale.append(SHOWN.name)
        if not is_check:
            SHOWN.write_text(shown, encoding="utf-8")
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
