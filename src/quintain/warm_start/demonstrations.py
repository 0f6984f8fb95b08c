"""Demonstrations that a configuration names: a file or folder of conversations, a data set of the hub, or a run.

A run's episodes are taken token by token where its tokenizer, harness and environment are those of the policy, and
written anew where they are not. Everything else is written by `quintain.agents.transcripts`. What was read is named by
a digest, so that a run which continues can refuse data that has changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from quintain.agents.catalog import AUTO
from quintain.agents.harness import system_text
from quintain.agents.labelled import Labelled
from quintain.agents.protocol import Agent, Brief
from quintain.agents.transcripts import Notes, Place, Rules, Transcriber, train_only
from quintain.config.trust import ENVIRONMENT, admit, is_built_in
from quintain.data.files import FileValue, data_files, digest, is_data, read_objects
from quintain.data.forms import form_of
from quintain.data.messages import OpeningPrompt, find_conversation, to_record, write_tool
from quintain.data.records import (
    Preference,
    Record,
    as_object,
    read_labelled,
    read_preferences,
    read_record,
    read_records,
    read_tools,
)
from quintain.data.searched import follow_searches
from quintain.data.seats import by_seat
from quintain.data.thoughts import whole_text
from quintain.environments.boundary import ask, check_instructions, check_tools
from quintain.environments.catalog import find
from quintain.environments.mixture import MixedEnvironment
from quintain.environments.nothing import NO_ENVIRONMENT, NONE
from quintain.environments.protocol import Environment, Factory
from quintain.environments.specs import place_files
from quintain.environments.task_files import read_held_out_prompts
from quintain.errors import DataError, similar_file
from quintain.eval.evaluate import evaluate
from quintain.learning.saved import MODEL, START, admit_run, find_model, is_of_run, place_name
from quintain.learning.sections import DataSection
from quintain.learning.train_config import TrainConfig
from quintain.models.load import load_tokenizer, reads_as_hub_id
from quintain.store.creation import JOURNAL
from quintain.store.managed_run import looked_after
from quintain.store.run import CHANGED, Run
from quintain.text.chat import Chat
from quintain.text.parse import write_tool_calls
from quintain.types import Pair, Score, Trajectory, as_text
from quintain.types.json_text import load_json
from quintain.types.terminal import write_command

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZERS = ("tokenizer", MODEL, START)
"""Folders of a run that may hold its tokenizer, first to last."""
PATTERNS = ("*.jsonl", "*.json", "*.ndjson", "*.parquet")
EVENT = "data"
HELD_OUT = re.compile(r".+/eval/\d{1,9}")
"""The name of a task that evaluations play."""
NUM_NAMED = 20
"""Lines of data that are named, where more cannot be used."""
DataForm = Literal["conversations", "preferences", "labelled answers"]
TOLD = "told"
"""The fact of a run that says what its environment tells an agent."""
COLLECT = "collect"
"""What made a run of episodes that nothing was trained on, and its phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where conversations come from: ``Source(name="chats.jsonl", path=Path("/data/chats.jsonl"))``."""

    name: str
    """as the configuration has it"""
    path: Path
    """a file or folder of records, or the folder of a run"""

    @property
    def is_run(self) -> bool:
        """Whether it is a run's folder."""
        return (self.path / JOURNAL).is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """What was read: ``Demonstrations(data=[…], digest="9f3c…", summary="120 conversations of chats.jsonl")``."""

    data: Sequence[Trajectory] | Sequence[Pair]
    digest: str
    summary: str
    """a line for people"""
    notes: tuple[str, ...] = ()
    """what people should know of it, a line each"""


