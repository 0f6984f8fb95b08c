"""Names of environments: what ``keydoor?rooms=3``, ``worlds.py:Guess`` or ``mix:guess,keydoor@2`` builds."""

from quintain.environments.mixture import MixedEnvironment, parts_of
from quintain.environments.protocol import Environment
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
    if not isinstance(spec, str) or not spec.startswith(MIXTURE):
        return find_single(spec)
    parts = spec.removeprefix(MIXTURE)
    for part in parts_of(parts):
        find_single(part.spec)
    return EnvironmentSpec(spec=spec, kind=MixedEnvironment, subject=(parts,))
