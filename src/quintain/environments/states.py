"""States of an environment that are kept, and brought back only as they were.

A search believes what `restore` brings back: where that is another state, what it finds is of no task at all. Where the
environment tells its states apart (`StateKey`) a state is kept with its key, and that is compared when it comes back.
Others are taken at their word; ``quintain check`` plays on from what they restore.
"""

from dataclasses import dataclass
from typing import Any, cast

from quintain.environments.protocol import Environment, Snapshot, StateKey, environment_name
from quintain.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state, and the key that it had: ``SavedState((3, 1), "3,1")``; an empty key: the environment has none."""

    state: Any
    key: str


def save_state(environment: Environment) -> SavedState:
    """Return the state that `environment` is in; it has snapshots.

    Raises:
        EnvironmentFault: there is no memory left for it.
    """
    key = environment.state_key() if isinstance(environment, StateKey) else ""
    try:
        return SavedState(cast(Snapshot, environment).snapshot(), key)
    except MemoryError as error:
        raise EnvironmentFault(
            f"a state that {environment_name(environment)} was to keep: got no memory for one more; search fewer "
            "states (steps=, nodes=, size=), or let snapshot() keep less"
        ) from error


def restore_state(environment: Environment, saved: SavedState) -> None:
    """Bring `environment` back to what was `saved`.

    Raises:
        EnvironmentFault: another state came back.
    """
    cast(Snapshot, environment).restore(saved.state)
    if saved.key and isinstance(environment, StateKey) and (key := environment.state_key()) != saved.key:
        raise EnvironmentFault(
            f"a state that {environment_name(environment)} was to bring back: got {key!r:.60}, not {saved.key!r:.60}; "
            "let snapshot() copy all that step() changes, and restore() put it back: quintain check says what is lost"
        )
