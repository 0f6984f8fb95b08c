"""A command line whose method, launcher and runs are small and in the test's hands."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import pytest

import quintain
from quintain.cli.main import main
from quintain.config.ranges import PositiveFloat
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.table import MODULES


@dataclass(frozen=True)
class Policy:
    device: str = "cpu"
    """Where it is."""
    rate: PositiveFloat = 0.5
    is_frozen: bool = True


@dataclass(frozen=True)
class Config:
    renamed: ClassVar[Mapping[str, str]] = {"speed": "rate"}
    environment: str = "guess"
    """Where to train: 100 % made up."""
    steps: int = 10
    """Steps of training."""
    rate: float = 1e-3
    is_fast: bool = False
    """Whether to hurry."""
    mode: Literal["outcome", "turn"] = "outcome"
    policy: Policy = Policy()
    policies: dict[str, Policy] = field(default_factory=dict[str, Policy])

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps: got {self.steps}; give 1 or more")


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    status: int
    out: str
    error: str

    @property
    def line(self) -> str:
        """The one line of an error."""
        assert self.error.count("\n") == 1
        return self.error.removeprefix("quintain: error: ").rstrip("\n")


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> Result:
        status = main(argv)
        out, error = capsys.readouterr()
        return Result(status, out, error)

    return call


def make(config: Config) -> OnPolicy:
    """A method that is configured and never trains."""
    raise AssertionError(config)


@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> str:
    """A method called test, with the `Config` above."""
    module = ModuleType("quintain_test_method", "L = 0: a method for tests.\n\nMore.")
    vars(module)["Config"] = Config
    vars(module)["method"] = make
    monkeypatch.setitem(sys.modules, "quintain_test_method", module)
    monkeypatch.setitem(MODULES, "test", "quintain_test_method")
    return "test"


def said(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` without what nobody said: that a run is trusted, or what changed in it accepted."""
    usual = ("trust_run", "accept_changes")
    return {name: value for name, value in settings.items() if value or name not in usual}


class Launcher:
    """Stands for `quintain.api`: writes down what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: BaseException | None = None
        self.answer: Any = None
        self.makes: Path | None = None

    def _called(self, *call: Any) -> Any:
        self.calls.append(call)
        if self.makes is not None:
            self.makes.mkdir(parents=True)
        if self.error is not None:
            raise self.error
        return self.answer

    def train(self, method: str, **settings: Any) -> Any:
        return self._called("train", method, said(settings))

    def resume(self, folder: Path, **elsewhere: Any) -> Any:
        given = {name: value for name, value in said(elsewhere).items() if value is not None}
        return self._called("resume", folder, *([given] if given else []))

    def evaluate(self, target: object, environment: str | None, **settings: Any) -> Any:
        return self._called("evaluate", target, environment, said(settings))

    def check_evaluation(self, target: object, environment: str | None, **settings: Any) -> Any:
        return ()

    def collect(self, environment: str, agent: str, **settings: Any) -> Any:
        return self._called("collect", environment, agent, said(settings))

    def conclude(self, run: Any, *, must_write: bool) -> bool:
        self._called("conclude", run.name)
        return not must_write


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Put a `Launcher` where the real one would be imported from."""
    fake = Launcher()
    monkeypatch.setitem(sys.modules, "quintain.api", fake)
    monkeypatch.setattr(quintain, "api", fake, raising=False)
    return fake
