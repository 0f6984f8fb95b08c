"""``quintain bench worlds``: how much of each world's expert a small model learns by imitation.

Every result is written as soon as its last seed is there. A number is stored with the command that made it.
"""

import datetime
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import Parser, whole_number
from quintain.cli.tables import show
from quintain.errors import UsageError, suggestion
from quintain_evidence.cli.methods import results_of
from quintain_evidence.layers.records import RESULTS
from quintain_evidence.sweep import overrides, store, workers

if TYPE_CHECKING:
    from quintain_evidence.world_trials import Imitated, World

COLUMNS = ("world", "share of the expert's success", "imitator", "expert", "parameters", "minutes")


def worlds(argv: Sequence[str]) -> int:
    """Imitate the experts of the embedded worlds."""
    parser = Parser("bench worlds", "Imitate the expert of each world from nothing, over seeds.")
    parser.flag("--only", "worlds (or harnesses), separated by commas (default: all)", "NAMES")
    parser.switch("--agents", "imitate through every harness, in a small world, instead of in every world")
    parser.flag("--seeds", "seeds of each (default 3)", "N", "3")
    parser.flag("--jobs", "processes that train side by side, one thread each (default 1)", "N", "1")
    parser.flag("--runs", "folder that holds the runs (default runs/worlds, or runs/agents)", "ROOT")
    parser.flag("--output", "file of results (default: worlds.json of the package, or agents.json)", "FILE")
    parser.flag("--set", "settings over those of the benchmark, as JSON", "JSON", "{}")
    parser.flag("--page", "run nothing; write the stored results into this page, between its marks", "FILE")
    parser.switch("--json", "print the results as JSON")
    arguments = parser.read(argv)
    chosen = named(arguments.only, through_agents=arguments.agents)
    seeds = range(whole_number(arguments.seeds, "--seeds", least=1))
    jobs = whole_number(arguments.jobs, "--jobs", least=1)
    kind = "agents" if arguments.agents else "worlds"
    if arguments.page is not None:
        return page(Path(arguments.output or RESULTS / f"{kind}.json"), Path(arguments.page))
    output = Path(arguments.output or results_of(None) / f"{kind}.json")
    settings, root = overrides(arguments.set), Path(arguments.runs or f"runs/{kind}")
    root.mkdir(parents=True, exist_ok=True)

    from quintain_evidence.world_trials import check_same, row

    found: dict[str, dict[int, Imitated]] = {world.name: {} for world in chosen}
    rows: dict[str, dict[str, Any]] = {}
    started = time.monotonic()
    wanted = [(world, seed) for world in chosen for seed in seeds]
    for world, seed in wanted:
        check_same(world, seed, root, settings)
    for number, (world, seed, imitated) in enumerate(_imitated(wanted, jobs, root, settings), 1):
        found[world.name][seed] = imitated
        left = (time.monotonic() - started) / number * (len(wanted) - number) / 60
        print(
            f"{world.name} seed {seed}: {imitated.success:.3f} of {imitated.expert_success:.3f}   "
            f"{number}/{len(wanted)} done, about {left:.0f} min left",
            file=sys.stderr,
            flush=True,
        )
        if len(found[world.name]) == len(seeds):
            command = " ".join(["quintain bench worlds", *argv])
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            rows[world.name] = row(world, found[world.name], settings, command, today)
            store(output, world.name, rows[world.name])
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        show(
            COLUMNS,
            [cells(world.name, rows[world.name]) for world in chosen],
            f"{output}: 95 % intervals over seeds",
        )
    return 0


def page(results: Path, file: Path) -> int:
    """Write `results` into the page `file`."""
    from quintain_evidence.world_trials import with_table

    for path in (results, file):
        if not path.exists():
            raise UsageError(
                f"--page: got {path}, which is not there; run the benchmark first, or name another"
            )
    text = with_table(file.read_text(encoding="utf-8"), json.loads(results.read_text(encoding="utf-8")))
    file.write_text(text, encoding="utf-8")
    print(file)
    return 0


def named(only: str | None, *, through_agents: bool) -> "list[World]":
    """Return the worlds (or harnesses, `through_agents`) that `only` names, all of them without.

    Raises:
        UsageError: there is no such world.
    """
    from quintain_evidence.world_trials import HARNESSES, WORLDS

    known = {world.name: world for world in (HARNESSES if through_agents else WORLDS)}
    names = list(known) if only is None else [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"--only: got {name!r}; {suggestion(name, known)}")
    return [known[name] for name in names]


def _imitated(
    wanted: "Sequence[tuple[World, int]]", jobs: int, root: Path, settings: Mapping[str, Any]
) -> "Iterator[tuple[World, int, Imitated]]":
    """Yield (world, seed, result) as they are done."""
    from quintain_evidence.world_trials import imitate

    if jobs == 1:
        for world, seed in wanted:
            yield world, seed, imitate(world, seed, root, settings)
        return
    with workers(jobs) as pool:
        started: dict[Future[Imitated], tuple[World, int]] = {
            pool.submit(imitate, world, seed, root, settings): (world, seed) for world, seed in wanted
        }
        for future in as_completed(started):
            yield *started[future], future.result()


def cells(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return `row` as texts, one for each of `COLUMNS`."""
    share, runs = row["share"], row["by_seed"]
    mean = {key: sum(run[key] for run in runs) / len(runs) for key in ("success", "expert_success")}
    return (
        name,
        f"{share['mean']:.3f} [{share['low']:.3f}, {share['high']:.3f}]",
        f"{mean['success']:.3f}",
        f"{mean['expert_success']:.3f}",
        f"{runs[0]['parameters']:,}",
        f"{row['seconds'] / 60:.1f}",
    )
