"""What a page of MiniWoB++ shows, as text: the instruction, then a line for every element that says or does something.

The elements are those of the package's ``core.getDOMInfo``. Only what can be seen is listed.
"""

import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

QUOTED = re.compile(r'"([^"]+)"')
TYPED = ("input_text", "input_password", "input_number", "input_date", "input_time", "textarea")
MARKED = ("input_checkbox", "input_radio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A visible element: ``Element(ref=7, tag="button", text="Login", id="subbtn", ...)``."""

    ref: int
    """Its number; negative for a text that stands among elements, which cannot be clicked."""
    tag: str
    """In lower case; an input's with its kind, such as ``input_text``."""
    text: str
    value: str | bool | None
    id: str
    classes: str
    centre: tuple[float, float]
    """In pixels from the left and from the top."""
    color: str
    """Of its background, as the browser writes it."""
    is_touched: bool
    """Whether it was clicked in this episode."""

    @property
    def is_text_field(self) -> bool:
        """Whether text can be typed into it."""
        return self.tag in TYPED

    @property
    def line(self) -> str:
        """The element in a line: ``7 button Login``, ``5 input_checkbox checked``."""
        parts = [str(self.ref) if self.ref > 0 else "-"]
        parts += [self.tag] if self.tag != "t" else []
        if self.value is not None or not self.text:
            parts += [self.id or self.classes] if self.tag not in MARKED else []
        if isinstance(self.value, bool):
            parts.append("checked" if self.value else "unchecked")
        elif self.value:
            parts.append(repr(self.value))
        return " ".join(part for part in (*parts, self.text if self.text != self.value else "") if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The page of the moment: ``Page(utterance="Click button ONE.", elements=(...))``."""

    utterance: str
    elements: tuple[Element, ...]

    @property
    def text(self) -> str:
        """The page as an agent reads it."""
        return "\n".join([self.utterance, *(element.line for element in self.elements)])

    @property
    def content(self) -> str:
        """What it says, wherever it stands."""
        return repr((self.utterance, sorted(element.text for element in self.elements)))

    @property
    def quoted(self) -> list[str]:
        """What stands in quotation marks in the instruction."""
        return QUOTED.findall(self.utterance)

    def first(self, tag: str = "", **facts: str) -> Element:
        """Return the first element of `tag` (a prefix) with these facts; ``text`` is compared without its blanks.

        Raises:
            LookupError: there is none.
        """
        for element in self.all(tag):
            if all(str(getattr(element, name)).strip() == fact for name, fact in facts.items()):
                return element
        raise LookupError(f"no {tag or 'element'} with {facts}")

    def all(self, tag: str = "") -> list[Element]:
        """Return the elements whose tag starts with `tag`, in the order of the page."""
        return [element for element in self.elements if element.ref > 0 and element.tag.startswith(tag)]

    def after(self, text: str, tag: str) -> Element:
        """Return the first element of `tag` that follows the text `text`.

        Raises:
            LookupError: there is none.
        """
        has_passed = False
        for element in self.elements:
            if has_passed and element.ref > 0 and element.tag.startswith(tag):
                return element
            has_passed = has_passed or element.text.strip() == text
        raise LookupError(f"no {tag} after {text!r}")


def page_of(utterance: str | Mapping[str, Any], dom: Mapping[str, Any]) -> Page:
    """Return the page that the package's ``getUtterance`` and ``getDOMInfo`` describe."""
    told = utterance if isinstance(utterance, str) else str(utterance["utterance"])
    return Page(utterance=told, elements=tuple(_elements(dom)))


def _elements(node: Mapping[str, Any]) -> Iterator[Element]:
    """Yield the elements in `node` that hold no others."""
    children = node["children"]
    # As in the package: an element that holds nothing but texts is one text.
    is_leaf = not children or all(child["tag"] == "t" for child in children)
    if not is_leaf:
        for child in children:
            yield from _elements(child)
        return
    texts = [str(node.get("text") or ""), *(str(child.get("text") or "") for child in children)]
    value, classes = node.get("value"), node.get("classes") or ""
    yield Element(
        ref=int(node["ref"]),
        tag=str(node["tag"]).lower(),
        text=" ".join(" ".join(texts).split()),
        value=value if isinstance(value, bool) or value is None else str(value),
        id=str(node.get("id") or ""),
        classes=classes if isinstance(classes, str) else "",
        centre=(node["left"] + node["width"] / 2, node["top"] + node["height"] / 2),
        color=str(node.get("bgColor") or ""),
        is_touched=bool(node.get("tampered")),
    )


def fields_of(package: Path, task: str, utterance: str) -> tuple[str, ...]:
    """Return the values that the package reads from the instruction, else what is quoted in it."""
    try:
        found = [str(value) for _, value in _extractors(package)[task](utterance)]
    except (KeyError, ValueError):
        found = QUOTED.findall(utterance)
    return tuple(dict.fromkeys(value for value in found if value.strip()))


@functools.cache
def _extractors(package: Path) -> Mapping[str, Any]:
    """Return the package's extractors of fields, without the rest of the package."""
    found = importlib.util.spec_from_file_location("miniwob_fields", package / "fields.py")
    assert found is not None and found.loader is not None
    module: ModuleType = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return vars(module)["FIELD_EXTRACTORS"]