def find_source(name: str, root: Path | None = None) -> Source:
    """Return the data that `name` is: a path, a run's folder, a run under `root`, or a data set of the hub.

    A data set comes from the copy on this machine, or from the hub.

    Raises:
        DataError: there is no such thing.
    """
    places = [Path(name).expanduser(), *([root / name] if root is not None else [])]
    for place in places:
        if (place / JOURNAL).is_file() or is_data(place):
            return Source(name=name, path=place)
    if places[0].exists():
        data_files(places[0])
    looks_like_id = name.count("/") == 1 and reads_as_hub_id(name) and not Path(name).suffix
    if not looks_like_id:
        near = [*(p.name for p in places[0].parent.glob("*")), *(p.name for p in (root or Path()).glob("*"))]
        hint = similar_file(Path(name).name, near)
        raise DataError(
            f"demonstrations: got {name!r}, and there is no such file, folder or run; "
            f"{hint or 'check the path'}"
        )
    try:
        folder = snapshot_download(name, repo_type="dataset", allow_patterns=list(PATTERNS))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"demonstrations: got {name!r}, and there is no such file, and the hub gave {first}; check the name and "
            "the connection, or give the path of a file"
        ) from error
    return Source(name=name, path=Path(folder))


def find_named_data(config: TrainConfig) -> dict[str, str]:
    """Return the files, folders and runs that `config` names as data, by the option that names them."""
    named = {
        "demonstrations": config.demonstrations,
        "preferences": getattr(config, "preferences", ""),
        "corpus": getattr(config, "corpus", ""),
    }
    return {key: name for key, name in named.items() if isinstance(name, str) and name}


def place_data(config: TrainConfig, root: Path | None = None, *, is_trusted: bool = False) -> TrainConfig:
    """Return `config` with paths that hold wherever it is continued, and with an environment.

    Where it names none, that is the run's whose episodes are imitated, and nothing at all for other data.

    Raises:
        DataError: its data is not there, or neither data nor an environment is named.
        ConfigError: that run's environment is somebody else's, and not to be trusted.
    """
    found = {key: find_source(name, root) for key, name in find_named_data(config).items()}
    changes: dict[str, Any] = {key: str(source.path.absolute()) for key, source in found.items()}
    if model := getattr(config, "reward_model", ""):
        changes["reward_model"] = find_model(model, root)
    changes["model"] = place_name(config.model, root)
    changes["agent"], changes["eval_environment"] = (
        place_files(config.agent),
        place_files(config.eval_environment),
    )
    changes["policies"] = {
        name: replace(each, model=find_model(each.model, root)) if is_of_run(each.model, root) else each
        for name, each in config.policies.items()
    }
    environment = config.environment
    if environment == NONE or (not environment and found):
        environment = NO_ENVIRONMENT
    run = next((source for source in found.values() if source.is_run), None)
    if not config.environment and run is not None:
        with Run.open(run.path, writable=False) as opened:
            found_there = admit(
                opened, is_trusted=is_trusted, to="playing what was shown in", fields=ENVIRONMENT
            )
        environment = str(found_there["environment"])
    if not environment:
        option = "preferences" if hasattr(config, "preferences") else "demonstrations"
        raise DataError(
            f"data: got neither data nor an environment; give --{option} FILE (docs/data.md), or --environment E, in "
            "which episodes are played"
        )
    if environment == NO_ENVIRONMENT and not isinstance(config.demonstrations, str):
        changes["demonstrations"] = 0  # nobody is there to teach
    return replace(config, environment=place_files(environment), **changes)


