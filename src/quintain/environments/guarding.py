"""Names of guarded environments: ``guarded:desk@policy.json`` is `desk` in which a policy says what may be done.

The guard stands innermost, so that whatever is put around an environment, such as code whose actions call tools, cannot
act behind its back; tasks of a file stand around it: ``tasks:guarded:desk@policy.json@tickets.jsonl``. Of a mixture
each environment is guarded. An agent that lives outside carries out its calls where it runs, so that its guard stands
at the endpoint, and is an option of the agent: ``mine.py:run_agent?guard=policy.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quintain.config.trust import GUARDED, TASKS
from quintain.environments.nothing import NO_ENVIRONMENT, NONE
from quintain.environments.task_files import split_spec
from quintain.errors import UsageError

GUARD = "guard"
"""What a policy is given as, among the values of a configuration; it becomes a part of the environments there."""
WORLDS = ("environment", "eval_environment")
"""The fields of a configuration that name environments: training is guarded, and so is what it is measured in."""


def guard_spec(environment: str, path: str | Path) -> str:
    """Return the name of `environment` under the policy in the file at `path`.

    One that is under it stays as it is.

    Raises:
        UsageError: there is no such file, it cannot be named, there is no environment, or it has another guard.
    """
    file = find_policy(path)
    asked = f"guard: got {str(path)!r}"
    if "@" in file:
        raise UsageError(f"{asked} in {str(Path(file).parent)!r}; name file and folders without @")
    inner, tasks = split_spec(environment)
    if inner in ("", NONE, NO_ENVIRONMENT):
        raise UsageError(f"{asked} without an environment, in which nothing could be refused; name one")
    if split_guard(inner)[1] == file:
        return environment
    if inner.startswith(GUARDED):
        raise UsageError(f"{asked} for {inner}, which has a guard already; give one of them")
    guarded = f"{GUARDED}{inner}@{file}"
    return f"{TASKS}{guarded}@{tasks}" if tasks else guarded


def find_policy(path: str | Path) -> str:
    """Return the whole path of the policy at `path`.

    Raises:
        UsageError: there is no such file.
    """
    file = Path(path)
    if file.suffix != ".json":
        raise UsageError(f"guard: got {str(path)!r}; give a policy, a .json file (docs/guards.md)")
    if not file.is_file():
        raise UsageError(f"guard: got {str(path)!r}, and there is no such file; check the path")
    return str(file.resolve())


def guard_agent(agent: str, path: str | Path) -> str:
    """Return the name of `agent`, which lives outside, with the policy in the file at `path` at its endpoint.

    Raises:
        UsageError: there is no such file.
    """
    name, _, query = agent.partition("?")
    return f"{name}?guard={quote(find_policy(path), safe='/')}{'&' * bool(query)}{query}"


def split_guard(spec: str) -> tuple[str, str]:
    """Return the environment and the policy that `spec` names; `spec` and nothing where it names no policy."""
    if not spec.startswith(GUARDED):
        return spec, ""
    inner, at, path = spec.removeprefix(GUARDED).rpartition("@")
    if not at or not path or not inner:
        raise UsageError(f"environment: got {spec!r}; write it as {GUARDED}ENVIRONMENT@POLICY.json")
    return inner, path


def default_environment(config_class: type[Any]) -> str:
    """Return the environment of a configuration that names none."""
    return str(next((each.default for each in fields(config_class) if each.name == WORLDS[0]), ""))


def with_guard(
    values: Mapping[str, Any], usual: str = "", *, is_outside: Callable[[str], bool]
) -> dict[str, Any]:
    """Return `values` of a configuration in which a policy given as ``guard`` is a part of the environments.

    `usual` is the environment where none is named. Of an agent that `is_outside` it is an option.

    Raises:
        UsageError: see `guard_spec`.
    """
    found = dict(values)
    path = found.pop(GUARD, None)
    if path is None:
        return found
    if is_outside(agent := str(found.get("agent") or "")):
        return {**found, "agent": guard_agent(agent, path)}
    for name, named in zip(WORLDS, (found.get(WORLDS[0]) or usual, found.get(WORLDS[1])), strict=True):
        if named:
            found[name] = guard_spec(str(named), path)
    return found
