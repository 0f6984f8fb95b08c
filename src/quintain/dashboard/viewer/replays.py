"""Episodes that are stepped through in their world, and taken over from any turn, while a viewer is open.

The world is built as the run's configuration names it, behind the door of `quintain.config.trust`, and the recorded
actions are carried out again; it must show what was recorded. From any turn a person may go on with actions of their
own. Nothing of that is recorded.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from quintain.config.trust import admit
from quintain.dashboard.viewer.tokens import parts_of
from quintain.dashboard.viewer.viewed import Viewer
from quintain.environments.boundary import blame
from quintain.environments.protocol import Environment, Legal
from quintain.environments.smoke_test import find_or_blame
from quintain.errors import QuintainError, UsageError
from quintain.rollout.replay import Moment, replay_actions
from quintain.rollout.views import EnvironmentReader, View
from quintain.types import Action, ToolCall, Trajectory, as_content

MOST = 8
"""Episodes that are open at once; of more, the one that was asked least lately is closed."""
WORLDS = ("environment", "eval_environment")


class Replay:
    """One episode in its world: ``Replay(trajectory, "guess")``."""

    def __init__(self, trajectory: Trajectory, spec: str) -> None:
        """Build the world.

        Raises:
            QuintainError: it cannot be built.
        """
        self.trajectory, self.spec = trajectory, spec
        self._environment: Environment | None = None
        self._views: tuple[View, ...] = ()
        self._is_shared = False
        """Whether several seats act at once."""
        self._said: list[dict[str, Any]] = []
        self.mutex = threading.Lock()

    def go(self, turn: int) -> dict[str, Any]:
        """Return the world as it is before `turn`, reached by carrying out the recorded actions anew."""
        if not 0 <= turn <= len(self.trajectory.turns):
            raise UsageError(f"turn: got {turn}; the episode has {len(self.trajectory.turns)}")
        self.close()
        self._said = []
        with blame(self.spec):
            self._environment = find_or_blame(self.spec)()
            looks = EnvironmentReader(has_state_keys=False)
            found = self._reach(looks, self._environment, turn)
        return found

    def _reach(self, looks: EnvironmentReader, environment: Environment, turn: int) -> dict[str, Any]:
        turns = self.trajectory.turns
        last: Moment | None = None
        for last in replay_actions(looks, environment, self.trajectory):
            if last.number == turn:
                self._views, self._is_shared = (last.view,), last.is_shared
                return self._show(turn, is_over=False)
        self._views, self._is_shared = (), last is not None and last.is_shared
        if last is not None and not last.is_shared and not turns[-1].is_internal:
            self._views = looks.act(environment, {last.view.seat: turns[-1].action}).views
        return self._show(turn, is_over=not self._views)

    def act(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an action of a person's own, and return what the world shows then.

        Raises:
            UsageError: the episode is over, or several act at once. EnvironmentFault: the world is at fault.
        """
        environment = self._environment
        views: tuple[View, ...] = self._views
        if environment is None or len(views) < 1:
            raise UsageError("acting: got an episode that is over; go back to an earlier turn")
        if self._is_shared or len(views) > 1:
            raise UsageError("acting: got a moment at which several seats act at once; go to another turn")
        (view,) = views
        name, text = body.get("tool"), str(body.get("text", ""))
        given = body.get("arguments")
        arguments: Mapping[str, Any] = given if isinstance(given, dict) else {}
        calls = (ToolCall(name=str(name), arguments=arguments),) if name else ()
        with blame(self.spec):
            looks = EnvironmentReader(has_state_keys=False)
            answer = looks.act(environment, {view.seat: Action(text=text, tool_calls=calls)})
        result = answer.result
        self._views = answer.views
        self._said.append(
            {
                "seat": view.seat,
                "text": text,
                "calls": [{"name": str(name), "arguments": dict(arguments)}] if name else [],
                "reward": result.reward,
                "rewards": dict(result.rewards),
                "is_valid": result.is_valid,
                "observation": parts_of(as_content(result.observation)),
                "is_over": result.is_over,
                "is_success": result.is_success,
            }
        )
        if result.is_over:
            self._views = ()
        return self._show(None, is_over=not self._views)

    def close(self) -> None:
        """Close the world."""
        environment, self._environment, self._views = self._environment, None, ()
        if environment is not None:
            with suppress(QuintainError), blame(self.spec):
                environment.close()

    def _show(self, turn: int | None, *, is_over: bool) -> dict[str, Any]:
        environment = self._environment
        assert environment is not None, "it was built before"
        view = self._views[0] if self._views else None
        legal = view.legal_actions if view is not None else ()
        return {
            "turn": turn,
            "num_turns": len(self.trajectory.turns),
            "is_over": is_over,
            "is_shared": self._is_shared,
            "seat": "" if view is None else view.seat,
            "observation": [] if view is None else parts_of(as_content(view.observation)),
            "legal": list(legal or (environment.legal_actions() if isinstance(environment, Legal) and view else ())),
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
                for tool in environment.tools()
            ],
            "said": self._said,
        }  # fmt: skip


class Replays:
    """The episodes that pages have open."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._known: dict[str, Replay] = {}
        self._mutex = threading.Lock()

    def begin(self, run: str, episode: str) -> dict[str, Any]:
        """Open an episode in its world and return its session, before the first turn.

        Raises:
            ConfigError: the run is somebody else's, and its world is code. QuintainError: the world cannot be built, or
            shows something else than it did.
        """
        viewed = self._viewer.get(run)
        trajectory = viewed.run.episode(episode)
        admitted = admit(viewed.run, is_trusted=self._viewer.is_trusted, to="replaying", fields=WORLDS)
        own = admitted.get("eval_environment") if trajectory.task.split == "eval" else None
        replay = Replay(trajectory, str(own or admitted.get("environment") or trajectory.task.environment))
        session = secrets.token_urlsafe(9)
        found = {"session": session, **replay.go(0)}
        with self._mutex:
            self._known[session] = replay
            late = [self._known.pop(name) for name in list(self._known)[:-MOST]]
        for each in late:
            with each.mutex:
                each.close()
        return found

    def go(self, session: str, turn: int) -> dict[str, Any]:
        """Return the world of `session` before `turn`."""
        replay = self._get(session)
        with replay.mutex:
            return replay.go(turn)

    def act(self, session: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an action in `session`."""
        replay = self._get(session)
        with replay.mutex:
            return replay.act(body)

    def close(self) -> None:
        """Close all of them."""
        with self._mutex:
            known, self._known = self._known, {}
        for each in known.values():
            with each.mutex:
                each.close()

    def _get(self, session: str) -> Replay:
        with self._mutex:
            found = self._known.pop(session, None)
            if found is None:
                raise UsageError("replay: got one that is closed; open the episode again")
            self._known[session] = found  # asked last
            return found
