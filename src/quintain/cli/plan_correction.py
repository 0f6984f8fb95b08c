"""``quintain play E --plans RUN``: a run plays, you correct its plans, and what comes of it is kept to learn from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.errors import UsageError
from quintain.types.terminal import write_command, write_line

if TYPE_CHECKING:
    from quintain.agents.plan import Plan
    from quintain.types import Trajectory

HELP = (
    "an empty line keeps the plan; change 2: STEP, drop 2, done 1, add: STEP edit it, several with ; between them; "
    "1. STEP; 2. STEP writes it anew; quit leaves"
)


class LeftEarly(Exception):
    """The person left before the episode was over."""


def correct_in_terminal(
    environment: str,
    run: str,
    out: Path | None,
    ask: Callable[[], str | None],
    *,
    runs: str,
    episodes: int,
    seed: int,
    is_trusted: bool,
) -> int:
    """Let the run play `episodes` with plans that are corrected in the terminal, and keep them in the new run `out`.

    Raises:
        UsageError: the run's harness has no plans, or there is a folder of that name.
    """
    from quintain.agents.corrected_plans import tell_turns
    from quintain.cli.arguments import resolve_model
    from quintain.environments.catalog import find
    from quintain.runs.plan_correction import play_plans
    from quintain.warm_start.demonstrations import write_run

    if out is not None and (out.exists() or out.suffix):
        raise UsageError(f"--record: got {str(out)!r}; with --plans give a new folder, which becomes a run")
    kept: list[Trajectory] = []
    target = resolve_model(run, runs)
    tokenizer, found = play_plans(
        environment, target, ask_plan(ask), episodes=episodes, seed=seed, is_trusted=is_trusted
    )
    write_line(f"({HELP})")
    with closing(found) as played:
        try:
            for trajectory in played:
                kept.append(trajectory)
                write_line("\n".join(tell_turns(trajectory)))
                write_line(f"{'solved' if trajectory.is_success else 'not solved'}: {trajectory.task.id}\n")
        except LeftEarly:
            lost = "" if out is None else "; the episode at hand is not kept"
            write_line(f"left after {len(kept)} episodes{lost}")
    if out is None or not kept:
        return 0
    settings = {"environment": environment, "agent": run, "seed": seed, "split": "train"}
    write_run(kept, tokenizer, out, settings, make_environment=find(environment))
    solved = sum(bool(trajectory.is_success) for trajectory in kept)
    train = write_command("quintain", "train", "sft", "--model", run, "--demonstrations", out)
    write_line(f"{out}: {len(kept)} episodes, {solved} solved, which are what is learned from: {train}")
    return 0


def ask_plan(ask: Callable[[], str | None]) -> Callable[[str, Plan, str], str]:
    """Return what shows a plan and asks `ask` for its correction; None leaves."""

    def correct(shown: str, plan: Plan, problem: str) -> str:
        write_line(problem or f"\n{shown}\n\n{plan.text or '(no plan)'}")
        line = ask()
        if line is None:
            raise LeftEarly
        return line.replace(";", "\n")

    return correct
