"""``quintain eval``, ``quintain compare`` and ``quintain collect``."""

import json
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import (
    ACCEPT,
    TRUST,
    Parser,
    one_of,
    positive,
    refuse_unknown,
    resolve_folder,
    resolve_model,
    whole_number,
)
from quintain.cli.tables import show
from quintain.errors import DataError, UsageError
from quintain.safety.guard import REFUSED
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.eval.compare import Comparison
    from quintain.eval.report import Report
    from quintain.types import Task, Trajectory

RUNS = "runs"
GUARD_HELP = "policy that says which tool calls are carried out (docs/guards.md)"


def evaluate(argv: Sequence[str]) -> int:
    """Measure models, runs or scripts on held-out tasks."""
    parser = Parser(
        "eval",
        "Measure models or runs on held-out tasks, one episode each; several are compared, paired by task.",
    )
    parser.add_argument(
        "targets",
        metavar="MODEL|RUN",
        nargs="+",
        help="model folder, hub id, run folder or name of a run, of a step that is kept: RUN@best, RUN@75; or expert, "
        "random, search?nodes=1000, http://…/v1?model=NAME. The first of several is the baseline",
    )
    parser.add_argument(
        "--environment",
        metavar="E",
        action="append",
        help="environment; a run knows its own. Given several times, each is played, and all are told together",
    )
    parser.flags.append("--environment")
    parser.flag("--page", "of several environments: page to write, in Markdown", "FILE.md")
    parser.flag(
        "--tasks", "file whose held-out tasks are played instead of its own (docs/your-agent.md)", "FILE"
    )
    parser.flag("--guard", GUARD_HELP, "POLICY.json")
    parser.flag("--agent", "harness that it acts through; a run knows its own", "AGENT", "")
    parser.flag("--episodes", "held-out tasks (default 256)", "N", "256")
    parser.flag("--trials", "episodes of each task (default 1): pass@1…K and pass^1…K", "K", "1")
    parser.flag(
        "--attempts", "attempts at a task that is not solved (default 1), and success by round", "N", "1"
    )
    add_attempts(parser)
    parser.flag(
        "--cluster",
        "what belongs together, for the interval: task (default with --trials), environment, or a key of tasks' data",
        "KEY",
        "",
    )
    parser.flag("--out", "new folder that keeps the episodes; the same command goes on in it", "FOLDER")
    parser.flag("--seed", "seed of the sampling (default 0); the tasks are always the same", "N", "0")
    parser.flag("--temperature", "sampling temperature, 0 for greedy (default 1.0)", "X", "1.0")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", RUNS)
    parser.switch(
        "--hallucination", "score replies where the expert calls no tool: do they call one? (1: none does)"
    )
    parser.switch("--faults", "count wrong calls by kind, and values in them that nobody said")
    parser.switch("--trust-run", TRUST)
    parser.switch("--accept-changes", ACCEPT)
    parser.switch("--json", "print JSON, with every task and what became of its episodes")
    arguments = parser.read(argv)
    counts = {
        name: whole_number(getattr(arguments, name), f"--{name}", least=1)
        for name in ("episodes", "trials", "attempts")
    }
    seed = whole_number(arguments.seed, "--seed")
    temperature = positive(arguments.temperature, "--temperature")
    if repeated := [name for name in arguments.targets if arguments.targets.count(name) > 1]:
        raise UsageError(f"quintain eval: got {repeated[0]!r} twice; name different models")
    is_alone = len(arguments.targets) == 1
    for name in ("hallucination", "faults"):
        if getattr(arguments, name) and not is_alone:
            raise UsageError(f"--{name}: got several models; measure one after the other")
    from quintain.eval.compare import compare as compared
    from quintain.store.creation import is_run

    if arguments.out and not is_alone and is_run(Path(arguments.out)):
        raise UsageError(
            f"--out: got {arguments.out}, which holds one evaluation, not several; choose another name"
        )
    settings = {"seed": seed, "temperature": temperature, **counts}
    worlds: list[str] = arguments.environment or []
    if repeated := [world for world in worlds if worlds.count(world) > 1]:
        raise UsageError(f"--environment: got {repeated[0]!r} twice; name different environments")
    arguments.environment = worlds[0] if worlds else None
    if len(worlds) > 1:
        return _evaluate_all(worlds, arguments, settings)
    if arguments.page:
        raise UsageError(
            "--page: got one environment, of which no page is written; give --environment several times"
        )
    if not is_alone:
        _check_all(arguments, settings)
    episodes, reports = _play_all(arguments, settings)
    more = {**_hallucination(arguments, episodes), **_faults(arguments, episodes)}
    if len(reports) == 1:
        [report] = reports.values()
        print_evaluation(report, arguments.json, more)
    else:
        found = compared(episodes, cluster=arguments.cluster)
        print_several(found, reports, arguments.json)
    return 0