def load_data(
    source: Path,
    tokenizer: PreTrainedTokenizerBase,
    config: TrainConfig,
    *,
    agent: Agent | None,
    max_length: int,
    form: DataForm = "conversations",
) -> Demonstrations:
    """Return the conversations, the preferences or the labelled answers of `source` as the policy's tokens.

    Args:
        source: a file or folder of records, or a run's folder.
        tokenizer: the policy's.
        config: names the environment, and says which answers are trained and how long a conversation may be.
        agent: the policy's harness in the environment; None where there is none.
        max_length: longest stream of the model.
        form: what is read.

    Raises:
        DataError: it cannot be read, a record does not fit, or nothing is left.
    """
    place = place_of(config.environment, agent.agent if isinstance(agent, Labelled) else agent)
    transcriber = Transcriber(Chat(tokenizer), rules_of(config, max_length), place=place)
    is_run = (source / JOURNAL).is_file() and form == "conversations"
    left_out = transcriber.notes.left_out(transcriber.rules)
    data: list[Trajectory] | list[Pair]
    if is_run:
        name = f"the run {source.name}"
        data, found = read_run(source, tokenizer, config, transcriber)
    else:
        found, name = digest(source), source.name
        objects = read_objects(source)
        if form == "preferences":
            data = list(transcriber.pairs(read_preferences(objects, left_out=left_out)))
        elif form == "labelled answers":
            answers = transcriber.trajectories(read_labelled(objects, left_out=left_out))
            data = [replace(each, index=int(not each.is_success)) for each in answers]
        else:
            records = read_records(objects, takes_labels=takes_failures(config), left_out=left_out)
            data = list(transcriber.trajectories(without_held_out(records, config)))
    said = notes_in_words(transcriber.notes)
    if not data:
        raise DataError(
            f"{name}: got nothing to imitate{said and f' ({said})'}; check it with: "
            f"{write_command('quintain', 'check', source)}"
        )
    summary = f"{len(data):,} {'episodes' if is_run else form} of {name}{said and f'; {said}'}"
    notes = tuple(lines_of(transcriber.notes))
    return Demonstrations(data=data, digest=found, summary=summary, notes=notes)


def takes_failures(config: DataSection) -> bool:
    """Whether the method of `config` tells failures among its demonstrations from successes, and learns from both."""
    return hasattr(config, "opening_words")


def without_held_out(records: Iterable[Record], config: DataSection) -> Iterator[Record]:
    """Yield `records`, none of which is of a task that evaluations of `config` play, by its name or by its prompt.

    Raises:
        DataError: one is.
    """
    prompts = read_held_out_prompts(config.eval_environment or config.environment)
    for record in records:
        task = str(record.fields.get("task", ""))
        asked = [as_text(each.content).strip() for each in record.messages if each.role == "user"]
        if place := next((prompts[text] for text in (task, *asked) if text in prompts), ""):
            raise DataError(
                f"{record.place}: got a conversation of {place}, a task that is held out; leave it out of the "
                "conversations, or of what is held out"
            )
        if config.environment != NO_ENVIRONMENT and HELD_OUT.fullmatch(task):
            raise DataError(
                f"{record.place}: got a conversation of {task}, which evaluations play; take those of eval tasks out: "
                "quintain data FILE --out NEW.jsonl"
            )
        yield record


def rules_of(config: TrainConfig, max_length: int) -> Rules:
    """Return which answers are trained and how long a conversation may be, and what says so."""
    limits = {"tokens_per_microbatch": config.tokens_per_pass, "the model's context": max_length}
    if config.max_context is not None:
        limits["max_context"] = config.max_context
    limit = min(limits, key=lambda name: limits[name])
    return Rules(
        train_on=config.train_on,
        max_tokens=limits[limit],
        limit=limit,
        overlong=config.overlong,
        unusable=config.unusable,
        opening=getattr(config, "opening_words", lambda _: ""),
    )


def place_of(environment: str, agent: Agent | None) -> Place | None:
    """Return what a rollout of `agent` in `environment` shows; None without an environment."""
    if environment == NO_ENVIRONMENT or agent is None:
        return None
    told = ask(find(environment), read_openings)
    return Place(name=environment, told=tuple(told.values()), agent=agent)


def read_openings(environment: Environment) -> dict[str, OpeningPrompt]:
    """Return what `environment` tells an agent before a task is known; of a mixture, what each part does, by name."""
    parts = environment.parts() if isinstance(environment, MixedEnvironment) else {"": environment}
    return {
        name: OpeningPrompt(system=check_instructions(part), tools=check_tools(part))
        for name, part in parts.items()
    }


