"""Write src/quintain/options.pyi: the options of every method as types, for `quintain.train`.

    python docs/options.py [--check]

With --check nothing is written, and the exit status says whether the file is current.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from quintain.config.fields import dataclasses_of, own_options
from quintain.learning.train_config import TrainConfig
from quintain.methods.find import find_method
from quintain.methods.table import MODULES

ROOT = Path(__file__).resolve().parents[1]
STUB = ROOT / "src" / "quintain" / "options.pyi"
HEAD = '''"""The options of every method as types, for checkers and editors; made by docs/options.py."""

# fmt: off

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypedDict, Unpack, overload

from quintain.environments.protocol import Environment
from quintain.learning.sections import PolicySettings
from quintain.methods.method import Method
from quintain.trained import TrainedRun

class TrainOptions(TypedDict, total=False):
    environment: str | type[Environment] | None
    tasks: int | str | Path
    guard: str | Path
    run: str | None
    root: str | Path
    replace: bool
    config: Mapping[str, Any] | None
    trust_run: bool
'''
OWN = """
@overload
def train(method: str | ModuleType | Callable[[Any], Method], **options: Unpack[TrainConfigOptions]) -> TrainedRun: ...
"""
"""A method that is not of the table: its own options go into `config`, whose names nobody knows here."""


def type_text(annotation: Any) -> str:
    """Return `annotation` as it is written in the file, without limits of numbers; a list may be any sequence."""
    if get_origin(annotation) is Annotated:
        return type_text(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(annotation)))}]".replace("'", '"')
    origin, inner = get_origin(annotation) or annotation, get_args(annotation)
    if origin is type(None):
        return "None"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"Mapping[{type_text(inner[0])}, {type_text(inner[1])}]"
    if isinstance(origin, type) and issubclass(origin, Collection) and inner:
        return f"Sequence[{type_text(inner[0])}]"
    if inner:
        assert origin is Union or origin is type(int | str), f"an annotation that is not known: {annotation}"
        return " | ".join(map(type_text, inner))
    return str(origin.__name__)


def class_text(config_class: type[Any], name: str, base: str) -> Iterator[str]:
    """Yield the lines of the options that `config_class` has and its bases, the classes `base`, lack."""
    yield ""
    head = f"class {name}({base}, total=False):"
    yield (
        head
        if len(head) <= 120
        else head.replace("(", "(\n    ", 1).replace(", ", ",\n    ").replace("):", ",\n):")
    )
    inherited = {option.name for each in dataclasses_of(config_class)[1:] for option in own_options(each)}
    own = [
        option
        for option in own_options(config_class)
        if option.name not in {*inherited, "environment", "tasks"}
    ]
    yield from (f"    {option.name}: {type_text(option.annotation)}" for option in own)
    if not own:
        yield "    pass"


def stub_text() -> str:
    """Return what the file is to be: a class for each configuration, and an overload for each of those of methods."""
    names: dict[type[Any], str] = {}
    methods: dict[type[Any], list[str]] = {}
    lines = [HEAD.rstrip("\n")]
    for method in MODULES:
        config_class = find_method(method).config_class
        methods.setdefault(config_class, []).append(method)
        for each in reversed(dataclasses_of(config_class)):
            if each in names:
                continue
            own = each.__name__ if each.__name__ != "Config" else camel(each.__module__.rpartition(".")[2])
            names[each] = f"{own if each is TrainConfig else own.removesuffix('Config')}Options"
            bases = [names[base] for base in each.__bases__ if base in names] or ["TypedDict"]
            lines += class_text(
                each, names[each], ", ".join(["TrainOptions"] * (each is TrainConfig) + bases)
            )
    assert len(set(names.values())) == len(names), "two configurations of one name"
    assert names[TrainConfig] == "TrainConfigOptions", "the last overload names it"
    lines.append("")
    for config_class, known in methods.items():
        which = ", ".join(f'"{name}"' for name in known)
        lines += [
            "@overload",
            f"def train(method: Literal[{which}], **options: Unpack[{names[config_class]}]) -> TrainedRun: ...",
        ]
    return "\n".join(lines) + OWN


def camel(name: str) -> str:
    """Return a name of words as that of a class: ``ire_vla`` is ``IreVla``."""
    return "".join(part.capitalize() for part in name.split("_"))


def main(is_check: bool) -> int:
    """Write the file, or check it."""
    wanted = stub_text()
    if STUB.is_file() and STUB.read_text(encoding="utf-8") == wanted:
        return 0
    if is_check:
        print(f"stale {STUB.name}: run python docs/options.py", file=sys.stderr)
        return 1
    STUB.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))  # noqa: TID251
