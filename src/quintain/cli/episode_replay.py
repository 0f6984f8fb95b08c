"""``quintain replay RUN --episode ID``: an episode in its environment, which you or a policy may go on with."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import resolve_folder, resolve_model, whole_number
from quintain.cli.playing import HELP, ask, offer, read
from quintain.errors import UsageError
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.dashboard.viewer.replays import Replay
    from quintain.store import Run

SHOWN = 5
"""Episodes that are named where another was asked for."""


def replay_episode(arguments: Namespace, ask: Callable[[], str | None] = ask) -> int:
    """Carry out the recorded actions again up to a turn, and go on from there as is asked for; nothing is recorded.

    Raises:
        UsageError: there is no such episode or turn. EnvironmentFault: the episode does not repeat.
    """
    from quintain.dashboard.viewer.replays import find_successor, open_replay
    from quintain.store import Run

    turns = whole_number(arguments.turns, "--turns")
    goes_on = arguments.policy is not None or arguments.take_over
    with Run.open(resolve_folder(arguments.run, arguments.runs), writable=False) as run:
        trajectory = run.episode(find_episode(run, arguments.episode))
        last = 0 if goes_on else len(trajectory.turns)
        turn = last if arguments.turn is None else whole_number(arguments.turn, "--turn", least=1) - 1
        replay = open_replay(run, trajectory, is_trusted=arguments.trust_run)
        try:
            state = replay.go(turn)
            for number in range(turn):
                _print_recorded(replay, number)
            write_line(_texts(state["observation"]) or _texts_of(trajectory.final_observation))
            if arguments.policy is not None:
                target = resolve_model(arguments.policy, arguments.runs)
                successor = find_successor(run, replay.spec, target, is_trusted=arguments.trust_run)
                try:
                    state = replay.go_on(successor, arguments.policy, turns)
                finally:
                    successor.close()
                if not successor.keeps_tokens:
                    write_line(
                        "(another tokenizer or harness: what was done before was written anew in its form)"
                    )
                for said in state["said"]:
                    _print_said(said)
            if arguments.take_over:
                take_over(replay, state, ask)
        finally:
            replay.close()
    return 0


def find_episode(run: Run, beginning: str) -> str:
    """Return the id of the episode of `run` that begins so.

    Raises:
        UsageError: there is none, or several.
    """
    rows, last = list[Sequence[Any]](), 0
    superseded = set(run.read_superseded())
    while found := run.read_facts(last, 5_000):
        last = found[-1][0]
        rows += [row for row in found if row[0] not in superseded and type(row[1]) is bytes]
    ids = [row[1].hex() for row in rows]
    fits = [each for each in ids if each.startswith(beginning)] if beginning else []
    if len(fits) != 1:
        newest = ", ".join(f"{row[1].hex()} ({row[8]})" for row in rows[: -SHOWN - 1 : -1])
        raise UsageError(
            f"--episode: got {beginning!r:.60}, with which {len(fits)} of {len(ids)} ids begin; the newest are {newest}"
        )
    return fits[0]


def take_over(replay: Replay, state: dict[str, Any], ask: Callable[[], str | None]) -> None:
    """Let a person act until the episode is over, or they leave."""
    write_line(f"({HELP})")
    while not state["is_over"]:
        offer(replay.environment)
        line = ask()
        if line is None:
            return
        try:
            action = read(replay.environment, line)
        except UsageError as error:
            write_line(error)
            continue
        state = replay.do(action)
        _print_said(state["said"][-1])


def _print_recorded(replay: Replay, number: int) -> None:
    """Print what a recorded turn was shown and did."""
    from quintain.agents.deliberation import describe_action

    turn = replay.trajectory.turns[number]
    paid = f", reward {turn.reward:g}" if turn.reward else ""
    write_line(
        f"{_texts_of(turn.observation)}\n[turn {number + 1}, {turn.seat}{paid}] {describe_action(turn.action)}\n"
    )


def _print_said(said: dict[str, Any]) -> None:
    """Print what somebody did who went on, and what came of it."""
    done = (
        said.get("sampled")
        or said["text"]
        or ", ".join(f"{c['name']}{c['arguments']}" for c in said["calls"])
    )
    end = "" if not said["is_over"] else ", solved" if said["is_success"] else ", not solved"
    write_line(f"[{said['who']}, reward {said['reward']:g}{end}] {done}\n{_texts(said['observation'])}")


def _texts(parts: Sequence[dict[str, Any]]) -> str:
    return "\n".join(part.get("text") or f"[{part['kind']}]" for part in parts)


def _texts_of(observation: Sequence[Any]) -> str:
    from quintain.dashboard.viewer.tokens import parts_of

    return _texts(parts_of(observation))