def teller(environment: str) -> Callable[[Trajectory], OpeningPrompt]:
    """Return what an episode of `environment` was begun with: its instructions and prompt, and its tools."""
    return openings_by_task(ask(find(environment), read_openings))


def openings_by_task(known: Mapping[str, OpeningPrompt]) -> Callable[[Trajectory], OpeningPrompt]:
    """Return what an episode was begun with, of what each part of its environment tells, by name."""

    def find_opening(trajectory: Trajectory) -> OpeningPrompt:
        own = known.get(trajectory.task.environment, next(iter(known.values())))
        brief = Brief(task=trajectory.task, instructions=own.system)
        return replace(own, system=system_text(brief))

    return find_opening


def openings_in(run: Run, environment: str = "") -> Callable[[Trajectory], OpeningPrompt]:
    """Return what an episode of `run` was begun with, as it was recorded; nothing is imported for it.

    A run of an earlier release did not record it: then its environment is asked where that is quintain's own. The
    `environment` that this user names is asked in any case.

    Raises:
        DataError: it was not recorded, and the environment is code that nobody names.
    """
    own = str(run.config.get("environment", NO_ENVIRONMENT))
    if environment:
        return teller(environment)
    if fact := run.fact(TOLD):
        return openings_by_task(read_told(fact, str(run.folder)))
    if is_built_in(own):
        return teller(own)
    raise DataError(
        f"instructions and tools of the run {run.folder}: got one that did not record them, with the environment "
        f"{own}; name that, if you trust it: quintain export RUN --to FORM --environment E"
    )


def keep_told(run: Run, make_environment: Factory) -> None:
    """Write what the environment of `run` tells an agent into the journal, so that nobody need ask it again."""
    if run.fact(TOLD):
        return
    rows = {
        name: {"system": told.system, "tools": [write_tool(tool) for tool in told.tools]}
        for name, told in ask(make_environment, read_openings).items()
    }
    run.set_fact(TOLD, json.dumps(rows, default=dict))


def read_told(text: str, place: str) -> dict[str, OpeningPrompt]:
    """Return what `keep_told` wrote.

    Raises:
        DataError: it is something else.
    """
    try:
        rows: object = load_json(text)
        named = {str(name): as_object(row, place) for name, row in cast("dict[str, object]", rows).items()}
    except (ValueError, AttributeError) as error:
        raise DataError(f"what the run {place} was told: got {error}; restore the run from a copy") from error
    return {
        name: OpeningPrompt(system=str(row.get("system", "")), tools=read_tools(row.get("tools", []), place))
        for name, row in named.items()
    } or {"": OpeningPrompt()}


def tell_records(source: Path) -> Callable[[Trajectory], OpeningPrompt]:
    """Return what the conversations of `source` were begun with: the system text and the tools of each.

    Raises:
        DataError: it is a run, whose environment tells that; or no conversation lists a tool.
    """
    if (source / JOURNAL).is_file():
        raise DataError(
            f"tools of the run {source}: got no environment, which lists them; name the run's with --environment"
        )
    known: dict[str, OpeningPrompt] = {}
    for record in read_records(read_objects(source)):
        first = record.messages[0]
        system = as_text(first.content) if first.role == "system" else ""
        known[f"{record.file}:{record.line}"] = OpeningPrompt(system=system, tools=record.tools)
    if not any(told.tools for told in known.values()):
        raise DataError(
            f"tools of {source.name}: got {len(known)} conversations none of which lists a tool; give each its tools, "
            "or name the environment that has them with --environment"
        )
    return lambda trajectory: known.get(trajectory.task.id, OpeningPrompt())


