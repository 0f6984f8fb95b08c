"""``quintain bench``: the evidence of methods, layer by layer, and worlds against their experts."""

from collections.abc import Sequence

from quintain.cli.arguments import Parser, one_of, whole_number
from quintain.errors import UsageError, suggestion
from quintain_evidence.cli.methods import (
    COLUMN_LAYERS,
    LAYERS,
    keep_promises,
    record_renames,
    run_layer,
    write_pages,
)
from quintain_evidence.cli.worlds import worlds


def bench(argv: Sequence[str]) -> int:
    """Run a benchmark."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: quintain bench methods --layer LAYER [--family FAMILY] [--only ROWS] [--jobs 1]")
        print("       quintain bench worlds [--only NAME] [--seeds 3] [--jobs 1]")
        print("       quintain bench promise --only NAMES [--runs runs/promise]")
        print("       quintain bench rename --since REVISION --names FILE")
        return 0 if argv else UsageError.exit_code
    what, *rest = argv
    if what == "worlds":
        return worlds(rest)
    if what == "rename":
        return rename(rest)
    if what == "promise":
        return promise(rest)
    if what != "methods":
        known = ("methods", "promise", "rename", "worlds")
        raise UsageError(f"what to benchmark: got {what!r}; {suggestion(what, known)}")
    return methods(rest)


def methods(argv: Sequence[str]) -> int:
    """Collect what a layer of evidence lacks, and print what is known."""
    parser = Parser(
        "bench methods", "Collect the evidence of methods, layer by layer; what is there is not run again."
    )
    parser.flag(
        "--layer",
        f"what is asked: {', '.join(LAYERS)}; mechanism is signature, comparison is league",
        "LAYER",
    )
    parser.flag("--family", "family of methods (default: that of the rows named, else rl)", "FAMILY")
    parser.flag("--only", "rows, separated by commas (default: all of the family)", "ROWS")
    parser.flag("--jobs", "processes side by side, one thread each (default 1)", "N", "1")
    parser.flag("--results", "folder of results (default: those of the package)", "FOLDER")
    parser.flag("--runs", "folder that holds the league's runs (default runs/bench)", "ROOT", "runs/bench")
    parser.flag("--signatures", "folder of registered claims (default: those of the package)", "FOLDER")
    parser.flag("--set", "settings of both arms of the league over its own, as JSON", "JSON", "{}")
    parser.switch("--pages", "run nothing; write what is known into the documentation")
    parser.flag("--docs", "folder of the documentation that --pages writes (default docs)", "FOLDER", "docs")
    parser.flag(
        "--history", "folder of what was tried, which --pages writes (default evidence/history)", "FOLDER"
    )
    parser.switch("--json", "print what is known as JSON")
    arguments = parser.read(argv)
    jobs = whole_number(arguments.jobs, "--jobs", least=1)
    if arguments.pages:
        return write_pages(arguments)
    if arguments.family is None and not arguments.only:
        arguments.family = "rl"
    if arguments.layer is None:
        raise UsageError(f"bench methods needs --layer: got nothing; choose from {', '.join(LAYERS)}")
    layer = one_of(arguments.layer, "--layer", (*LAYERS, *COLUMN_LAYERS))
    return run_layer(COLUMN_LAYERS.get(layer, layer), arguments, jobs)


def promise(argv: Sequence[str]) -> int:
    """Try methods on a real model, and record what came of it."""
    parser = Parser(
        "bench promise",
        "Train SmolLM2-135M-Instruct by LoRA with a method, on the world that its page names: one small step, resumed "
        "for another; a row that trains nothing does its job on real input (quintain_evidence/promises). What came "
        "of it is recorded; a row whose newest try went well has its promise.",
    )
    parser.flag("--only", "methods, separated by commas", "NAMES")
    parser.flag("--results", "folder of results (default: those of the package)", "FOLDER")
    parser.flag("--runs", "folder that holds the runs (default runs/promise)", "ROOT", "runs/promise")
    parser.flag(
        "--docs", "folder of the documentation, whose pages name the worlds (default docs)", "FOLDER", "docs"
    )
    parser.flag("--seconds", "what both commands of a method may take together (default 600)", "N", "600")
    parser.flag(
        "--start",
        "demonstrations of a supervised run on the world, with all weights, that methods begin with; it is made once a "
        "world (default 0: they begin with the model as it is)",
        "N",
        "0",
    )
    arguments = parser.read(argv)
    if not arguments.only:
        raise UsageError("bench promise needs --only: got nothing; name methods, separated by commas")
    return keep_promises(
        arguments,
        whole_number(arguments.seconds, "--seconds", least=1),
        whole_number(arguments.start, "--start", least=0),
    )


def rename(argv: Sequence[str]) -> int:
    """Carry the results of experiments that are the same but for names over to their new digests."""
    parser = Parser(
        "bench rename",
        "Write into the results of a row that its experiment is the one that was measured, but for names; the two "
        "files are compared.",
    )
    parser.flag("--since", "revision of this checkout before the names changed", "REVISION")
    parser.flag(
        "--names", "TOML file whose tables [names] and [options] say what became of which name", "FILE"
    )
    parser.flag("--results", "folder of results (default: those of the package)", "FOLDER")
    parser.flag("--signatures", "folder of registered claims (default: those of the package)", "FOLDER")
    arguments = parser.read(argv)
    for flag, value in (("--since", arguments.since), ("--names", arguments.names)):
        if value is None:
            raise UsageError(f"bench rename needs {flag}: got nothing; see quintain bench rename --help")
    return record_renames(arguments)
