"""Finding a method: by its name in the table, by the name a package gives it, or in a file of the user's.

A method's module has a frozen dataclass `Config` and a function ``method(config)`` that returns a method (see
`quintain.methods.method`). A user's file may call the function as it likes, where it says what it returns and takes.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quintain.errors import QuintainError, UsageError, suggestion
from quintain.methods.method import Method
from quintain.methods.table import MODULES, method_entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PACKAGE = Path(__file__).resolve().parents[1]
RETURNS = "a method: OnPolicy, Offline, Rounds, Replay, or a class with needs and train(run, config)"
"""What a function of a method returns, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMethod:
    """A method, ready to be configured."""

    spec: str
    """finds it again, also in another process: a name, ``/path/file.py`` or ``package.module:function``"""
    label: str
    """short name, for runs"""
    config_class: type[Any]
    function: Callable[[Any], Method]
    """configuration → the method"""
    summary: str
    """first line of its docstring"""

    def make(self, config: Any) -> Method:
        """Return the method as `config` describes it.

        Raises:
            UsageError: the function returns something else.
        """
        with self.blame_file():
            made = self.function(config)
        if not (hasattr(made, "needs") and hasattr(made, "train")):
            raise UsageError(f"method: got a {type(made).__name__} from {self.spec!r}; return {RETURNS}")
        return made

    @contextmanager
    def blame_file(self) -> Generator[None]:
        """Raise a `UsageError` in the place of what the method's own file raises, where that is none of quintain's."""
        try:
            yield
        except QuintainError:
            raise
        except Exception as error:
            file = getattr(getattr(self.function, "__code__", None), "co_filename", "")
            line = None if _is_own(file) else _line_at_fault(error, file)
            if line is None:
                raise
            raise UsageError(
                f"method {self.label}: got {type(error).__name__}: {error}, in line {line} of {file}; mend the file"
            ) from error


def find_method(spec: str | ModuleType | Callable[..., Method]) -> FoundMethod:
    """Return the method that `spec` names: of the table, of an entry point, ``file.py``, a module or a function.

    Raises:
        UsageError: there is none of that name, its file cannot be imported, or defines no method, or two.
    """
    if isinstance(spec, ModuleType):
        return _of_module(spec, _spec_of_module(spec), spec.__name__.rpartition(".")[2])
    if not isinstance(spec, str):
        module = sys.modules[spec.__module__]
        return _of_function(spec, f"{_spec_of_module(module)}:{spec.__name__}", spec.__name__)
    place, colon, name = spec.rpartition(":")
    if colon and (place.endswith(".py") or "." in place):
        if place.endswith(".py"):
            module, spec = _import_file(Path(place)), f"{Path(place).resolve()}:{name}"
        else:
            module = _import(place, spec)
        return _of_function(_member(module, name, spec), spec, name)
    if spec.endswith(".py"):
        return _of_module(_import_file(Path(spec)), str(Path(spec).resolve()), Path(spec).stem)
    if spec in MODULES:
        return _of_module(importlib.import_module(MODULES[spec]), spec, spec)
    found = {point.name: point for point in method_entry_points()}
    if spec in found:
        return _of_module(_load(found[spec]), spec, spec)
    raise UsageError(f"method: got {spec!r}; {suggestion(spec, [*MODULES, *found])}, or give a file.py")


def _load(point: EntryPoint) -> ModuleType:
    """Return the module that `point` names."""
    try:
        loaded = point.load()
    except Exception as error:
        raise UsageError(
            f"method {point.name!r}: got {type(error).__name__}: {error} from its package's entry point "
            f"{point.value!r}; mend or uninstall that package"
        ) from error
    if not isinstance(loaded, ModuleType):
        raise UsageError(
            f"method {point.name!r}: got a {type(loaded).__name__} from the entry point {point.value!r}; let it name a "
            "module with Config and method(config)"
        )
    return loaded


def _import(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"method: got {spec!r}, but there is no module {error.name}; check its name"
        ) from error


