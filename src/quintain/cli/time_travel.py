"""``quintain verify RUN``: steps of a run are made again from its journal."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from quintain.cli.arguments import TRUST, Parser, resolve_folder, whole_number
from quintain.errors import QuintainError
from quintain.types.terminal import write_line

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
