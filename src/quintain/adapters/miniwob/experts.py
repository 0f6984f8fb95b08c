"""Scripted experts for tasks of MiniWoB++: the page of the moment → the next command.

Each reads what the agent reads and remembers nothing, so it can take over anywhere. An expert that finds no action
raises, it does not guess.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from quintain.adapters.miniwob.page import Element, Page

Expert = Callable[[Page], str]
NUMBER = re.compile(r"-?\d+")
SUMS: Mapping[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "x": operator.mul}
COLORS = {
    "red": "rgb(255, 0, 0)",
    "lime": "rgb(0, 255, 0)",
    "blue": "rgb(0, 0, 255)",
    "black": "rgb(0, 0, 0)",
    "white": "rgb(255, 255, 255)",
    "yellow": "rgb(255, 255, 0)",
    "cyan": "rgb(0, 255, 255)",
    "magenta": "rgb(255, 0, 255)",
    "grey": "rgb(128, 128, 128)",
    "pink": "rgb(255, 192, 203)",
    "orange": "rgb(255, 165, 0)",
    "purple": "rgb(128, 0, 128)",
    "olive": "rgb(128, 128, 0)",
}
WIDGETS = {
    "button": "button",
    "radio": "input_radio",
    "checkbox": "input_checkbox",
    "text": "input_text",
    "textarea": "textarea",
}


def click(element: Element) -> str:
    """Return the command that clicks `element`."""
    return f"click {element.ref}"


def one_of(elements: Iterable[Element]) -> Element:
    """Return the first of `elements`.

    Raises:
        LookupError: there is none.
    """
    for element in elements:
        return element
    raise LookupError("no such element")


def find_groups(page: Page, pattern: str) -> tuple[str, ...]:
    """Return what the groups of `pattern` stand for in the instruction.

    Raises:
        LookupError: it says something else.
    """
    read = re.fullmatch(pattern, page.utterance)
    if read is None:
        raise LookupError(f"no instruction like {pattern!r}")
    return read.groups()


def fill(fields: Sequence[tuple[Element, str]], button: Element) -> str:
    """Return what types the first of `fields` that has not got its value yet, or else clicks `button`."""
    for element, value in fields:
        if not element.value:
            return f"type {element.ref} {value}"
    return click(button)


def press_named(page: Page) -> str:
    """Click the button that the instruction quotes."""
    return click(page.first("button", text=page.quoted[0]))


def in_order(page: Page) -> str:
    """Click ONE, then TWO."""
    one = page.first("button", text="ONE")
    return click(page.first("button", text="TWO") if one.is_touched else one)


def link(page: Page) -> str:
    """Click the link that the instruction quotes."""
    return click(page.first("span", text=page.quoted[0]))


def dialog(page: Page) -> str:
    """Close the dialog with its cross, or with the button that is quoted."""
    if page.quoted[0] != "x":
        return press_named(page)
    return click(one_of(element for element in page.all("span") if "closethick" in element.classes))


def choose_marked(page: Page) -> str:
    """Check the boxes, or the radio button, that the instruction lists, then submit."""
    listed = page.utterance.removeprefix("Select ").rpartition(" and click")[0].split(", ")
    for box, label in pairwise(page.elements):
        if box.value is False and label.text in listed:
            return click(box)
    return click(page.first("button", text="Submit"))


def tab(page: Page) -> str:
    """Open the tab with the number that the instruction gives."""
    return click(page.first("a", text=f"Tab #{NUMBER.findall(page.utterance)[0]}"))


def link_in_tabs(page: Page) -> str:
    """Click the link, or open the first tab that has not been looked at."""
    for element in page.all("span"):
        if element.text == page.quoted[0]:
            return click(element)
    return click(one_of(element for element in page.all("a") if not element.is_touched))


def section(page: Page) -> str:
    """Open the section, then submit."""
    heading = page.first("h3")
    return click(page.first("button", text="Submit") if heading.is_touched else heading)


def link_in_sections(page: Page) -> str:
    """Click the link, or open the first section that has not been looked at."""
    for element in page.all("span"):
        if element.text == page.quoted[0]:
            return click(element)
    return click(one_of(element for element in page.all("h3") if not element.is_touched))


def type_quoted(page: Page) -> str:
    """Type each quoted text into a field of its own (the last one into those that are left), then submit."""
    fields = [element for element in page.elements if element.is_text_field]
    texts = [*page.quoted, *page.quoted[-1:] * len(fields)]
    return fill(list(zip(fields, texts, strict=False)), page.first("button"))


def type_cased(page: Page) -> str:
    """Type the quoted text in the letters that are asked for, then submit."""
    text = page.quoted[0]
    text = text.upper() if "upper case" in page.utterance else text.lower()
    return fill([(page.first("input_text"), text)], page.first("button"))


def focus(page: Page) -> str:
    """Click the text field, or the one with the number that the instruction gives."""
    number = int((NUMBER.findall(page.utterance) or ["1"])[0])
    return click(page.all("input_text")[number - 1])


def arithmetic(page: Page) -> str:
    """Type the result, then submit."""
    one, sign, other = page.first("div").text.split()[:3]
    return _give_answer(page, str(SUMS[sign](int(one), int(other))))


def algebra(page: Page) -> str:
    """Type what x is in ``7 + x = 56``, then submit."""
    one, sign, other, _, total = page.first("div").text.split()
    found = [
        x
        for x in range(-2000, 2001)
        if SUMS[sign](*(x if part == "x" else int(part) for part in (one, other))) == int(total)
    ]
    return _give_answer(page, str(found[0]))


def widget(page: Page) -> str:
    """Click a widget of the kind that is quoted."""
    tag = WIDGETS[page.quoted[0]]
    return click(one_of(element for element in page.all() if element.tag == tag))


def coordinate(page: Page) -> str:
    """Click the point of the grid."""
    return click(page.first("circle", id=page.utterance.rpartition("coordinate ")[2].removesuffix(".")))


def tree(page: Page) -> str:
    """Click the name, or open the first folder that has not been opened."""
    for element in page.all("span"):
        if element.text == page.quoted[0]:
            return click(element)
    return click(
        one_of(
            element
            for element in page.all("div")
            if "expandable" in element.classes and not element.is_touched
        )
    )


def color(page: Page) -> str:
    """Click the box of the colour that is named."""
    name = page.utterance.removeprefix("Click on the ").partition(" ")[0]
    return click(page.first("div", color=COLORS[name]))


def table(page: Page) -> str:
    """Type the value that stands after its name in the table, then submit."""
    name = page.utterance.removeprefix("Enter the value of ").partition(" into")[0]
    return _give_answer(page, page.after(name, "td").text)


def word(page: Page) -> str:
    """Type the word with the number that is asked for, then submit."""
    number = int(NUMBER.findall(page.utterance)[0])
    return _give_answer(page, page.first("p").text.split()[number - 1].strip(".,"))


def letters(page: Page) -> str:
    """Type the letters that stand side by side, then submit."""
    return _give_answer(page, "".join(element.text for element in page.all("span")))


def choose_name(page: Page) -> str:
    """Type the name into the list, which goes to it, then submit."""
    name = page.utterance.removeprefix("Select ").rpartition(" from the list")[0]
    options = page.first("select")
    return click(page.first("button")) if options.is_touched else f"type {options.ref} {name}"


def parity(page: Page) -> str:
    """Mark each number as odd or even, then submit."""
    for place, element in enumerate(page.elements):
        if NUMBER.fullmatch(element.text):
            odd, even = page.elements[place - 1], page.elements[place + 1]
            right = even if int(element.text) % 2 == 0 else odd
            if not right.is_touched:
                return click(right)
    return click(page.first("button", text="Submit"))


def shape(page: Page) -> str:
    """Click the name of the figure."""
    figure = page.elements[0]
    names = {"rect": "Rectangle", "circle": "Circle", "polygon": "Triangle"}
    name = names.get(figure.tag) or ("Number" if figure.text.isdigit() else "Letter")
    return click(page.first("button", text=name))


def blocks(page: Page) -> str:
    """Type how many blocks there are, then submit."""
    return _give_answer(page, str(sum("addition-block" in element.classes for element in page.all("span"))))


def film(page: Page) -> str:
    """Fill in genre, director and year next to their labels, then search."""
    genre, director, year = find_groups(page, r"Search for (.+) movies directed by (.+) from year (\d+)\.")
    wanted = {"genre": genre, "director": director, "year": year, "date": year}
    shown = [element for element in page.elements if not isinstance(element.value, bool)]
    labels_first = not shown[0].is_text_field
    fields: list[tuple[Element, str]] = []
    for one, other in pairwise(shown):
        label, field = (one, other) if labels_first else (other, one)
        name = next((name for name in wanted if name in label.text.lower()), None)
        if name is not None and field.is_text_field:
            fields.append((field, wanted[name]))
    if len(fields) < 3:
        raise LookupError("fields without labels")
    return fill(fields, page.elements[-1])


def date(page: Page) -> str:
    """Type the date into the date field, then submit."""
    digits = "".join(NUMBER.findall(page.utterance.replace("-", "/"))[:3])
    return fill([(page.first("input_date"), digits)], page.first("button"))


def clock(page: Page) -> str:
    """Type the time into the time field, then submit."""
    hour, minute, half = re.findall(r"(\d+):(\d+) ?([AP]M)", page.utterance)[0]
    return fill([(page.first("input_time"), f"{int(hour):02}{minute}{half}")], page.first("button"))


def contact(page: Page) -> str:
    """Leaf through the contacts to the name, then click what is asked for."""
    name, asked = find_groups(page, r"Find (.+) in the contact book and click on their (.+)\.")
    if page.first("h2").text == name:
        label = {"phone number": "Phone:", "email": "Email:", "address": "Address:"}[asked]
        return click(page.after(label, "a"))
    return click(page.first("a", text=">"))


def _give_answer(page: Page, answer: str) -> str:
    """Type `answer` into the text field, then submit."""
    return fill([(page.first("input_text"), answer)], page.first("button"))


EXPERTS: Mapping[str, Expert] = {
    "choose-list": choose_name,
    "click-button": press_named,
    "click-button-sequence": in_order,
    "click-checkboxes": choose_marked,
    "click-checkboxes-large": choose_marked,
    "click-checkboxes-transfer": choose_marked,
    "click-collapsible": section,
    "click-collapsible-2": link_in_sections,
    "click-color": color,
    "click-dialog": dialog,
    "click-dialog-2": dialog,
    "click-link": link,
    "click-option": choose_marked,
    "click-tab": tab,
    "click-tab-2": link_in_tabs,
    "click-tab-2-easy": link_in_tabs,
    "click-tab-2-hard": link_in_tabs,
    "click-tab-2-medium": link_in_tabs,
    "click-test": lambda page: click(page.first("button")),
    "click-test-2": lambda page: click(page.first("button", text="ONE")),
    "click-test-transfer": lambda page: click(page.first("button", text="ONE")),
    "click-widget": widget,
    "enter-date": date,
    "enter-password": type_quoted,
    "enter-text": type_quoted,
    "enter-text-2": type_cased,
    "enter-text-dynamic": type_quoted,
    "enter-time": clock,
    "find-word": word,
    "focus-text": focus,
    "focus-text-2": focus,
    "grid-coordinate": coordinate,
    "identify-shape": shape,
    "login-user": type_quoted,
    "multi-layouts": film,
    "navigate-tree": tree,
    "odd-or-even": parity,
    "phone-book": contact,
    "read-table": table,
    "simple-algebra": algebra,
    "simple-arithmetic": arithmetic,
    "text-transform": letters,
    "unicode-test": press_named,
    "visual-addition": blocks,
}
