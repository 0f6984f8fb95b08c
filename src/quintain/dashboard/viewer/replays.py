"""Episodes that are stepped through in their world, and taken over from any turn, while a viewer is open.

The world is built as the run's configuration names it, behind the door of `quintain.config.trust`, and the recorded
actions are carried out again; it must show what was recorded. From any turn a person may go on with actions of their
own, and a checkpoint of this run or of another may, in turns. Nothing of that is recorded.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from quintain.agents.catalog import AUTO, build, is_outside
from quintain.config.trust import admit
from quintain.dashboard.viewer.tokens import parts_of
from quintain.dashboard.viewer.viewed import Viewer, find_agent
from quintain.environments.boundary import blame
from quintain.environments.protocol import Environment, Legal
from quintain.environments.smoke_test import find_or_blame
from quintain.errors import QuintainError, UsageError
from quintain.rollout.replay import Moment, replay_actions
from quintain.rollout.views import EnvironmentReader, View
from quintain.search.agent import ends_solved
from quintain.store import Run
from quintain.store.names import split_step
from quintain.types import Action, Failure, StepResult, ToolCall, Trajectory, as_content

if TYPE_CHECKING:
    from quintain.runs.continuation import Successor

MOST = 8
"""Episodes that are open at once; of more, the one that was asked least lately is closed."""
MOST_LOADED, MOST_TURNS = 2, 1_000
"""Policies that stay loaded, and turns that one may act for at once."""
WORLDS = ("environment", "eval_environment")


class Replay:
    """One episode in its world: ``Replay(trajectory, "guess")``."""

    def __init__(
        self,
        trajectory: Trajectory,
        spec: str,
        equip: Callable[[Environment], Environment] = lambda made: made,
    ) -> None:
        """Step through `trajectory` in the world `spec`, as `equip` prepares it for who acted in it."""
        self.trajectory, self.spec, self._equip = trajectory, spec, equip
        self._environment: Environment | None = None
        self._views: tuple[View, ...] = ()
        self._is_shared = False
        """Whether several seats act at once."""
        self._said: list[dict[str, Any]] = []
        self._turn = 0
        self._own: list[Action] = []
        """what was done after that turn, by whomever"""
        self._num_continued = 0
        self.mutex = threading.Lock()

    @property
    def environment(self) -> Environment:
        """The world, once it was gone to."""
        assert self._environment is not None, "the world is built by `go`"
        return self._environment

    def go(self, turn: int) -> dict[str, Any]:
        """Return the world as it is before `turn`, reached by carrying out the recorded actions anew."""
        if not 0 <= turn <= len(self.trajectory.turns):
            raise UsageError(f"turn: got {turn}; the episode has {len(self.trajectory.turns)}")
        self.close()
        self._said, self._own, self._turn = [], [], turn
        with blame(self.spec):
            self._environment = self._equip(find_or_blame(self.spec)())
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
        name, text = body.get("tool"), str(body.get("text", ""))
        given = body.get("arguments")
        arguments: Mapping[str, Any] = given if isinstance(given, dict) else {}
        calls = (ToolCall(name=str(name), arguments=arguments),) if name else ()
        return self.do(Action(text=text, tool_calls=calls))

    def do(self, action: Action) -> dict[str, Any]:
        """Carry out `action`; see `act`."""
        view = self._require_view("acting")
        result = self._carry_out(view, action)
        paid = sum(turn.reward for turn in self.trajectory.turns[: self._turn]) + result.reward
        paid += sum(each["reward"] for each in self._said)
        self._said.append(
            {
                **_tell("you", view.seat, action, result.reward, result.rewards, is_valid=result.is_valid),
                "observation": parts_of(as_content(result.observation)),
                "is_over": not self._views,
                "is_success": ends_solved(result, paid),
            }
        )
        return self._show(None, is_over=not self._views)

    def go_on(self, successor: Successor, name: str, turns: int) -> dict[str, Any]:
        """Let the policy `name` act for so many `turns`, 0: to the end; return what the world shows then.

        Raises:
            UsageError: the episode is over, several act at once, or it failed. EnvironmentFault: the world is at fault.
        """
        view = self._require_view("going on")
        self._num_continued += 1
        played, first = successor.go_on(
            self.trajectory, self._turn, self._own, turns=turns, seed=self._num_continued
        )
        if isinstance(played.outcome, Failure):
            failure = played.outcome
            raise UsageError(
                f"going on with {name}: got a failure of the {failure.owner} ({failure.kind}): {failure.message}"
            )
        shown = [*(turn.observation for turn in played.turns[1:]), played.final_observation]
        for number in range(first, len(played.turns)):
            turn, is_last = played.turns[number], number == len(played.turns) - 1
            result = None if turn.is_internal else self._carry_out(view, turn.action)
            view = self._views[0] if self._views else view
            told = _tell(name, turn.seat, turn.action, turn.reward, turn.rewards, is_valid=turn.is_valid)
            self._said.append(
                {
                    **told,
                    "sampled": successor.decode(turn.completion.token_ids),
                    "observation": [] if result is None else parts_of(shown[number]),
                    "is_over": is_last and not self._views,
                    "is_success": played.is_success if is_last else None,
                }
            )
        return {**self._show(None, is_over=not self._views), "keeps_tokens": successor.keeps_tokens}

    def _require_view(self, asked: str) -> View:
        """Return what the one seat that acts next is shown.

        Raises:
            UsageError: the episode is over, or several act at once.
        """
        views: tuple[View, ...] = self._views
        if self._environment is None or len(views) < 1:
            raise UsageError(f"{asked}: got an episode that is over; go back to an earlier turn")
        if self._is_shared or len(views) > 1:
            raise UsageError(f"{asked}: got a moment at which several seats act at once; go to another turn")
        return views[0]

    def _carry_out(self, view: View, action: Action) -> StepResult:
        """Let the seat of `view` do `action`."""
        with blame(self.spec):
            answer = EnvironmentReader(has_state_keys=False).act(self.environment, {view.seat: action})
        self._own.append(action)
        before = sum(not turn.is_internal for turn in self.trajectory.turns[: self._turn])
        is_over = answer.result.is_over or before + len(self._own) >= self.environment.max_turns
        self._views = () if is_over else answer.views
        return answer.result

    def close(self) -> None:
        """Close the world."""
        environment, self._environment, self._views = self._environment, None, ()
        if environment is not None:
            with suppress(QuintainError), blame(self.spec):
                environment.close()

    def _show(self, turn: int | None, *, is_over: bool) -> dict[str, Any]:
        environment = self.environment
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


def _tell(
    who: str, seat: str, action: Action, reward: float, rewards: Mapping[str, float], *, is_valid: bool
) -> dict[str, Any]:
    """Return who did what, and what it paid."""
    return {
        "who": who,
        "seat": seat,
        "text": action.text,
        "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in action.tool_calls],
        "reward": reward,
        "rewards": dict(rewards),
        "is_valid": is_valid,
    }


def find_equipment(run: Run, *, is_trusted: bool) -> Callable[[Environment], Environment]:
    """Return how the harness of `run` prepares an environment, such as a search that walks in it.

    As it is where the harness is the usual one, lives outside, or is somebody else's code and not to be trusted.
    """
    agent = find_agent(run, is_trusted=is_trusted)
    if agent == AUTO or is_outside(agent):
        return lambda made: made
    from quintain.agents.protocol import equip  # these load torch
    from quintain.text.chat import Chat
    from quintain.warm_start.demonstrations import tokenizer_of

    def prepare(made: Environment) -> Environment:
        return equip(build(agent, Chat(tokenizer_of(run.folder)), made, temperature=1.0), made)

    return prepare


def open_replay(run: Run, trajectory: Trajectory, *, is_trusted: bool) -> Replay:
    """Return an episode of `run` in the world that it was played in, which is built when it is gone to.

    Raises:
        ConfigError: the run is somebody else's, and its world is code.
    """
    admitted = admit(run, is_trusted=is_trusted, to="replaying", fields=WORLDS)
    own = admitted.get("eval_environment") if trajectory.task.split == "eval" else None
    world = str(own or admitted.get("environment") or trajectory.task.environment)
    return Replay(trajectory, world, find_equipment(run, is_trusted=is_trusted))


def find_successor(run: Run, world: str, target: str, *, is_trusted: bool) -> Successor:
    """Return who goes on with episodes of `run` in `world`: the policy `target`, through the harness of its own run.

    Raises:
        ConfigError: a run is somebody else's, and its harness is code. QuintainError: there is no such policy.
    """
    from quintain.runs.continuation import Successor  # these load torch
    from quintain.warm_start.demonstrations import harness_of

    heat = run.config.get("temperature")
    return Successor(
        run,
        world=world,
        target=target,
        agent=harness_of(split_step(target)[0], is_trusted=is_trusted),
        own_agent=harness_of(run.folder, is_trusted=is_trusted),
        temperature=float(heat) if isinstance(heat, int | float) else 1.0,
    )


class Replays:
    """The episodes that pages have open."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._known: dict[str, Replay] = {}
        self._runs: dict[str, str] = {}
        """session → name of its run"""
        self._successors: dict[tuple[str, str, str], Successor] = {}
        self._mutex, self._loading = threading.Lock(), threading.Lock()

    def begin(self, run: str, episode: str) -> dict[str, Any]:
        """Open an episode in its world and return its session, before the first turn.

        Raises:
            ConfigError: the run is somebody else's, and its world is code. QuintainError: the world cannot be built, or
            shows something else than it did.
        """
        viewed = self._viewer.get(run)
        trajectory = viewed.run.episode(episode)
        replay = open_replay(viewed.run, trajectory, is_trusted=self._viewer.is_trusted)
        session = secrets.token_urlsafe(9)
        found = {"session": session, **replay.go(0)}
        with self._mutex:
            self._known[session], self._runs[session] = replay, run
            late = [(self._known.pop(name), self._runs.pop(name))[0] for name in list(self._known)[:-MOST]]
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

    def go_on(self, session: str, policy: str, turns: int) -> dict[str, Any]:
        """Let `policy`, a run of this viewer or a step of one (``RUN@75``), act in `session` for so many `turns`.

        Raises:
            ConfigError: the run of the policy is somebody else's, and its harness is code. QuintainError: there is no
            such policy, or it cannot go on.
        """
        if not 0 <= turns <= MOST_TURNS:
            raise UsageError(f"turns: got {turns}; give 0 (to the end) to {MOST_TURNS}")
        replay = self._get(session)
        with replay.mutex, self._loading:
            return replay.go_on(self._find_successor(self._runs[session], replay.spec, policy), policy, turns)

    def _find_successor(self, run: str, world: str, policy: str) -> Successor:
        """Return who goes on in `world` as `policy`; those that were asked last stay loaded."""
        key = run, world, policy
        found = self._successors.pop(key, None)
        if found is None:
            base, mark = policy, ""
            if "@" in policy and not any(info.name == policy for info in self._viewer.list_runs()):
                base, _, mark = policy.rpartition("@")
            folder = self._viewer.get(base).folder
            found = find_successor(
                self._viewer.get(run).run,
                world,
                f"{folder}@{mark}" if mark else str(folder),
                is_trusted=self._viewer.is_trusted,
            )
        self._successors[key] = found  # asked last
        for late in list(self._successors)[:-MOST_LOADED]:
            self._successors.pop(late).close()
        return found

    def close(self) -> None:
        """Close all of them."""
        with self._mutex:
            known, self._known = self._known, {}
        with self._loading:
            for successor in self._successors.values():
                successor.close()
            self._successors.clear()
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
