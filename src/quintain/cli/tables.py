"""Tables for people and for pipes: drawn on a terminal, tab-separated lines elsewhere."""

import sys
from collections.abc import Sequence

from quintain.types.terminal import spell_out, spell_out_line, write_line


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print `rows` under `columns` to standard output."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            write_line("\t".join(map(spell_out_line, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(spell_out(title)) if title else None,
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Names may hold square brackets, which rich would read as markup.
        table.add_row(*(Text(spell_out(cell)) for cell in row))
    Console().print(table)