def add_attempts(parser: Parser) -> None:
    """Let `parser` read what attempts after the first are told, and when one ends (Reflexion)."""
    parser.switch("--reflect", "tell every attempt what was learned of the failed ones before it (Reflexion)")
    parser.switch("--show-attempt", "show every attempt the failed one before it")
    parser.switch("--show-errors", "tell every attempt which calls failed before, and why")
    parser.flag(
        "--max-repeats", "end an attempt whose action has the same reply more than N times in a row", "N"
    )


def read_attempts(arguments: Namespace) -> dict[str, Any]:
    """Return what `add_attempts` read."""
    most = arguments.max_repeats
    return {
        "reflect": arguments.reflect,
        "show_attempt": arguments.show_attempt,
        "show_errors": arguments.show_errors,
        "max_repeats": None if most is None else whole_number(most, "--max-repeats", least=1),
    }


def _play_all(
    arguments: Namespace, settings: Mapping[str, Any]
) -> tuple[dict[str, list["Trajectory"]], dict[str, "Report"]]:
    """Return the episodes of all targets in the environment that is asked for, and the report of each."""
    from quintain.eval.report import last_attempts, make_report

    reports: dict[str, Report] = {}
    episodes: dict[str, list[Trajectory]] = {}
    for name in arguments.targets:
        played = _play(name, arguments, settings)
        is_repeated = settings["attempts"] > 1
        episodes[name] = last_attempts(played) if is_repeated else played
        reports[name] = make_report(
            episodes[name],
            trials=settings["trials"],
            cluster=arguments.cluster,
            attempts=played if is_repeated else (),
        )
    return episodes, reports


def _evaluate_all(worlds: Sequence[str], arguments: Namespace, settings: Mapping[str, Any]) -> int:
    """Play every environment with every target, once all of them can be, and print them beside each other."""
    from quintain.cli.benchmarks import Benchmarks, print_benchmarks, write_page

    for flag in ("hallucination", "faults", "tasks"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag}: got several environments; measure one after the other")
    if arguments.page and Path(arguments.page).suffix != ".md":
        raise UsageError(f"--page: got {arguments.page!r}; give a file that ends with .md")
    out = arguments.out
    for is_played in (False, True):
        episodes: dict[str, dict[str, list[Trajectory]]] = {}
        reports: dict[str, dict[str, Report]] = {}
        for world in worlds:
            arguments.environment = world
            arguments.out = f"{out}/{name_place(world)}" if out else None
            if is_played:
                episodes[world], reports[world] = _play_all(arguments, settings)
            else:
                _check_all(arguments, settings)
    found = Benchmarks(episodes=episodes, reports=reports)
    if arguments.page:
        asked = [f"--environment '{world}'" if "&" in world else f"--environment {world}" for world in worlds]
        command = " ".join(["quintain eval", *arguments.targets, *asked, *_counts_asked(settings)])
        write_page(found, Path(arguments.page), command)
    print_benchmarks(found, is_json=arguments.json)
    return 0


def _counts_asked(settings: Mapping[str, Any]) -> list[str]:
    """Return the flags of `settings` as a command has them, those left out that are as always."""
    usual = {"episodes": 256, "trials": 1, "attempts": 1, "seed": 0, "temperature": 1.0}
    return [f"--{name} {settings[name]:g}" for name in usual if settings[name] != usual[name]]


def name_place(text: str) -> str:
    """Return `text` as the name of a folder."""
    return re.sub(r"[^\w.@-]+", "_", text.strip("/"))


def _check_all(arguments: Namespace, settings: Mapping[str, Any]) -> None:
    """Refuse what cannot be played or compared before anything is, lest the first of several play in vain."""
    from quintain import api as launch
    from quintain.eval.compare import check_shared

    found: dict[str, Sequence[Task]] = {}
    for name in arguments.targets:
        found[name] = _ask(launch.check_evaluation, name, arguments, settings)
    if arguments.cluster:
        check_shared(found, arguments.cluster)


