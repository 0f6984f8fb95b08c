"""The conformance suite: does an environment keep its contract, and what is it worth as a task?

Every probe is a small function; what an environment raises, and how long it hangs, is a finding and never an error of
the checker. A probe that did not run says so; it has not passed.
"""

import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from quintain.environments.catalog import find
from quintain.environments.probes import PROBES, NotApplicableError, NotedError, Subject
from quintain.environments.protocol import Environment
from quintain.errors import QuintainError
from quintain.types.findings import Finding, State

CALLS = (
    "reset",
    "step",
    "close",
    "snapshot",
    "restore",
    "expert_action",
    "legal_actions",
    "state_key",
    "task",
)
MARKS: Mapping[State, str] = {"pass": "✓", "fail": "✗", "skip": "-", "note": "!"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What `check` found of an environment.

    Example: ``CheckReport(spec="guess", findings=(...), measured={"expert/success": 1.0})``.
    """

    spec: str
    findings: tuple[Finding, ...]
    measured: Mapping[str, float] = field(default_factory=dict[str, float])
    """Mean return and success of the baselines, steps per second, overlap of first observations."""

    @property
    def has_passed(self) -> bool:
        """Whether no probe failed."""
        return all(finding.state != "fail" for finding in self.findings)

    def lines(self) -> Iterator[str]:
        """Yield the report for people, a line per finding."""
        width = max(len(finding.name) for finding in self.findings)
        for finding in self.findings:
            yield f"{MARKS[finding.state]} {finding.name:<{width}}  {finding.detail}".rstrip()
        failed = sum(finding.state == "fail" for finding in self.findings)
        skipped = sum(finding.state == "skip" for finding in self.findings)
        verdict = f"{failed} failed" if failed else "passed"
        yield f"{self.spec}: {verdict}; {len(self.findings)} probes, {skipped} skipped"


def check(spec: str | type[Environment], *, episodes: int = 20, deadline: float = 60.0) -> CheckReport:
    """Return what the probes find of the environment `spec`.

    `episodes` are played per baseline; a probe that takes longer than `deadline` seconds counts as hanging,
    and those after it are skipped.

    Raises:
        UsageError: there is no such environment.
    """
    recipe = find(spec)
    subject = Subject(make=recipe, num_episodes=episodes)
    findings: list[Finding] = []
    stopped = ""
    for name, probe in PROBES.items():
        if stopped:
            findings.append(Finding(name=name, state="skip", detail=f"not run: {stopped}"))
            continue
        finding, is_hanging = _run_probe(name, probe, subject, deadline)
        findings.append(finding)
        if is_hanging:
            stopped = f"the environment hung in {name}"
        elif finding.state == "fail" and name == "builds":
            stopped = "it cannot be built"
    return CheckReport(spec=recipe.spec, findings=tuple(findings), measured=dict(subject.measured))


class _Outcome:
    """Holds what a function returned or raised, so that another thread can look at it."""

    def __init__(self) -> None:
        self.detail = ""
        self.error: BaseException | None = None

    def __enter__(self) -> "_Outcome":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True


def _run_probe(
    name: str, probe: Callable[[Subject], str], subject: Subject, deadline: float
) -> tuple[Finding, bool]:
    """Run `probe` in a thread of its own; return what it found and whether it is still at it."""
    outcome = _Outcome()

    def work() -> None:
        with outcome, contextlib.closing(subject):
            outcome.detail = probe(subject)

    # A daemon, because a hanging environment cannot be stopped and must not keep the process alive.
    thread = threading.Thread(target=work, name=f"check-{name}", daemon=True)
    streams = sys.stdout, sys.stderr
    thread.start()
    thread.join(deadline)
    if thread.is_alive():
        sys.stdout, sys.stderr = streams  # what hangs may have taken them for itself
        detail = f"took longer than {deadline:g} s{_locate(thread)}"
        return Finding(name=name, state="fail", detail=detail), True
    return _finding_of(name, outcome), False


def _locate(thread: threading.Thread) -> str:
    """Return which of the environment's methods `thread` is in, and where."""
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return ""
    stack = traceback.extract_stack(frame)
    called = [found.name for found in stack if found.name in CALLS]
    return f", in {called[-1] if called else stack[-1].name} at {stack[-1].filename}:{stack[-1].lineno}"


def _finding_of(name: str, outcome: _Outcome) -> Finding:
    """Return the finding that `outcome` amounts to."""
    error = outcome.error
    if error is None:
        return Finding(name=name, state="pass", detail=outcome.detail)
    if isinstance(error, NotApplicableError):
        return Finding(name=name, state="skip", detail=str(error))
    if isinstance(error, NotedError):
        return Finding(name=name, state="note", detail=str(error))
    if isinstance(error, QuintainError):
        return Finding(name=name, state="fail", detail=str(error))
    return Finding(name=name, state="fail", detail=f"raised {type(error).__name__}: {error}")