def _import_file(path: Path) -> ModuleType:
    """Return the module of the file at `path`; what stops its import is one line."""
    from quintain.environments.specs import import_file

    if not path.is_file():
        raise UsageError(f"method: got {str(path)!r}, but there is no such file; check the path")
    try:
        return import_file(path)
    except QuintainError:
        raise
    except Exception as error:
        where = _line_in(path, error)
        raise UsageError(
            f"method: got {str(path)!r}, whose import ends with {type(error).__name__}: {error}{where}; mend the file"
        ) from error


def _is_own(file: str) -> bool:
    """Whether `file` is one of quintain's own."""
    return Path(file).is_relative_to(PACKAGE)


def _line_at_fault(error: BaseException, file: str) -> int | None:
    """Return the line of `file` that `error` came of; None where something of quintain was called from there."""
    trace, line = error.__traceback__, None
    while trace is not None:
        place = trace.tb_frame.f_code.co_filename
        if place == file:
            line = trace.tb_lineno
        elif _is_own(place):
            line = None
        trace = trace.tb_next
    return line


def _line_in(path: Path, error: BaseException) -> str:
    """Return where in the file at `path` the error was raised."""
    if isinstance(error, SyntaxError):
        return ""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path.resolve()):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" (line {line})"


def _spec_of_module(module: ModuleType) -> str:
    """Return what finds `module` again."""
    if module.__name__ != "__main__" and not module.__name__.startswith("quintain_user_"):
        return module.__name__
    file = vars(module).get("__file__")
    if not file:
        raise UsageError("method: got a function of no file; write it to one, and import it")
    return str(Path(file).resolve())


def _member(module: ModuleType, name: str, spec: str) -> Callable[..., Method]:
    members = vars(module)
    if not callable(members.get(name)):
        raise UsageError(f"method: got {spec!r}; {suggestion(name, list(_methods_in(module)))}")
    return members[name]


def _methods_in(module: ModuleType) -> dict[str, Callable[..., Method]]:
    """Return the functions that `module` itself defines and that say that they return a method."""
    return {
        name: member
        for name, member in vars(module).items()
        if inspect.isfunction(member)
        and member.__module__ == module.__name__
        and _is_method(_hints(member).get("return"))
    }


def _is_method(kind: object) -> bool:
    """Whether `kind` is what a function says that it returns where it returns a method."""
    named = {
        name
        for each in getattr(kind, "__mro__", ())
        for name in (*vars(each), *vars(each).get("__annotations__", ()))
    }
    return isinstance(kind, type) and named >= {"needs", "train"}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:
        return {}


def _of_module(module: ModuleType, spec: str, label: str) -> FoundMethod:
    """Return the method that `module` defines: its function ``method``, or the only one that returns one."""
    found = _methods_in(module)
    if "method" in vars(module):
        make: Callable[..., Method] = vars(module)["method"]
    elif len(found) == 1:
        (make,) = found.values()
    else:
        what = f"{len(found)} methods ({', '.join(found)})" if found else "no method"
        raise UsageError(
            f"method: got {spec!r}, which defines {what}; define one function method(config) that returns {RETURNS}"
            + (f", or name one: {spec}:{next(iter(found))}" if found else "")
        )
    return _of_function(make, spec, label, vars(module).get("Config"), module.__doc__)


def _of_function(
    make: Callable[..., Method],
    spec: str,
    label: str,
    config_class: type[Any] | None = None,
    document: str | None = None,
) -> FoundMethod:
    """Return the method that `make` makes of its configuration."""
    kind = config_class or next((hint for name, hint in _hints(make).items() if name != "return"), None)
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise UsageError(
            f"method: got {spec!r}, whose configuration is no dataclass; define a frozen dataclass Config, and "
            "method(config: Config)"
        )
    summary = (document or make.__doc__ or "").strip().partition("\n")[0]
    return FoundMethod(spec=spec, label=label, config_class=kind, function=make, summary=summary)