def _play(name: str, arguments: Namespace, settings: Mapping[str, Any]) -> list["Trajectory"]:
    """Return the episodes of the model or run that is called `name`."""
    from quintain import api as launch
    from quintain.runs.evaluation import is_script

    target = name if is_script(name) else resolve_model(name, arguments.runs)
    world = _find_world(target, arguments)
    if world and not is_script(name) and (note := other_world(target, world)):
        write_line(f"quintain: note: {note}", is_error=True)
    return _ask(launch.evaluate, name, arguments, settings)[1]


def _ask(asked: Callable[..., Any], name: str, arguments: Namespace, settings: Mapping[str, Any]) -> Any:
    """Return what `asked`, which plays or only checks, gives for the model or run that is called `name`."""
    from quintain.runs.evaluation import is_script

    target = name if is_script(name) else resolve_model(name, arguments.runs)
    world = _find_world(target, arguments)
    place = Path(arguments.out) if arguments.out else None
    if place is not None and len(arguments.targets) > 1:
        place = place / name_place(name)
    try:
        return asked(
            target,
            world,
            agent=_find_agent(target, arguments),
            **read_attempts(arguments),
            cluster=arguments.cluster,
            trust_run=arguments.trust_run,
            accept_changes=arguments.accept_changes,
            out=place,
            **settings,
        )
    except UsageError:
        if world is None and target == name and "/" not in target:
            refuse_unknown(target, arguments.runs)
        raise


def _find_world(target: str, arguments: Namespace) -> str | None:
    """Return the environment in which `target` is measured, with the tasks that are asked for; None: a run's own."""
    from quintain import api as launch

    world: str | None = arguments.environment
    if arguments.tasks is not None:
        from quintain.environments.task_files import split_spec, tasks_spec
        from quintain.store.creation import is_run

        is_asked = world is None and is_run(Path(target))
        own = launch.environment_of(target, trust_run=arguments.trust_run) if is_asked else ""
        world = tasks_spec(world or split_spec(own)[0], arguments.tasks)
    if arguments.guard is not None and _find_agent(target, arguments) == arguments.agent:
        from quintain.environments.guarding import guard_spec

        world = guard_spec(
            world or launch.environment_of(target, trust_run=arguments.trust_run), arguments.guard
        )
    if arguments.hallucination:
        world = world or launch.environment_of(target, trust_run=arguments.trust_run)
        require_tools(world)
    return world


def _find_agent(target: str, arguments: Namespace) -> str:
    """Return the harness that is asked for; one that lives outside has the guard, if there is one, for an option."""
    from quintain import api as launch
    from quintain.agents.catalog import is_outside
    from quintain.environments.guarding import guard_agent

    named = arguments.agent
    if arguments.guard is None:
        return named
    own = named or launch.harness_of(target, is_trusted=arguments.trust_run)
    return guard_agent(own, arguments.guard) if is_outside(own) else named


def _hallucination(arguments: Namespace, episodes: Mapping[str, Sequence["Trajectory"]]) -> dict[str, float]:
    """Return the score of calls that should not be made, where it is asked for."""
    if not arguments.hallucination:
        return {}
    [(name, trajectories)] = episodes.items()
    world = _find_world(resolve_model(name, arguments.runs), arguments)
    assert world is not None, "it was asked for before anything was played"
    return hallucination(world, trajectories)


def _faults(arguments: Namespace, episodes: Mapping[str, Sequence["Trajectory"]]) -> dict[str, float]:
    """Return how many calls there are, and the share of them with each kind of fault, where that is asked for."""
    if not arguments.faults:
        return {}
    from quintain.api import environment_of
    from quintain.data.calls import count_faults
    from quintain.warm_start.demonstrations import teller

    [(name, trajectories)] = episodes.items()
    world = _find_world(name, arguments) or environment_of(
        resolve_model(name, arguments.runs), trust_run=arguments.trust_run
    )
    return count_faults(trajectories, teller(world))


def other_world(target: str, world: str) -> str:
    """Return what is to be known of the model `target` of a run that was trained elsewhere than in `world`."""
    from quintain.warm_start.run_notes import find_trained_format, name_of

    taught = find_trained_format(target)
    if not taught or name_of(taught) == name_of(world):
        return ""
    return (
        f"{target} was taught in {taught}, and these tasks are of {world}: tools and texts may be others, which a new "
        "model's tokenizer does not know"
    )


