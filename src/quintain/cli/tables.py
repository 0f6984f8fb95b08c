"""Tables for people and for pipes: drawn on a terminal, tab-separated lines elsewhere."""

import sys
from collections.abc import Sequence


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print `rows` under `columns` to standard output."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Names may hold square brackets, which rich would read as markup.
        table.add_row(*map(Text, row))
    Console().print(table)
