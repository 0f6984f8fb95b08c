"""``quintain check E|MODEL|RUN|METHOD|DATA``: is it fit to be used?

A folder is checked as what it holds; everything else is the name of an environment. Checking changes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast, get_args

from quintain.cli.arguments import Parser, one_of, resolve_folder, resolve_model, whole_number
from quintain.cli.findings import report
from quintain.cli.preflight import check_method
from quintain.config.trust import GUARDED, TASKS
from quintain.data.files import TABLES, TEXTS, data_files, is_data
from quintain.data.records import TrainOn, Unusable
from quintain.environments.guarding import guard_spec
from quintain.environments.specs import CATALOG, defines_environment
from quintain.errors import (
    EnvironmentFault,
    ModelError,
    QuintainError,
    StoreError,
    UsageError,
    similar_file,
    suggestion,
)
from quintain.methods.table import MODULES
from quintain.safety.lint import lint_agent
from quintain.types.findings import Finding
from quintain.types.terminal import write_command


def check(argv: Sequence[str]) -> int:
    """Check an environment, a model folder, a run or, with the flags of its training, a method."""
    if any(part.partition("=")[0] == "--profile" for part in argv):
        return check_source(argv)
    if argv and is_method(argv[0]):
        return check_method(argv)
    parser = Parser(
        "check", "Check an environment (conformance suite), a model folder, a run, a method or conversations."
    )
    parser.add_argument(
        "target",
        metavar="E|MODEL|RUN|METHOD|DATA",
        help="environment, model folder, run folder or its name (or a step of it, RUN@best), a method followed by its "
        "flags, or a file or folder "
        "of conversations",
    )
    parser.flag("--episodes", "episodes per baseline of an environment (default 20)", "N", "20")
    parser.flag(
        "--grades",
        "grade each of the first tasks (as many as --episodes) N times, played by the expert and not at all, and "
        "show mean and variance, instead of the conformance suite",
        "N",
    )
    parser.flag("--deadline", "seconds that a probe of an environment may take (default 60)", "S", "60")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.flag("--guard", "policy under which an environment is checked (docs/guards.md)", "POLICY.json")
    parser.flag("--profile", "production: read AGENT.py for what fails there (docs/guards.md)", "PROFILE")
    parser.flag("--load", "play in N instances of an environment at once, instead of the suite", "N")
    parser.flag("--model", "whose tokens and template conversations are written in", "MODEL")
    parser.flag("--chat-template", "file with a chat template in place of the model's own", "FILE", "")
    parser.flag("--template-options", "of the chat template, as enable_thinking=false", "OPTIONS", "")
    parser.flag("--environment", "whose tools and harness conversations are written for", "E")
    parser.flag("--agent", "harness of the environment (default auto)", "AGENT", "auto")
    parser.flag(
        "--train-on", "answers of conversations that are trained: all (default), last, tagged", "RULE", "all"
    )
    parser.flag(
        "--unusable", "lines of data that cannot be used: error (default), or drop (noted)", "RULE", "error"
    )
    parser.flag("--max-context", "longest conversation, in tokens (default: the model's own limit)", "N")
    parser.flag("--show", "conversations to print (default 2)", "N", "2")
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    if arguments.guard is not None:
        arguments.target = guard_spec(arguments.target, arguments.guard)
    if is_data(Path(arguments.target)):
        from quintain.cli.data_check import check_data

        rule = one_of(arguments.train_on, "--train-on", get_args(TrainOn))
        limit = arguments.max_context
        return check_data(
            Path(arguments.target),
            model=arguments.model,
            root=Path(arguments.runs),
            environment=arguments.environment,
            agent=arguments.agent,
            train_on=cast("TrainOn", rule),
            unusable=cast("Unusable", one_of(arguments.unusable, "--unusable", get_args(Unusable))),
            max_context=None if limit is None else whole_number(limit, "--max-context", least=1),
            num_shown=whole_number(arguments.show, "--show"),
            is_json=arguments.json,
            template=arguments.chat_template,
            template_options=arguments.template_options,
        )
    if arguments.load is not None:
        return check_load(arguments.target, whole_number(arguments.load, "--load", least=1), arguments.json)
    episodes = whole_number(arguments.episodes, "--episodes", least=1)
    if arguments.grades is not None:
        calls = whole_number(arguments.grades, "--grades", least=1)
        return check_grades(arguments.target, episodes, calls, arguments.json)
    from quintain.store.names import split_step

    if split_step(named := resolve_model(arguments.target, arguments.runs))[1]:
        return report(named, list(check_saved_policy(named)), arguments.json, ModelError)
    folder = resolve_folder(arguments.target, arguments.runs)
    if is_run(folder):
        return report(str(folder), list(run_lines(folder)), arguments.json, StoreError)
    if (folder / "config.json").is_file() or (folder.is_dir() and "/" in arguments.target):
        return report(str(folder), list(model_lines(folder)), arguments.json, ModelError)
    if Path(arguments.target).suffix in (*TEXTS, *TABLES) and not is_world(arguments.target):
        near = similar_file(folder.name, [each.name for each in Path(arguments.target).parent.glob("*")])
        hint = near or "check the path"
        raise UsageError(f"quintain check: got {arguments.target!r}, and there is no such file; {hint}")
    if Path(arguments.target).is_dir():
        data_files(Path(arguments.target))
    is_file = arguments.target.partition("?")[0].endswith(".py")
    if arguments.target.startswith((".", "/", "~")) and ":" not in arguments.target and not is_file:
        raise UsageError(f"quintain check: got {arguments.target!r}, which is no folder; check the path")
    refuse_other_names(arguments.target, arguments.runs)
    deadline = whole_number(arguments.deadline, "--deadline", least=1)
    return check_environment(arguments.target, episodes, deadline, arguments.json)


def check_source(argv: Sequence[str]) -> int:
    """Read the source of an agent for what fails in production, and return 1 where something does."""
    parser = Parser("check", "Read an agent's source for what fails in production; nothing of it is run.")
    parser.add_argument("target", metavar="AGENT.py|FOLDER", help="file of an agent, or a folder with some")
    parser.flag("--profile", "production: the rules of docs/guards.md", "PROFILE")
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    one_of(arguments.profile, "--profile", ("production",))
    return report(arguments.target, lint_agent(Path(arguments.target)), arguments.json, QuintainError)


def refuse_other_names(target: str, root: str) -> None:
    """Raise a `UsageError` where `target` is the name of a new model, or of nothing that there is."""
    from quintain.environments.specs import names_of_environments
    from quintain.models.load import OURS

    name = target.partition("?")[0]
    if name in OURS or name == "auto":
        raise UsageError(
            f"quintain check: got {target!r}, a model; check it in use: "
            f"{write_command('quintain', 'check', 'grpo', '--model', target)} --environment E"
        )
    known = names_of_environments()
    if any(sign in name for sign in ":/.+,") or name in known:
        return
    runs = [place.parent.name for place in Path(root).glob("*/run.db")]
    near = suggestion(name, [*known, *MODULES, *runs])
    hint = (
        near
        if near.startswith("did")
        else "see quintain environments, quintain methods, or the runs in " + root
    )
    raise UsageError(
        f"quintain check: got {target!r}, and there is no run, folder, file, method or environment of that name; {hint}"
    )


def is_method(target: str) -> bool:
    """Whether `target` is a method: one of the table, or a file that defines no environment."""
    if target.endswith(".py"):
        return not defines_environment(Path(target))
    return target in MODULES and not Path(target).exists()


def is_world(target: str) -> bool:
    """Return whether `target` names an environment, such as ``mcp/shop.json``, and no file of data."""
    return target.partition("/")[0] in CATALOG or target.startswith((TASKS, GUARDED))


def is_run(folder: Path) -> bool:
    """Whether `folder` holds the files of a run, broken or not."""
    return (folder / "run.db").is_file()


def check_environment(spec: str, episodes: int, deadline: int, is_json: bool) -> int:
    """Run the conformance suite, with so many seconds for each probe, and return the exit status."""
    from quintain.environments.check import check as conformance
    from quintain.environments.smoke_test import find_or_blame

    find_or_blame(spec)
    found = conformance(spec, episodes=episodes, deadline=deadline)
    return report(spec, found.findings, is_json, EnvironmentFault, dict(found.measured))


def check_grades(spec: str, num_tasks: int, calls: int, is_json: bool) -> int:
    """Grade the first `num_tasks` tasks `calls` times each way and return the exit status."""
    from quintain.environments.boundary import blame
    from quintain.environments.grades import grade_tasks
    from quintain.environments.smoke_test import find_or_blame

    recipe = find_or_blame(spec)
    with blame(spec):
        found = grade_tasks(recipe, tasks=num_tasks, calls=calls)
    lines = [Finding(each.task.id, "fail" if each.verdict else "pass", each.detail) for each in found]
    measured = {
        f"{each.task.id}/{name}/{measure}": value
        for each in found
        for name, grades in ((each.policy, each.played), ("nothing", each.nothing))
        for measure, value in (("mean", grades.mean), ("variance", grades.variance))
    }
    return report(f"grades of {spec}", lines, is_json, EnvironmentFault, measured)


def check_load(spec: str, instances: int, is_json: bool) -> int:
    """Play four random episodes in each of `instances` at once and return the exit status."""
    from quintain.cli.loading import load_lines
    from quintain.environments.boundary import blame
    from quintain.environments.smoke_test import find_or_blame
    from quintain.rollout.load import load

    recipe = find_or_blame(spec)
    with blame(spec):
        found = load(recipe, instances=instances, episodes=4 * instances)
    lines, measured = load_lines(found)
    return report(spec, lines, is_json, EnvironmentFault, measured)


def run_lines(folder: Path) -> Iterator[Finding]:
    """Yield what is found of the run in `folder`: settings, journal, custody, metrics, checkpoints, models."""
    from quintain.serve.recorder import find_changed
    from quintain.store import Run
    from quintain.store.checkpoints import damage

    with Run.open(folder, writable=False) as run:
        yield Finding("settings", "pass", f"{run.recipe}, {run.status}")
        others = run.check_files("checking", is_all=False, accepts_changes=True)
        yield Finding(
            "files",
            "fail" if others else "pass",
            f"not what the run wrote or began with: {others}"
            if others
            else "what the run wrote or began with",
        )
        num = num_calls = 0
        changed: list[str] = []
        for trajectory in run.trajectories():
            num += 1
            num_calls += sum("digest" in turn.facts for turn in trajectory.turns)
            changed += [f"turn {place} of {trajectory.id}" for place in find_changed(trajectory.turns)]
        unread = f", {run.num_quarantined} cannot be read" if run.num_quarantined else ""
        yield Finding("journal", "fail" if unread else "pass", f"{num} trajectories{unread}")
        if num_calls:
            first = f", {len(changed)} are not what was recorded, the first {changed[0]}" if changed else ""
            yield Finding("custody", "fail" if changed else "pass", f"{num_calls} recorded calls{first}")
        yield Finding("metrics", "pass", f"{len(run.metrics())} steps")
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    if not checkpoints:
        yield Finding("checkpoints", "skip", "there is none yet")
    for place in checkpoints:
        reason = damage(place)
        yield Finding(place.name, "fail" if reason else "pass", reason or "intact to the last byte")
    for place in sorted(child for child in folder.iterdir() if (child / "config.json").is_file()):
        yield from model_lines(place, place.name)


def check_saved_policy(name: str) -> Iterator[Finding]:
    """Yield whether the policy of a step of a run, ``RUN@best`` or ``RUN@75``, is kept and loads."""
    from quintain.learning.saved import find_saved, load_policy

    saved = find_saved(name)
    assert saved is not None, "the name has a mark"
    yield Finding("step", "pass", f"{saved.step}, intact to the last byte")
    yield attempt("model", lambda: f"{load_policy(name).model.num_parameters():,} parameters")


def model_lines(folder: Path, name: str = "model") -> Iterator[Finding]:
    """Yield whether the model in `folder` loads, and what it is."""
    from quintain.models.load import load

    yield attempt(name, lambda: f"{load(str(folder)).model.num_parameters():,} parameters")


def attempt(name: str, probe: Callable[[], str]) -> Finding:
    """Return what `probe` says, or the error of ours that it raised."""
    try:
        return Finding(name, "pass", probe())
    except QuintainError as error:
        return Finding(name, "fail", str(error))