def write_run(
    trajectories: Sequence[Trajectory],
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    settings: Mapping[str, Any],
    *,
    make_environment: Factory | None = None,
    replace: bool = False,
) -> None:
    """Write `trajectories` as step 0 of the new run `folder`, with the tokenizer of their ids.

    What `make_environment` tells an agent is written down, too.

    Raises:
        UsageError: there is a run of that name, which is not to be replaced.
    """
    new = Run.create(folder, recipe=COLLECT, config=settings, replace=replace)
    with looked_after(new, start=None, is_new=True) as run:
        run.append(trajectories, step=0, phase=COLLECT)
        run.commit(0, evaluate(trajectories).metrics(f"{COLLECT}/"), phase=COLLECT)
        tokenizer.save_pretrained(str(folder / TOKENIZERS[0]))
        run.record_files(TOKENIZERS[0])
        if make_environment is not None:
            keep_told(run, make_environment)
        run.finish()


def read_run(
    folder: Path, tokenizer: PreTrainedTokenizerBase, config: DataSection, transcriber: Transcriber
) -> tuple[list[Trajectory], str]:
    """Return the training episodes that were solved in the run `folder`, with a digest of all of them.

    Held-out tasks and failures are left out, and what was not solved unless the method takes that, too.

    Raises:
        DataError: there is no such episode.
    """
    own = tokenizer_of(folder)
    total = hashlib.sha256()
    found: list[Trajectory] = []
    with Run.open(folder, writable=False) as run:
        environment, agent = str(run.config["environment"]), str(run.config.get("agent", "auto"))
        is_there = environment == config.environment
        is_same = agent == config.agent and is_there and same_tokens(own, tokenizer)
        told = (
            None
            if is_same
            else openings_in(run, config.environment if is_there and not run.fact(TOLD) else "")
        )
        decode = Chat(own).text
        for trajectory in follow_searches(run.trajectories()):
            if trajectory.task.is_held_out or not isinstance(trajectory.outcome, Score):
                continue
            total.update(f"{trajectory.id}\0{trajectory.num_sampled}\n".encode())
            if not trajectory.is_success and not takes_failures(config):
                continue
            for number, part in enumerate(by_seat(trajectory)):
                name = f"{folder.name}:{trajectory.id or len(found)}{f'/{number}' if number else ''}"
                kept = (
                    train_only(part, config.train_on)
                    if told is None
                    else rewrite_episode(part, decode, told(part), transcriber, name)
                )
                if kept is not None:
                    found.append(replace(kept, group=name, index=0, parent=None))
    if not found:
        raise DataError(
            f"demonstrations of the run {folder}: got no solved episode of a training task; name a run that has some"
        )
    return found, total.hexdigest()


def rewrite_episode(
    trajectory: Trajectory,
    decode: Callable[[Sequence[int]], str],
    told: OpeningPrompt,
    transcriber: Transcriber,
    name: str,
) -> Trajectory | None:
    """Return an episode as the policy would have lived through it, in tokens of its own."""
    run, _, episode = name.partition(":")
    found = FileValue(file=run, line=0, value=None)
    kept = find_conversation(trajectory)
    record = read_record(to_record(trajectory, decode, told=told) if kept is None else kept[0], found)
    record = replace(record, place=f"episode {episode} of the run {run}")
    written = next(iter(transcriber.trajectories([record])), None)
    return None if written is None else replace(written, task=trajectory.task, outcome=trajectory.outcome)


def harness_of(target: str | Path, *, is_trusted: bool = False, to: str = "acting as") -> str:
    """Return the name of the harness that the run `target` was trained with; ``auto`` for what is no run.

    Raises:
        ConfigError: it is an agent of somebody else's, and not to be trusted.
    """
    return str(admit_run(target, is_trusted=is_trusted, to=to, fields=("agent",)).get("agent", AUTO))


