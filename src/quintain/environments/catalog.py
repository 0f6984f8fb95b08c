"""Names of environments: what ``keydoor?rooms=3``, ``worlds.py:Guess`` or ``mix:guess,keydoor@2`` builds."""

import importlib
from dataclasses import dataclass

from quintain.environments.guarding import GUARDED, split_guard
from quintain.environments.mixture import MixedEnvironment, parts_of
from quintain.environments.protocol import Environment
from quintain.environments.series import SESSION, Session, SessionOptions, split_session
from quintain.environments.specs import (
    ADAPTERS,
    CATALOG,
    ELSEWHERE,
    MIXTURE,
    EnvironmentSpec,
    file_member,
    find_single,
    is_importing,
)
from quintain.environments.task_files import TASKS, FileTasks, build_with_tasks, read_tasks, split_spec

__all__ = [
    "ADAPTERS",
    "CATALOG",
    "ELSEWHERE",
    "MIXTURE",
    "EnvironmentSpec",
    "file_member",
    "find",
    "is_importing",
]


def find(spec: str | type[Environment]) -> EnvironmentSpec:
    """Return how to build what `spec` names: one environment, or a mixture whose parts all exist.

    Raises:
        UsageError: the name, class, file or option does not exist, or an option's value has the wrong type.
        MissingExtra: the environment's package is not installed (when it is built).
    """
    if isinstance(spec, str) and spec.startswith(TASKS):
        return find_with_tasks(spec)
    if isinstance(spec, str) and spec.startswith(GUARDED):
        return find_guarded(spec)
    if isinstance(spec, str) and spec.startswith(SESSION):
        name, options = split_session(spec)
        inner = find(name)
        return WithSession(spec=spec, kind=inner.kind, inner=inner, options_of_session=options)
    if not isinstance(spec, str) or not spec.startswith(MIXTURE):
        return find_single(spec)
    parts = spec.removeprefix(MIXTURE)
    for part in parts_of(parts):
        find_single(part.spec)
    return EnvironmentSpec(spec=spec, kind=MixedEnvironment, subject=(parts,))


@dataclass(frozen=True, slots=True, kw_only=True)
class WithTasks(EnvironmentSpec):
    """An environment whose tasks are those of a file: ``find("tasks:shop.py:Shop@tickets.jsonl")``."""

    inner: EnvironmentSpec
    path: str

    def __call__(self) -> Environment:
        """Build the environment, and give it the tasks."""
        return build_with_tasks(self.inner, self.path)


def find_with_tasks(spec: str) -> EnvironmentSpec:
    """Return how to build what ``tasks:ENVIRONMENT@FILE`` names.

    Raises:
        UsageError: as for `find`; or there is no such file, or it holds no tasks.
    """
    name, path = split_spec(spec)
    read_tasks(path)
    if not name:
        return EnvironmentSpec(spec=spec, kind=FileTasks, subject=(path,))
    inner = find(name)
    return WithTasks(spec=spec, kind=inner.kind, inner=inner, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithSession(EnvironmentSpec):
    """An environment whose episodes have several tasks: ``find("session:sums?tasks=4&repeats=2")``."""

    inner: EnvironmentSpec
    options_of_session: SessionOptions

    def __call__(self) -> Environment:
        """Build the environment, and play several of its tasks in an episode."""
        return Session(self.inner(), self.options_of_session)


GUARD = "quintain.agents.guarded"
"""Where what stands around an environment to guard it is; that is on a higher floor, as environments themselves are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithPolicy(EnvironmentSpec):
    """An environment under a policy: ``find("guarded:desk@policy.json")``."""

    inner: EnvironmentSpec
    path: str

    def __call__(self) -> Environment:
        """Build the environment, and put it under the policy; of a mixture, each part of it."""
        module = importlib.import_module(GUARD)
        if self.kind is MixedEnvironment:
            return module.guard_mixture(*self.inner.subject, self.path)
        return module.apply_policy(self.inner(), self.path)


def find_guarded(spec: str) -> EnvironmentSpec:
    """Return how to build what ``guarded:ENVIRONMENT@POLICY.json`` names; the policy is read when it is built.

    Raises:
        UsageError: as for `find`.
    """
    name, path = split_guard(spec)
    inner = find(name)
    return WithPolicy(spec=spec, kind=inner.kind, inner=inner, path=path)
