"""What all pictures of curves share: their colours, their axes, and how they become a file.

The same curves give the same bytes, whatever machine draws them.
"""

import re
from io import BytesIO
from typing import Any

INK, SOFT, LINE, BLUE, GREY = "#1f2430", "#667085", "#e3e7ee", "#2a6fdb", "#9aa3b2"
THEME = {SOFT: "soft", LINE: "line", BLUE: "blue", GREY: "grey"}
"""Variables of the report's style, which has a dark variant of each of these colours."""
TASKS = ("#d1495b", "#2e8b57", "#b7791f", "#7b4fb5", "#008b94", "#c05299", "#6b7f00", "#8a5a44")
"""Colours of the environments of a mixed run, over and over; they can be read on light and dark."""
_STYLE = re.compile(r' style="([^"]*)"')
_PATH = re.compile(r' d="[^"]*"')
_FONT = re.compile(r"font: (?:(\d+|bold) )?([\d.]+)px [^;]*")


def empty_axes(width: float, height: float) -> Any:
    """Return the axes (matplotlib's `Axes`) of a new figure of `width` x `height` inches, with lines for values."""
    from matplotlib.figure import Figure

    axes: Any = Figure(figsize=(width, height), dpi=150, layout="constrained").add_subplot()
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=6, labelcolor=SOFT)
    axes.xaxis.label.set_color(SOFT)
    axes.yaxis.label.set_color(SOFT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    return axes


def add_legend(axes: Any, **place: Any) -> None:
    """Name the curves of `axes` by their labels; none of which is read as a formula."""
    for text in axes.legend(frameon=False, labelcolor=SOFT, **place).get_texts():
        text.set_parse_math(False)


def png_of(axes: Any) -> bytes:
    """Return the figure of `axes` as a PNG file of 150 dots per inch."""
    picture = BytesIO()
    axes.figure.savefig(picture, format="png", metadata={"Software": "quintain"})
    return picture.getvalue()


def svg_of(axes: Any) -> str:
    """Return the figure of `axes` as an SVG element without a background, for a file of its own or for a page.

    Text stays text. What matplotlib says in ``style`` is said in attributes, for the page's policy forbids styles; in
    a page that has the variables of `THEME`, these give the colours.
    """
    from matplotlib import rc_context

    picture = BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "quintain"}):
        axes.figure.savefig(picture, format="svg", metadata=nothing, transparent=True)
    markup = picture.getvalue().decode()
    markup = re.sub(
        r"<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", "", markup[markup.index("<svg") :], flags=re.S
    )
    markup = _PATH.sub(lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), markup)
    markup = _STYLE.sub(_as_attributes, re.sub(r"\s*\n\s*", "\n", markup))
    for color, name in THEME.items():
        markup = markup.replace(color, f"var(--{name}, {color})")
    return markup.replace("<svg ", '<svg font-family="sans-serif" stroke-linejoin="round" ', 1)


def _as_attributes(style: "re.Match[str]") -> str:
    """Return the attributes that say what a ``style`` says."""
    said = _FONT.sub(r"font-weight: \1; font-size: \2", style[1])
    pairs = [rule.strip().partition(": ")[::2] for rule in said.split(";")]
    return "".join(f' {name}="{value}"' for name, value in pairs if value and name != "font-family")