def same_tokens(left: PreTrainedTokenizerBase, right: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers give the same ids in the same chat template."""
    return left.get_vocab() == right.get_vocab() and left.chat_template == right.chat_template


def tokenizer_of(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer that the ids in the run `folder` are of.

    Raises:
        DataError: it has none.
    """
    for name in TOKENIZERS:
        if (folder / name).is_dir():
            return load_tokenizer(folder / name)
    raise DataError(f"tokenizer of the run {folder}: got a run without one; take another run")


def check_digest(run: Run, role: str, found: Demonstrations) -> bool:
    """Record what was read as `role` in the journal of `run`; return whether that is new.

    Raises:
        DataError: the run began with other data.
    """
    known = [
        event["data"] for event in run.events() if event["kind"] == EVENT and event["data"]["role"] == role
    ]
    if not known:
        run.event(EVENT, found.summary, role=role, digest=found.digest, notes=list(found.notes))
        return True
    began = str(known[-1]["digest"])
    if began == found.digest:
        return False
    if not run.accepts_changes:
        raise DataError(
            f"{role} of the run {run.folder}: got data with the digest {found.digest[:12]}, and the run began with "
            f"{began[:12]}; bring the file back as it was, start a new run, or go on with it as it is, which the "
            "report will show: --accept-changes"
        )
    run.event(CHANGED, f"from step {run.next_step} on: {role}, which is now {found.summary}")
    run.event(EVENT, found.summary, role=role, digest=found.digest, notes=list(found.notes))
    return True


def texts_of(source: Path) -> Iterator[str]:
    """Yield the texts of the records of `source`, which a new tokenizer is trained on; none for a run."""
    if (source / JOURNAL).is_file():
        return
    for found in read_objects(source):
        try:
            records = records_in(found)
        except DataError:
            continue
        for record in records:
            for message in record.messages:
                yield whole_text(message)
                yield from (write_tool_calls([call]) for call in message.tool_calls)


def records_in(found: FileValue) -> Sequence[Record]:
    """Return the conversations in an object of any form: of a preference both sides.

    Raises:
        DataError: it cannot be read.
    """
    if form_of(as_object(found.value, found.place)) == "preference":
        preference: Preference = next(read_preferences([found]))
        return preference.chosen, preference.rejected
    return tuple(read_records([found], takes_labels=True))


def notes_in_words(notes: Notes) -> str:
    """Return what was left out, in words; empty where nothing was."""
    parts: list[str] = []
    if notes.num_long:
        parts.append(f"{notes.num_long} longer than the context left out")
    if notes.num_untrained:
        parts.append(f"{notes.num_untrained} without an answer to train left out")
    if notes.unusable:
        parts.append(f"{len(notes.unusable)} that cannot be used left out")
    if notes.other_tools:
        first = next(iter(notes.other_tools))
        parts.append(
            f"{len(notes.other_tools)} with other tools than the environment (first {first}), whose own are shown"
        )
    for part, count in sorted(notes.lost.items()):
        parts.append(f"{part} of {count} answers left out, which the model's template cannot write there")
    return ", ".join(parts)


def lines_of(notes: Notes) -> Iterator[str]:
    """Yield what people should know of data that was read, a line each: what nobody reads, and what was left out."""
    for what, num in notes.unread.most_common(NUM_NAMED):
        thing, _, of = what.partition(" of ")
        yield f"{thing} of {num:,} {of} is not read"
    if notes.num_empty:
        yield f"{notes.num_empty:,} answers say nothing, and are not trained (weight 1 trains them)"
    if notes.mended:
        more = f" and {len(notes.mended) - 1:,} more lines" if len(notes.mended) > 1 else ""
        yield f"half of a surrogate pair in {notes.mended[0]}{more} is U+FFFD now"
    yield from (f"left out: {line}" for line in notes.unusable[:NUM_NAMED])
    if len(notes.unusable) > NUM_NAMED:
        yield f"left out: {len(notes.unusable) - NUM_NAMED:,} more lines that cannot be used"
