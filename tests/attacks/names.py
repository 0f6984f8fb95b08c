"""A12: names that lead elsewhere, and configurations that say something else than they seem to."""

from collections.abc import Callable
from typing import Any

from tests.attacks.attack import Attack, Scene, both, refused

from quintain.config import build, files, options, values
from quintain.environments.catalog import find
from quintain.errors import ConfigError, UsageError
from quintain.methods.rl.grpo import Config
from quintain.store import creation, names
from quintain.store.run import Run

NAMES = {
    "a way upwards": "../../x",
    "an absolute path": "/x",
    "a folder": "a/b",
    "nothing": "",
    "here": ".",
    "above": "..",
    "a hidden file": ".x",
    "a flag": "-rf",
    "a second line": "a\nb",
    "an end of text": "a\0b",
    "a command": "$(id)",
    "a device": "con",
    "a device with an ending": "nul.txt",
    "too many letters": "x" * 200,
    "letters that look like others": "\uff41",
    "two commands": "a;b",
    "a drive": "C:\\x",
    "a home": "~root",
    "a dot at the end": "a.",
}
VALUES: dict[str, dict[str, Any]] = {
    "an unknown key": {"stesp": 3},
    "a text for a number": {"steps": "3"},
    "a number for a text": {"environment": 3},
    "a list for a number": {"steps": [1]},
    "nan": {"learning_rate": float("nan")},
}
FILES = {
    "a key that comes twice": ("c.json", '{"steps": 1, "steps": 2}'),
    "nesting": ("c.json", "[" * 100_000),
    "a bomb of anchors": ("c.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"),
    "objects of Python": ("c.yaml", "!!python/object/apply:os.getcwd []\n"),
}


def named(name: str) -> Callable[[Scene], object]:
    """Return work that finds the folder of the run `name`."""
    return lambda scene: names.run_folder(scene.folder, name)


def any_name(scene: Scene) -> None:
    """Take every name."""
    scene.patch.setattr(names, "check_name", str)


def linked(scene: Scene) -> object:
    """Make a run where a link leads elsewhere."""
    (scene.folder / "outside").mkdir()
    (scene.folder / "run").symlink_to(scene.folder / "outside")
    with Run.create(scene.folder / "run", recipe="sft", config={}, replace=True) as run:
        return run.folder


def any_folder(scene: Scene) -> None:
    """Make a run whatever is there."""
    scene.patch.setattr(creation, "check_free", lambda folder, *, replace: None)
    scene.patch.setattr(
        creation, "_put_in_place", lambda temporary, folder: temporary.rename(folder.resolve())
    )


def built(given: dict[str, Any]) -> Callable[[Scene], object]:
    """Return work that builds a configuration from `given`."""
    return lambda _: build(Config, given, "c.json").steps


def any_value(scene: Scene) -> None:
    """Take what is known and leave out the rest."""
    fields = {option.name for option in options(Config)} - {"learning_rate"}

    def construct(config_class: type[Any], given: dict[str, Any], *_: object) -> object:
        return config_class(**{key: 1 if key == "steps" else "guess" for key in given if key in fields})

    scene.patch.setattr(values, "construct", construct)


def read(name: str, text: str) -> Callable[[Scene], object]:
    """Return work that reads a configuration file."""

    def work(scene: Scene) -> object:
        (scene.folder / name).write_text(text)
        return files.read_file(scene.folder / name)

    return work


def any_file(scene: Scene) -> None:
    """Read what can be read and leave out the rest."""
    scene.patch.setattr(files, "read_file", lambda path: {})


def found(spec: str) -> Callable[[Scene], object]:
    """Return work that looks up an environment."""
    return lambda _: find(spec)


def any_environment(scene: Scene) -> None:
    """Take every name of an environment."""
    scene.patch.setitem(globals(), "find", str)


ATTACKS = [
    *(
        Attack("A12", f"a run named as {name}", refused(named(text), by=UsageError), any_name)
        for name, text in NAMES.items()
    ),
    Attack("A12", "a run behind a link", refused(linked, by=UsageError), both(any_folder)),
    *(
        Attack("A12", f"a configuration with {name}", refused(built(given), by=ConfigError), any_value)
        for name, given in VALUES.items()
    ),
    *(
        Attack("A12", f"a configuration file with {name}", refused(read(*file), by=UsageError), any_file)
        for name, file in FILES.items()
    ),
    *(
        Attack("A12", f"the environment {spec}", refused(found(spec), by=UsageError), any_environment)
        for spec in ("guess?numbr=3", "../x.py:World", "os:system", "guess?__class__=1")
    ),
]
