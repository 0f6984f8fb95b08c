"""``quintain check METHOD``: what would it train on? Takes the flags of ``quintain train METHOD``.

Colours are a view: without a terminal every piece of a stream names its kind.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.errors import InvariantError, UsageError
from quintain.types.terminal import spell_out, write_line

if TYPE_CHECKING:
    from quintain.data.pipeline import PipelineResult
    from quintain.runs.collector import Collector
    from quintain.runs.preflight import Piece

STYLES = {"prompt": "dim", "masked": "yellow", "trained": "bold green"}


def check_method(argv: Sequence[str]) -> int:
    """Run the preflight of the method that the first argument names and return the exit status."""
    from quintain.cli.flags import read_configuration
    from quintain.cli.training import train_parser
    from quintain.config import build, options
    from quintain.methods.find import find_method

    spec, *rest = argv
    method = find_method(spec)
    parser = train_parser(method.label, method.summary, options(method.config_class))
    parser.switch("--json", "print JSON")
    arguments = parser.read(rest)
    values = read_configuration(method.spec, method.config_class, arguments.config, arguments)

    from quintain.api import check_memory, check_parts, describe_run, tell
    from quintain.cli.findings import report
    from quintain.environments.nothing import NO_ENVIRONMENT
    from quintain.methods.fitting import fit_to_model
    from quintain.methods.reading import refuse_unread
    from quintain.runs.preflight import preflight
    from quintain.warm_start.demonstrations import place_data

    given = build(method.config_class, values, f"check {spec}")
    config = place_data(given, Path(arguments.runs), is_trusted=arguments.trust_run)
    if config.environment == NO_ENVIRONMENT:
        raise UsageError(
            f"check {spec}: got data without an environment, in which nothing is played; look at the data: "
            "quintain check FILE"
        )
    refuse_unread(method, method.make(config), config, values)
    check_parts(config)
    fitted = fit_to_model(method, config, values)
    config = fitted.config
    plan = check_memory(method.make(config), config)
    for note in (*fitted.notes, *describe_run(plan, config, is_brief=False)):
        tell(note)
    started = time.monotonic()
    found = preflight(config, data_of(method.make(config)))
    seconds = time.monotonic() - started
    if not arguments.json:
        for number, stream in enumerate(found.streams, start=1):
            show_stream(f"episode {number}", stream)
        for number, (sources, stream) in enumerate(found.examples, start=1):
            show_stream(f"example {number} of the data, of {sources}", stream)
        if found.funnel:
            write_line(found.funnel)
    status = report(
        spec,
        found.findings,
        arguments.json,
        InvariantError,
        {"seconds": seconds, **found.forecast.metrics()},
    )
    if not arguments.json:
        write_line(found.forecast)
    return status


def data_of(method: object) -> "Callable[[Collector], PipelineResult] | None":
    """Return what makes the data that `method` learns from demonstrations; None where it learns from other things."""
    from quintain.data.pipeline import Pipeline, PipelineResult
    from quintain.methods.loops.offline import Offline, examples_of
    from quintain.types import Example

    if not isinstance(method, Offline) or method.needs.reference:
        return None

    def make(collector: "Collector") -> PipelineResult:
        found = method.data(collector)
        if isinstance(found, PipelineResult):
            return found
        return Pipeline().run([each for each in examples_of(found) if isinstance(each, Example)])

    return make


def show_stream(title: str, stream: Sequence["Piece"]) -> None:
    """Print a token stream, each piece in the colour of its kind."""
    write_line(f"--- {title}: prompt, sampled and masked, sampled and trained")
    if not sys.stdout.isatty():
        for piece in stream:
            write_line(f"[{piece.kind}] {piece.text}")
        return
    from rich.console import Console
    from rich.text import Text

    text = Text()
    for piece in stream:
        text.append(spell_out(piece.text), style=STYLES[piece.kind])
    Console().print(text)
