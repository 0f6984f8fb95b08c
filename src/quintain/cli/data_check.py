"""``quintain check DATA``: what would be trained of these conversations, and what is wrong with them?

Every record is looked at: one that cannot be read is a finding with its line, not the end; so is a file of two forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from quintain.data.calls import CLASSES, Fault, find_faults
from quintain.data.files import FileValue, read_objects
from quintain.data.forms import USES, Form, form_of
from quintain.data.records import Overlong, TrainOn, Unusable, as_object
from quintain.environments.tools import Shapes
from quintain.errors import DataError, ModelError
from quintain.types import Trajectory
from quintain.types.findings import Finding
from quintain.types.json_text import load_json

if TYPE_CHECKING:
    from quintain.agents.transcripts import Transcriber
    from quintain.runs.preflight import Piece
    from quintain.text.chat import Chat

NUM_NAMED, NUM_BROKEN = 3, 50
"""Lines that are named of each kind of problem; and those that cannot be used."""


@dataclass(slots=True)
class Survey:
    """What is in the files."""

    num: int = 0
    forms: dict[Form, list[str]] = field(default_factory=dict["Form", "list[str]"])
    """what the records are → their places"""
    num_good: int = 0
    """labelled answers that are good"""
    roles: Counter[str] = field(default_factory=Counter[str])
    num_calls: int = 0
    num_with_tools: int = 0
    shapes: Shapes = field(default_factory=Shapes)
    lengths: list[int] = field(default_factory=list[int])
    """tokens of each conversation that could be written"""
    num_trained: int = 0
    """tokens"""
    broken: list[str] = field(default_factory=list[str])
    """a line for each record that cannot be used"""
    faults: list[tuple[str, Fault]] = field(default_factory=list["tuple[str, Fault]"])
    """(place of the record, what is wrong with one of its calls)"""
    shown: list[tuple[str, list[Piece]]] = field(default_factory=list["tuple[str, list[Piece]]"])


def check_data(
    source: Path,
    *,
    model: str | None,
    root: Path,
    environment: str | None,
    agent: str,
    train_on: TrainOn,
    unusable: Unusable,
    max_context: int | None,
    num_shown: int,
    is_json: bool,
    template: str = "",
    template_options: str = "",
) -> int:
    """Read all of `source`, print its first conversations and what was found, and return the exit status."""
    from quintain.cli.findings import report
    from quintain.cli.preflight import show_stream
    from quintain.runs.preflight import chat_format

    chat, limit = chat_of(source, model, root, template=template, options=template_options)
    limits = [each for each in (limit, max_context) if each is not None]
    transcriber = make_transcriber(chat, environment, agent, train_on)
    survey = look(source, transcriber, num_shown)
    if not is_json:
        for title, pieces in survey.shown:
            show_stream(title, pieces)
    findings = [
        *([chat_format(chat)] if model is not None else []),
        *form_findings(survey, unusable),
        *findings_of(survey, transcriber, min(limits, default=None), is_counted=model is not None),
    ]
    measured = {
        "records": float(survey.num),
        "unusable": float(len(survey.broken)),
        "tokens": float(sum(survey.lengths)),
        "trained_tokens": float(survey.num_trained),
    }
    return report(str(source), findings, is_json, DataError, measured)


def chat_of(
    source: Path, model: str | None, root: Path, *, template: str = "", options: str = ""
) -> tuple[Chat, int | None]:
    """Return the chat format of `model` and its context; of none, or of a new one, a small one trained on the data.

    A run is named by its folder, or by its name under `root`. A file with another chat `template` and `options` of it
    may be given.
    """
    from quintain.learning.saved import tokenizer_folder
    from quintain.models.load import load_tokenizer
    from quintain.text.chat import Chat
    from quintain.text.settings import set_template
    from quintain.text.tokenizer import train_tokenizer
    from quintain.warm_start.demonstrations import texts_of
    from quintain.warm_start.start import new_model

    if model is None:
        return Chat(train_tokenizer(readable(texts_of, source))), None
    if (new := new_model(model)) is not None:
        tokenizer = train_tokenizer(readable(texts_of, source), tokens=new.tokens or "phrases")
        set_template(tokenizer, template=template, options=options)
        return Chat(tokenizer), None
    folder = tokenizer_folder(model, root)
    config = folder / "config.json"
    try:
        found: object = load_json(config.read_bytes()) if config.is_file() else {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{config}: got {error}; restore it from a copy") from error
    known = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    limit = known.get("max_position_embeddings")
    tokenizer = load_tokenizer(folder)
    set_template(tokenizer, template=template, options=options)
    return Chat(tokenizer), limit if isinstance(limit, int) else None


def readable(texts: Callable[[Path], Iterator[str]], source: Path) -> Iterator[str]:
    """Yield the texts of `source` up to the first record that cannot be read."""
    yield "User Assistant"
    try:
        yield from texts(source)
    except DataError:
        return


def make_transcriber(chat: Chat, environment: str | None, agent: str, train_on: TrainOn) -> Transcriber:
    """Return what writes the conversations as a rollout in `environment` would show them."""
    from quintain.agents.transcripts import Rules, Transcriber
    from quintain.environments.smoke_test import find_or_blame
    from quintain.warm_start.demonstrations import place_of
    from quintain.warm_start.start import build_agent

    place = None
    if environment is not None:
        harness = build_agent(chat.tokenizer, find_or_blame(environment), temperature=1.0, agent=agent)
        place = place_of(environment, harness)
    overlong: Overlong = "drop"
    return Transcriber(chat, Rules(train_on=train_on, overlong=overlong), place=place)


def look(source: Path, transcriber: Transcriber, num_shown: int) -> Survey:
    """Return what is in the files of `source`, one record at a time."""
    survey = Survey()
    try:
        for found in read_objects(source):
            survey.num += 1
            try:
                look_at(found, survey, transcriber, num_shown)
            except DataError as error:
                survey.broken.append(str(error))
    except DataError as error:
        survey.num += not survey.num
        survey.broken.append(str(error))
    return survey


def look_at(found: FileValue, survey: Survey, transcriber: Transcriber, num_shown: int) -> None:
    """Count the record `found`, and keep its pieces if it is one of the first."""
    from quintain.data.samples import imitation_samples
    from quintain.runs.preflight import pieces
    from quintain.warm_start.demonstrations import records_in

    form = form_of(as_object(found.value, found.place))
    survey.forms.setdefault(form, []).append(found.place)
    records = records_in(found)
    names = ("chosen", "rejected") if form == "preference" else ("",) * len(records)
    sides = list(zip(names, records, strict=True))
    if form == "labelled answer":
        survey.num_good += bool(records[0].fields["is_success"])
    for name, record in sides:
        transcriber.notes.see(record)
        survey.roles.update(message.role for message in record.messages)
        survey.num_calls += sum(len(message.tool_calls) for message in record.messages)
        survey.num_with_tools += bool(record.tools)
        survey.shapes.add(record.place, record.tools)
        if record.tools:
            answers = [
                said.is_trained is not False for said in record.said if said.message.role == "assistant"
            ]
            faults = find_faults(record.messages, record.tools)
            survey.faults += [(record.place, fault) for fault in faults if answers[fault.answer]]
        trajectory: Trajectory | None = transcriber.trajectory(record)
        if trajectory is None:
            transcriber.notes.num_untrained += 1
            continue
        streams = imitation_samples([trajectory])
        survey.lengths.append(max(len(stream.token_ids) for stream in streams))
        survey.num_trained += trajectory.num_sampled
        if len(survey.shown) < num_shown * len(sides):
            for stream in streams:
                survey.shown.append(
                    (f"{record.place} {name}".strip(), list(pieces(stream, transcriber.chat)))
                )


def call_findings(faults: Sequence[tuple[str, Fault]]) -> Iterator[Finding]:
    """Yield what is wrong with calls whose tools are listed: those that do not fit, and values that were never said."""
    for name, says in (
        ("executable", "calls do not fit the tools that are listed"),
        ("semantic", "values were not said before the call, unless an agent computed them itself"),
    ):
        own = [f"{place}, {fault}" for place, fault in faults if fault.kind in CLASSES[name]]
        more = f" (and {len(own) - NUM_NAMED} more)" if len(own) > NUM_NAMED else ""
        detail = f"{len(own)} {says}: {'; '.join(own[:NUM_NAMED])}{more}" if own else "nothing was found"
        state = "pass" if not own else "fail" if name == "executable" else "note"
        yield Finding(f"calls, {name}", state, detail)


def form_findings(survey: Survey, unusable: Unusable) -> Iterator[Finding]:
    """Yield how many records there are of which form, and each that cannot be used."""
    labelled = len(survey.forms.get("labelled answer", ()))
    kinds = [f"{len(survey.forms['preference']):,} preferences"] if "preference" in survey.forms else []
    kinds += (
        [f"{survey.num_good:,} answers labelled good, {labelled - survey.num_good:,} bad"] if labelled else []
    )
    told = ", ".join([f"{survey.num:,}", *kinds])
    yield Finding("records", "pass" if survey.num else "fail", told)
    if labelled:
        yield Finding("labels", "pass", USES["labelled answer"])
    if len(survey.forms) > 1:
        first = [f"{len(places):,} of a {form} (first {places[0]})" for form, places in survey.forms.items()]
        detail = f"{', '.join(first)}; put them into files of their own"
        yield Finding("forms", "fail", detail)
    state = "fail" if unusable == "error" else "note"
    for line in survey.broken[:NUM_BROKEN]:
        yield Finding("unusable", state, line)
    if len(survey.broken) > NUM_BROKEN:
        yield Finding("unusable", state, f"{len(survey.broken) - NUM_BROKEN:,} more")
    if survey.broken and unusable == "drop" and len(survey.broken) == survey.num:
        yield Finding("usable", "fail", "none is left")


def findings_of(
    survey: Survey, transcriber: Transcriber, limit: int | None, *, is_counted: bool
) -> Iterator[Finding]:
    """Yield what was found; `is_counted` says that lengths are in the tokens of a model."""
    from quintain.warm_start.demonstrations import lines_of

    roles = ", ".join(f"{role} {num:,}" for role, num in survey.roles.most_common())
    yield Finding("messages", "pass" if survey.roles else "skip", roles or "none could be read")
    calls = f"{survey.num_calls:,} calls, {survey.num_with_tools:,} records with tool schemas"
    yield Finding("tools", "pass" if survey.num_calls else "skip", calls)
    if differing := str(survey.shapes):
        yield Finding("differing tools", "note", differing)
    if survey.num_with_tools:
        yield from call_findings(survey.faults)
    notes = transcriber.notes
    if notes.other_tools:
        first = ", ".join(list(notes.other_tools)[:NUM_NAMED])
        yield Finding(
            "other tools",
            "note",
            f"{len(notes.other_tools)} records list other tools than the environment, whose own are shown: {first}",
        )
    if survey.lengths:
        ordered = sorted(survey.lengths)
        middle, late = ordered[len(ordered) // 2], ordered[-1 - len(ordered) // 20]
        unit = "tokens" if is_counted else "tokens of a small tokenizer (name yours with --model)"
        detail = f"median {middle:,}, p95 {late:,}, longest {ordered[-1]:,} {unit}"
        num_long = 0 if limit is None else sum(length > limit for length in ordered)
        detail += "" if limit is None else f"; {num_long:,} longer than the context of {limit:,}"
        yield Finding("lengths", "fail" if num_long else "pass", detail)
        share = survey.num_trained / max(sum(ordered), 1)
        yield Finding("trained", "pass", f"{survey.num_trained:,} tokens, {share:.0%} of all")
    for note in lines_of(notes):
        yield Finding("not read" if note.endswith("is not read") else "changed", "note", note)
    if not survey.lengths and notes.num_untrained:
        yield Finding(
            "trained", "fail", "no token: no answer is to be trained (weight, train, loss and their like)"
        )
    if notes.num_untrained:
        yield Finding("nothing to train", "note", f"{notes.num_untrained:,} without an answer to train")