def require_tools(world: str) -> None:
    """Raise a `UsageError` where the environment `world` has no tools, or no expert that knows where none is called."""
    from quintain.environments.boundary import ask
    from quintain.environments.catalog import find
    from quintain.environments.protocol import Expert

    if not ask(
        find(world), lambda environment: bool(environment.tools()) and isinstance(environment, Expert)
    ):
        raise UsageError(
            f"--hallucination: got {world}, which lacks tools or an expert; define both, or take calc?withheld=0.5"
        )


def hallucination(world: str, trajectories: Sequence["Trajectory"]) -> dict[str, float]:
    """Return Agent-FLAN's score of the replies that should call nothing, its two parts, and how many there are.

    Raises:
        DataError: there is none.
    """
    from quintain.methods.imitation.agent_flan import find_uncalled, hallucination_score, has_form

    turns = find_uncalled(world, [t for t in trajectories if t.turns])
    if not turns:
        raise DataError(
            f"--hallucination: got no reply in {world} where its expert calls no tool; take more episodes, or a "
            "world with such tasks, as calc?withheld=0.5"
        )
    forms, acts = [has_form(turn) for turn in turns], [bool(turn.action.tool_calls) for turn in turns]
    return {
        "hallucination_score": hallucination_score(forms, acts),
        "h_format": sum(forms) / len(turns),
        "h_action": sum(acts) / len(turns),
        "replies_without_call": float(len(turns)),
    }


