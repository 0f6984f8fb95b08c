"""``quintain verify``, ``replay`` and ``bisect``: steps and episodes of a run are made again from its journal."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from quintain.cli.arguments import TRUST, Parser, resolve_folder, whole_number
from quintain.cli.tables import show
from quintain.errors import QuintainError, UsageError
from quintain.types.terminal import write_command, write_line

ROOT_HELP = "folder that holds the runs (default runs)"


def verify(argv: Sequence[str]) -> int:
    """Make steps of a run again and compare; return 1 where one does not follow."""
    parser = Parser(
        "verify",
        "Make the steps of a run again from its recorded episodes and compare; names the first that does not follow "
        "from the one before it (exit 1). The run is only read.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    parser.flag("--step", "verify this step alone, from the newest checkpoint before it", "N")
    parser.flag("--from", "verify the steps from this one on (default: all, from the start)", "N")
    parser.switch("--resample", "sample the episodes again, too, and compare their tokens")
    parser.flag("--runs", ROOT_HELP, "ROOT", "runs")
    parser.switch("--trust-run", TRUST)
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    since = vars(arguments)["from"]
    folder = resolve_folder(arguments.run, arguments.runs)

    from quintain import api as launch

    found = launch.verify(
        folder,
        step=None if arguments.step is None else whole_number(arguments.step, "--step", least=1),
        since=None if since is None else whole_number(since, "--from", least=1),
        resample=arguments.resample,
        trust_run=arguments.trust_run,
    )
    write_line(json.dumps({**asdict(found), "follows": found.follows}, indent=2) if arguments.json else found)
    return 0 if found.follows else QuintainError.exit_code


def replay(argv: Sequence[str]) -> int:
    """Make a step of a run again and show what it was made of, return 1 where it does not follow; or an episode."""
    parser = Parser(
        "replay",
        "Make a step of a run again from its recorded episodes: its groups with rewards, advantages and gradients, and "
        "a run that stands before and after it. Or an episode, in its environment, to go on from any of its turns.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    parser.flag("--step", "the step", "N")
    parser.flag(
        "--out",
        "new folder: a run that goes on after the step, with the checkpoint before it as well",
        "FOLDER",
    )
    parser.flag("--episode", "an episode instead: its id, or how that begins", "ID")
    parser.flag(
        "--turn", "turn before which it stops (default: after the last; with --policy the first)", "N"
    )
    parser.flag("--policy", "run, or step of one, that goes on from there", "RUN[@STEP]")
    parser.flag("--turns", "turns that it goes on for (default 0: to the end)", "N", "0")
    parser.switch("--take-over", "go on from there yourself, as in quintain play")
    parser.flag("--runs", ROOT_HELP, "ROOT", "runs")
    parser.switch("--trust-run", TRUST)
    parser.switch("--json", "print JSON, with the metrics of the step")
    arguments = parser.read(argv)
    if (arguments.step is None) == (arguments.episode is None):
        raise UsageError(
            "quintain replay needs --step or --episode: got both or neither; name the one that is to be made again"
        )
    if arguments.episode is not None:
        from quintain.cli.episode_replay import replay_episode

        if arguments.out is not None or arguments.json:
            raise UsageError("--out, --json: got an episode, of which there is neither; name a step")
        return replay_episode(arguments)
    if arguments.turn is not None or arguments.policy is not None or arguments.take_over:
        raise UsageError("--turn, --policy, --take-over: got a step; name an episode to go on with")
    step = whole_number(arguments.step, "--step", least=1)
    folder = resolve_folder(arguments.run, arguments.runs)
    out = None if arguments.out is None else Path(arguments.out)

    from quintain import api as launch

    found = launch.replay(folder, step=step, out=out, trust_run=arguments.trust_run)
    status = QuintainError.exit_code if found.difference else 0
    if arguments.json:
        write_line(json.dumps(asdict(found), indent=2, default=str))
        return status

    from quintain.time_travel.replay import COLUMNS, list_rows

    begun = "the start" if found.base is None else f"the checkpoint of step {found.base}"
    weights = " → ".join("unnamed" if each is None else each[:12] for each in found.weights)
    write_line(f"{found.run}, step {step}, from {begun}; weights {weights}")
    show(COLUMNS, list_rows(found))
    names = ("train/loss", "train/grad_norm", "train/success", "train/reward")
    told = [f"{name} {value:.4g}" for name in names if (value := found.metrics.get(name)) is not None]
    write_line(", ".join(told))
    if found.difference:
        write_line(f"it does not follow: {found.difference.what}: {found.difference.text}")
    if out is not None:
        go_on = write_command("quintain", "resume", out)
        write_line(f"before: {out}@{step - 1}   after: {out}@{step}   go on: {go_on}")
    return status


def bisect(argv: Sequence[str]) -> int:
    """Find where a metric of a run falls, and by which groups."""
    parser = Parser(
        "bisect",
        "Find where a metric of a run falls for good, and by which groups of episodes: the updates before it are made "
        "again without each of them, and what comes of it plays the same held-out tasks.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    parser.flag(
        "--metric",
        "success or return; train/success, train/return of training (default success)",
        "M",
        "success",
    )
    parser.flag("--steps", "updates to look at, in place of those before the fall", "FIRST:LAST")
    parser.flag(
        "--most", "groups that are left out one at a time; of more, whole steps first (default 24)", "N", "24"
    )
    parser.flag("--controls", "random sets of episodes that are left out as controls (default 4)", "N", "4")
    parser.flag("--episodes", "held-out tasks that each result plays (default 128)", "N", "128")
    parser.flag("--seed", "seed of what it plays (default 0)", "N", "0")
    parser.flag("--runs", ROOT_HELP, "ROOT", "runs")
    parser.switch("--trust-run", TRUST)
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    steps = None
    if arguments.steps is not None:
        first, mark, last = str(arguments.steps).partition(":")
        steps = tuple(whole_number(each, "--steps", least=1) for each in (first, last if mark else first))
    folder = resolve_folder(arguments.run, arguments.runs)

    from quintain import api as launch

    found = launch.bisect(
        folder,
        metric=arguments.metric,
        steps=None if steps is None else (steps[0], steps[1]),
        most=whole_number(arguments.most, "--most", least=1),
        controls=whole_number(arguments.controls, "--controls", least=1),
        episodes=whole_number(arguments.episodes, "--episodes", least=1),
        seed=whole_number(arguments.seed, "--seed"),
        trust_run=arguments.trust_run,
    )
    if arguments.json:
        write_line(json.dumps({**asdict(found), "noise": found.noise}, indent=2))
        return 0

    from quintain.time_travel.bisect import COLUMNS, list_rows

    show(COLUMNS, list_rows(found))
    write_line(found)
    return 0
