"""CaveAgent on real input: tables that people wrote go into code as objects, are worked on, and come out as they were.

What Python and its libraries ship is nobody's test data: names of characters, kinds of files, error codes, zones of
time. Each is given to code that was written for it, and what it found is compared with what the same table says here.
"""

import errno
import html.entities
import http
import locale
import mimetypes
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quintain.agents.code_world import InCode
from quintain.environments.protocol import Snapshot, advance, begin
from quintain.safety.limits import Limits
from quintain.types import Action, StepResult, as_text
from quintain.worlds.ledger.game import RESULT, LedgerWorld
from quintain_evidence.layers.verdict import Check

MODEL = "tables of the standard library"
NUM_LETTERS = 20_000
TABLES: Mapping[str, Any] = {
    "entities": dict(html.entities.html5),
    "aliases": dict(locale.locale_alias),
    "kinds": dict(mimetypes.types_map),
    "codes": {str(number): name for number, name in errno.errorcode.items()},
    "statuses": [[status.value, status.phrase] for status in http.HTTPStatus],
    "letters": [[n, unicodedata.name(chr(n), ""), unicodedata.category(chr(n))] for n in range(NUM_LETTERS)],
}
CODES = {
    "entities": "sorted(k for k, v in entities.items() if len(v) > 1)",
    "aliases": "len({v.split('.')[0] for v in aliases.values()})",
    "kinds": "sorted(kinds, key=lambda k: (kinds[k], k))",
    "codes": "[codes[k] for k in sorted(codes, key=int)]",
    "statuses": "{str(n): p for n, p in statuses if n >= 500}",
    "letters": "[n for n, name, kind in letters if kind == 'Nd']",
}
"""table → code that asks something of it"""
RIGHT: Mapping[str, Any] = {
    "entities": sorted(name for name, signs in html.entities.html5.items() if len(signs) > 1),
    "aliases": len({name.split(".")[0] for name in locale.locale_alias.values()}),
    "kinds": [end for _, end in sorted((kind, end) for end, kind in mimetypes.types_map.items())],
    "codes": [name for _, name in sorted(errno.errorcode.items())],
    "statuses": {str(status.value): status.phrase for status in http.HTTPStatus if status.value >= 500},
    "letters": [n for n in range(NUM_LETTERS) if unicodedata.category(chr(n)) == "Nd"],
}
"""what is right, out of the libraries themselves"""


class Tables(LedgerWorld):
    """Work on tables that are there as variables."""

    def objects(self) -> Mapping[str, Any]:
        """Return the tables."""
        return TABLES

    def take(self, objects: Mapping[str, Any]) -> StepResult:
        """Compare what was found of a table: ``["codes", ["EPERM", …]]``."""
        name, found = objects[RESULT]
        is_right = found == RIGHT[name]
        return StepResult(observation="right" if is_right else "wrong", reward=float(is_right))


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Give the tables, ask, take the answers, spoil and bring back, and print too much."""
    world = InCode(Tables(), limits=Limits(seconds=60.0), withhold=True)
    told = begin(world, world.task("eval", 0))
    same = [name for name, table in TABLES.items() if repr(world.retrieve(name)) == repr(table)]
    seen = [told]
    right: list[str] = []
    for name, code in CODES.items():
        result = advance(world, Action(text=f"result = [{name!r}, {code}]"))
        seen.append(result.observation)
        right += [name] if result.reward == 1 else []
    assert isinstance(world, Snapshot)
    saved = world.snapshot()
    advance(world, Action(text="del result; entities.clear(); letters = None"))
    world.restore(saved)
    back = advance(world, Action(text=f"result = ['entities', {CODES['entities']}]"))
    printed = as_text(advance(world, Action(text="print(letters)")).observation)
    world.close()
    rows, signs = sum(map(len, TABLES.values())), sum(len(repr(table)) for table in TABLES.values())
    shown = sum(len(as_text(each)) for each in seen)
    checks = [
        Check(
            name="objects",
            has_passed=len(same) == len(TABLES),
            detail=f"{len(same)} of {len(TABLES)} tables, of {rows} rows, come out as they went in",
        ),
        Check(
            name="answers",
            has_passed=len(right) == len(CODES),
            detail=f"{len(right)} of {len(CODES)} objects are right; {shown} signs were shown of tables of {signs}",
        ),
        Check(
            name="brought back",
            has_passed=back.reward == 1,
            detail="a table that code had emptied is whole again in a restored state",
        ),
        Check(
            name="withheld",
            has_passed="were withheld" in printed and len(printed) < 120,
            detail=printed.splitlines()[0],
        ),
    ]
    return checks, {"rows": float(rows), "shown": float(shown)}