def compare(argv: Sequence[str]) -> int:
    """Compare the last evaluations of runs."""
    parser = Parser(
        "compare", "Compare the last evaluations of runs, task by task; the first is the baseline."
    )
    parser.add_argument(
        "names",
        metavar="RUN",
        nargs="+",
        help="run folders, or names of runs; another evaluation than the last: RUN@best, RUN@75; or a log of "
        "inspect-ai, as JSON",
    )
    parser.flag("--baseline", "the run that the others are compared with (default: the first)", "RUN")
    parser.flag(
        "--picture", "draw held-out success over steps of all runs; other seeds are one curve", "FILE.png"
    )
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", RUNS)
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    repeated = {name for name in arguments.names if arguments.names.count(name) > 1}
    if repeated:
        raise UsageError(f"quintain compare: got {min(repeated)!r} twice; name different runs")
    if arguments.picture and Path(arguments.picture).suffix != ".png":
        raise UsageError(f"--picture: got {arguments.picture!r}; give a file that ends with .png")

    from quintain.api import evaluation_of
    from quintain.eval.compare import COLUMNS
    from quintain.eval.compare import compare as compared
    from quintain.eval.inspect_log import read_log
    from quintain.store import Run
    from quintain.store.names import split_step

    episodes: dict[str, list[Trajectory]] = {}
    configs: dict[str, Mapping[str, Any]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.names:
        if Path(name).suffix in (".json", ".eval") and Path(name).is_file():
            if arguments.picture:
                raise UsageError(f"--picture: got {name}, a log without steps; draw runs alone")
            episodes[name] = read_log(Path(name))
            continue
        folder, mark = split_step(resolve_model(name, arguments.runs))
        with Run.open(resolve_folder(folder, arguments.runs), writable=False) as run:
            episodes[name] = evaluation_of(run, mark)
            configs[name], rows[name] = run.config, run.metrics()
    found = compared(episodes, baseline=arguments.baseline, settings=configs)
    for note in found.notes:
        write_line(f"quintain: note: {note}", is_error=True)
    if arguments.picture:
        from quintain.dashboard.curve import draw_comparison

        counts = {len(played) for played in episodes.values()}
        arms = {name: [rows[run] for run in runs] for name, runs in arms_of(configs).items()}
        draw_comparison(arms, Path(arguments.picture), num_tasks=counts.pop() if len(counts) == 1 else 0)
    if arguments.json:
        write_line(json.dumps(asdict(found), indent=2))
        return 0
    show(COLUMNS, [row.cells() for row in found.rows], f"success against {found.baseline}, paired by task")
    if arguments.picture:
        write_line(f"picture  {arguments.picture}")
    return 0


def arms_of(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the runs of `configs` that differ in seed and tasks alone, by the settings in which others differ.

    Example: ``{"without dealt_out": ["a", "b"], "with dealt_out": ["c"]}``. Where nothing differs, each run is alone.
    """
    drawn = ("seed", "task_offset")
    kept = [{key: value for key, value in config.items() if key not in drawn} for config in configs.values()]
    keys = sorted({key for config in kept for key in config})
    differing = [key for key in keys if any(config.get(key) != kept[0].get(key) for config in kept)]
    if not differing:
        return {name: [name] for name in configs}
    arms: dict[str, list[str]] = {}
    for name, config in zip(configs, kept, strict=True):
        arms.setdefault(", ".join(describe_setting(key, config.get(key)) for key in differing), []).append(
            name
        )
    return arms


def describe_setting(key: str, value: object) -> str:
    """Return the option `key` with its `value` as a legend names it: ``rate 0.1``, ``without dealt_out``."""
    return f"{'with' if value else 'without'} {key}" if isinstance(value, bool) else f"{key} {value}"


def collect(argv: Sequence[str]) -> int:
    """Write down episodes."""
    parser = Parser("collect", "Write down episodes of an environment as chat messages or as a run.")
    parser.add_argument("environment", metavar="E", help="environment: see quintain environments")
    parser.flag(
        "--agent",
        "expert (default), random, search?nodes=1000&by=breadth, a model folder, hub id or run, or a teacher: "
        "http://…/v1?model=NAME",
        "AGENT",
        "expert",
    )
    parser.flag(
        "--harness",
        "harness that it acts through, such as searched?size=3+text; a run knows its own",
        "AGENT",
    )
    parser.flag("--episodes", "how many (default 100)", "N", "100")
    parser.flag("--task-offset", "number of the first task (default 0)", "N", "0")
    parser.flag("--seed", "seed (default 0)", "N", "0")
    parser.flag("--guard", GUARD_HELP, "POLICY.json")
    parser.flag("--split", "tasks to act on: train (default) or eval", "SPLIT", "train")
    parser.flag("--expert-noise", "share of turns in which the expert errs (default 0)", "SHARE", "0")
    parser.flag("--attempts", "attempts of a model at a task that is not solved (default 1)", "N", "1")
    add_attempts(parser)
    parser.flag("--out", "file to write, .jsonl, or folder of a new run", "PATH")
    parser.switch("--trust-run", TRUST)
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", RUNS)
    arguments = parser.read(argv)
    episodes = whole_number(arguments.episodes, "--episodes", least=1)
    seed = whole_number(arguments.seed, "--seed")
    attempts = whole_number(arguments.attempts, "--attempts", least=1)
    task_offset = whole_number(arguments.task_offset, "--task-offset")
    split = one_of(arguments.split, "--split", ("train", "eval"))
    out = new_path(arguments.out)
    expert_noise = positive(arguments.expert_noise, "--expert-noise")
    if expert_noise > 1:
        raise UsageError(f"--expert-noise: got {arguments.expert_noise}; give a share from 0 to 1")
    agent = arguments.agent
    from quintain.engines.chat_client import is_endpoint
    from quintain.search.agent import is_search

    if agent not in ("expert", "random") and not is_search(agent) and not is_endpoint(agent):
        agent = resolve_model(agent, arguments.runs)

    from quintain import api as launch
    from quintain.cli.episodes import write_messages
    from quintain.environments.catalog import find
    from quintain.environments.guarding import guard_spec
    from quintain.eval.evaluate import evaluate as evaluated
    from quintain.warm_start.demonstrations import teller, write_run

    world = arguments.environment
    if arguments.guard is not None:
        world = guard_spec(world, arguments.guard)
    trajectories, tokenizer = launch.collect(
        world, agent, episodes=episodes, seed=seed, split=split, harness=arguments.harness or "",
        task_offset=task_offset, expert_noise=expert_noise, attempts=attempts, **read_attempts(arguments),
        trust_run=arguments.trust_run,
    )  # fmt: skip
    if out.suffix == ".jsonl":
        write_messages(trajectories, tokenizer, out, teller(world))
    else:
        settings = {"environment": world, "agent": agent, "seed": seed, "split": split}
        settings |= {"attempts": attempts} if attempts > 1 else {}
        settings |= {"harness": arguments.harness} if arguments.harness else {}
        settings |= {"task_offset": task_offset} if task_offset else {}
        write_run(trajectories, tokenizer, out, settings, make_environment=find(world))
    write_line(f"{out}: {evaluated(trajectories)}")
    return 0


def new_path(text: str | None) -> Path:
    """Return where to write, which must be given and free."""
    if text is None:
        raise UsageError(
            "quintain collect needs --out: got nothing; give a new file, .jsonl, or a new folder"
        )
    path = Path(text)
    if path.exists():
        raise UsageError(f"--out: got {text!r}, which exists; choose another name")
    if path.suffix not in (".jsonl", ""):
        raise UsageError(f"--out: got {text!r}; give a file that ends in .jsonl, or a folder")
    return path


def print_evaluation(report: "Report", is_json: bool, more: Mapping[str, float]) -> None:
    """Print an evaluation, and `more` that was measured, as JSON or as a table."""
    if is_json:
        write_line(json.dumps({**report.as_json(), **more}, indent=2))
        return
    found, cost, num = report.evaluation, report.cost, len(report.tasks)
    over = f" over {report.num_clusters} clusters ({report.clusters})" if report.clusters else ""
    rows: list[tuple[str, Any]] = [
        ("success", f"{100 * found.success:.1f} %"),
        ("95 % interval", f"[{100 * found.low:.1f}, {100 * found.high:.1f}]{over}"),
        *rows_of_passes(report),
        *((f"solved by attempt {number}", f"{100 * rate:.1f} %") for number, rate in report.by_round.items()),
        ("episodes", found.num),
        ("failed", counts(found.by_owner) if found.num_failed else 0),
        ("outcomes", counts({kind: count for kind, count in report.outcomes.items() if count})),
        ("return", f"{found.mean_return:.3f}"),
        ("turns", f"{found.mean_turns:.1f}"),
        ("tokens", f"{found.mean_tokens:.1f}"),
        ("cost of a task", cost.per_task(num)),
        ("ended by", counts(found.by_stop)),
        *([("refused calls", f"{found.terms[REFUSED]:.2f}")] if REFUSED in found.terms else []),
        *((f"asks for {name}", str(rate)) for name, rate in report.abilities.items()),
        *(
            (f"{'worst environment' if place == 0 else 'environment'}, {name}", str(rate))
            for place, (name, rate) in enumerate(report.environments.items())
        ),
        *((name.replace("_", " "), f"{value:.3g}") for name, value in more.items()),
    ]
    show(("measure", "value"), [(name, str(value)) for name, value in rows])


def rows_of_passes(report: "Report") -> list[tuple[str, str]]:
    """Return the rows of pass@k and pass^k."""
    return [
        (f"pass@{k}, pass^{k}", f"{100 * rate:.1f} %, {100 * report.pass_hat[k]:.1f} %")
        for k, rate in choose_powers(report)
    ]


def choose_powers(report: "Report") -> list[tuple[int, float]]:
    """Return pass@k for the k of a table: powers of two and the largest; nothing of one trial."""
    most = max(report.pass_at)
    chosen = [k for k in report.pass_at if k == most or k & (k - 1) == 0]
    return [(k, report.pass_at[k]) for k in chosen] if most > 1 else []


def print_several(found: "Comparison", reports: Mapping[str, "Report"], is_json: bool) -> None:
    """Print several evaluations beside each other, as JSON or as tables."""
    for note in found.notes:
        write_line(f"quintain: note: {note}", is_error=True)
    if is_json:
        full = {name: report.as_json() for name, report in reports.items()}
        write_line(json.dumps({**asdict(found), "reports": full}, indent=2))
        return
    from quintain.eval.compare import COLUMNS

    show(COLUMNS, [row.cells() for row in found.rows], f"success against {found.baseline}, paired by task")
    rows = [
        (
            name,
            ", ".join(f"{kind} {count}" for kind, count in report.outcomes.items() if count),
            ", ".join(f"{100 * rate:.1f}" for _, rate in choose_powers(report)),
            ", ".join(f"{100 * report.pass_hat[k]:.1f}" for k, _ in choose_powers(report)),
            report.cost.per_task(len(report.tasks)),
        )
        for name, report in reports.items()
    ]
    ks = ",".join(str(k) for k, _ in choose_powers(next(iter(reports.values()))))
    show(("run", "outcomes", f"pass@{ks or 'k'}", f"pass^{ks or 'k'}", "cost of a task"), rows)


def counts(numbers: "Any") -> str:
    """Return ``terminated 7, max_turns 3``."""
    return ", ".join(f"{name} {count}" for name, count in numbers.items())
