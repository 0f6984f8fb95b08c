"""The one door for names in stored configurations: what a run folder names is used only where its user may be trusted.

A configuration that somebody types is theirs. One that lies in a folder is data, and data never names code: of a run
that this user did not make here, nothing is imported, started, opened or contacted that its ``config.json`` names, and
the refusal says what that would have been. Names that mean something of quintain's own (``keydoor?rooms=3``,
``window+tools``, ``local``) need no door.

What is let through is listed, and everything else is asked for: a word of letters, digits and a few signs with which no
place is written. So a field that is added tomorrow is behind the door before anybody thinks of it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from quintain.errors import ConfigError
from quintain.types.terminal import spell_out_line

Kind = Literal["command", "program", "Python file", "Python module", "address", "file", "service", "text"]
TASKS = "tasks:"
"""What an environment of the tasks of a file begins with: ``tasks:ENVIRONMENT@FILE``."""
SESSION = "session:"
"""What an environment of several tasks an episode begins with: ``session:ENVIRONMENT?tasks=3``."""
GUARDED = "guarded:"
"""What an environment under a policy begins with: ``guarded:ENVIRONMENT@POLICY.json``."""
ENVIRONMENT = ("environment",)
"""The field that names where a run's episodes are played."""
RECIPE = "method"
"""What the recipe of a run is called among the fields of its configuration."""
PLAIN = re.compile(r"[\w.,=+?&|@*<>()\[\]-]*", re.ASCII)
"""What is no name of a place: there is no slash, colon, quote, dollar, percent sign or blank in it."""
KEY = re.compile(r"[\w.,=+?&@/ -]+", re.ASCII)
"""What a key of a table may be, such as the seat ``agent/plan``."""
PYTHON = re.compile(r"\.py(?![\w-])", re.ASCII)
CODE_OR_FILE = re.compile(r"\.(py|toml)(?![\w-])", re.ASCII)
"""What a name of something to be read or run ends with, such as the agent ``agent.toml``."""
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
CARDS = re.compile(r"(?<=[?&])workers=[\w:,;]*(?=[&+]|$)", re.ASCII)
"""Who works and what each may do, as ``workers=anna:go,open;bert:take``: names of no place."""
OPTION = re.compile(r"(?<=[?&;,])\s*([\w-]+)=([^&;]*)", re.ASCII)
ADAPTERS = frozenset(
    [
        "agentdojo",
        "alfworld-engine",
        "babyai",
        "bfcl",
        "crafter",
        "gymnasium",
        "miniwob",
        "nle",
        "pettingzoo",
        "reasoning-gym",
        "scienceworld",
        "tau-bench",
        "tau2",
        "textarena",
        "textworld",
        "worker",
    ]
)
"""Environments that are followed by a slash and a name of the package that they adapt, or of ours."""
OUTSIDE: Mapping[str, Kind] = {
    "reward-function": "Python module",
    "agentgym": "address",
    "eu-agent-bench": "file",
    "http-tools": "file",
    "agent-issues": "file",
    "mcp": "file",
    "openenv": "address",
    "rexbench": "file",
    "verifiers": "Python module",
}
"""Environments that are followed by a slash and something of the user's."""
FIELDS: Mapping[str, Kind] = {
    "address": "address",
    "arguments": "command",
    "cases": "file",
    "chat_template": "file",
    "checkout": "Python module",
    "cluster": "address",
    "command": "command",
    "corpus": "file",
    "demonstrations": "file",
    "engine": "program",
    "expert": "Python module",
    "file": "file",
    "folder": "file",
    "grade": "Python module",
    "guard": "file",
    "key_file": "file",
    "labels": "file",
    "knowledge": "file",
    "library": "file",
    "notes": "file",
    "utility": "file",
    "log": "file",
    "pairs": "file",
    "placement": "file",
    "preferences": "file",
    "program": "program",
    "python": "program",
    "record": "file",
    "retriever": "file",
    "reward_model": "file",
    "run": "Python module",
    "solved": "file",
    "teacher": "address",
    "tests": "file",
    "track": "service",
    "url": "address",
    "user": "address",
    "user_key_file": "file",
    "user_tape": "file",
}
"""Fields and options whose value names something outside, whatever it looks like."""
HARMLESS: Mapping[str, Collection[str]] = {
    "engine": ("local", "process"),
    "labels": ("synthetic", "ask", "clear", "vague"),
    "rejected": ("N/A",),
    "retriever": ("bm25", "dense", "hnsw", "none"),
    "track": ("tensorboard",),
    "user": ("scripted",),
}
"""Values of these that name nothing outside."""
READ_ONCE = frozenset(
    [
        "key_file",
        "user_key_file",
        "placement",
        "record",
        "user_tape",
        "labels",
        "demonstrations",
        "preferences",
        "corpus",
    ]
)
"""Fields whose file may be another one, or grow, when a run goes on, or whose content has a digest in the journal."""
MAX_WRITTEN = 4
"""Names that a refusal lists."""
LONGEST = 120
"""Characters of a name that a refusal repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Something outside that is named: ``Named(field="agent", kind="command", text="python agent.py")``."""

    field: str
    kind: Kind
    text: str

    def __str__(self) -> str:
        """Return it in words."""
        shown = spell_out_line(self.text)
        return (
            f"{self.field}: the {self.kind} {shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + '…'}"
        )

    @property
    def has_place(self) -> bool:
        """Whether it means the same from every folder of work."""
        if self.kind == "program" and "/" not in self.text:
            return True  # it is looked for where programs are
        name, slash, rest = self.text.partition("/")
        place = rest if slash and name in OUTSIDE else self.text
        return self.kind in ("address", "service", "Python module", "text") or place.startswith(("/", "~"))

    def places(self) -> Iterator[Path]:
        """Yield the files and folders that it names, where they are there."""
        for word in re.split(r"[\s?&=@,;]+", self.text):
            stem = PYTHON.search(word)
            for text in dict.fromkeys((word, word[: stem.end()] if stem else word, word.partition("/")[2])):
                if text and (found := Path(text).expanduser()).exists():
                    yield found.absolute()
                    break


class Maker(Protocol):
    """Who made a run: `quintain.store.marks.Origin`."""

    @property
    def is_own(self) -> bool:
        """Whether it was this user."""
        ...

    @property
    def made_in(self) -> str:
        """Of one's own: the folder of work."""
        ...

    @property
    def reason(self) -> str:
        """Of any other: why it is none."""
        ...


class StoredRun(Protocol):
    """What is asked for at the door: `quintain.store.run.Run`."""

    folder: Path
    recipe: str
    config: dict[str, Any]

    @property
    def origin(self) -> Maker:
        """Who made it."""
        ...


def admit(
    run: StoredRun,
    *,
    is_trusted: bool,
    to: str,
    fields: Collection[str] | None = None,
    otherwise: str = "if you trust all of that, add --trust-run (trust_run=True in Python)",
) -> Mapping[str, Any]:
    """Return the configuration of `run`, which is to be used, for what `to` says; `fields`: only these of it are.

    `otherwise` is what helps whoever is refused.

    Raises:
        ConfigError: it names something outside of quintain, and this user neither made the run nor trusts it.
    """
    chosen: Mapping[str, Any] = {RECIPE: run.recipe, **run.config}
    if fields is not None:
        chosen = {name: chosen[name] for name in fields if name in chosen}
    named = [] if is_trusted else list(find_names(chosen))
    if not named:
        return run.config
    maker = run.origin
    reason = maker.reason
    if maker.is_own:
        named = [each for each in named if _is_elsewhere(each, run.folder, maker.made_in)]
        reason = f"you made it in {maker.made_in}, from where its files would be others"
    if named:
        raise ConfigError(refusal(run.folder, named, to=to, reason=reason, otherwise=otherwise))
    return run.config


def refusal(folder: Path, named: Sequence[Named], *, to: str, reason: str, otherwise: str) -> str:
    """Return the line that says what using the run `folder` would have used."""
    more = f" and {len(named) - MAX_WRITTEN} more" if len(named) > MAX_WRITTEN else ""
    return (
        f"{to} {spell_out_line(folder)}: got a run that may be somebody else's ({spell_out_line(reason)}), and "
        f"it would use {'; '.join(map(str, named[:MAX_WRITTEN]))}{more}; {otherwise}; view, check, "
        "compare and export only read it"
    )


def is_built_in(environment: str) -> bool:
    """Whether `environment` names only what is quintain's own."""
    return not list(_names_in_text("environment", environment))


def find_names(config: Mapping[str, Any]) -> Iterator[Named]:
    """Yield what `config` names outside of quintain, in its order."""
    for name, value in config.items():
        yield from _names_in(name, value)


def files_named(config: Mapping[str, Any]) -> list[Path]:
    """Return the files that `config` names, commands apart, and that must be the same when a run goes on."""
    named = [each for each in find_names(config) if each.kind not in ("command", "program")]
    kept = (each for each in named if each.field.rpartition(" ")[2] not in READ_ONCE)
    return [place for each in kept for place in each.places() if place.is_file()]


def _names_in(field: str, value: object) -> Iterator[Named]:
    """Yield what the `value` of `field` names."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[object, object]", value).items():
            if not KEY.fullmatch(str(key)) or ".." in str(key):
                yield Named(field=field, kind="text", text=str(key))
            yield from _names_in(str(key), inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("Sequence[object]", value):
            yield from _names_in(field, inner)
    elif isinstance(value, str):
        yield from _names_in_text(field, value)


def _names_in_text(field: str, text: str) -> Iterator[Named]:
    """Yield what the `text` of `field` names."""
    if not text or text in HARMLESS.get(field, ()):
        return
    while text.startswith((TASKS, GUARDED, SESSION)):
        if text.startswith(SESSION):
            text = text.removeprefix(SESSION)
            continue
        text, _, file = text.partition(":")[2].rpartition("@")
        yield Named(field=field, kind="file", text=file)
    options: list[Named] = []

    def take(match: re.Match[str]) -> str:
        """Keep an option that names something outside, and return what stays of the text."""
        name, given = match.groups()
        if name not in FIELDS:
            return match[0]
        if given and given not in HARMLESS.get(name, ()):
            options.append(Named(field=f"{field} {name}", kind=kind_of(given, FIELDS[name]), text=given))
        return ""

    rest = OPTION.sub(take, CARDS.sub("workers=", text))
    if field in FIELDS:
        yield from options or [Named(field=field, kind=kind_of(text, FIELDS[field]), text=text)]
        return
    for part in rest.removeprefix("mix:").split(","):
        if not _is_plain(part):
            yield Named(field=field, kind=kind_of(part), text=part)
    yield from options


def _is_plain(part: str) -> bool:
    """Whether `part` of a text names only what is quintain's own, or an installed package's that it adapts."""
    name, slash, rest = part.strip().partition("/")
    if slash and name in ADAPTERS:
        return _is_plain(rest)
    return (
        name.partition("?")[0] not in OUTSIDE
        and bool(PLAIN.fullmatch(part))
        and not CODE_OR_FILE.search(part)
    )


def kind_of(text: str, usual: Kind = "text") -> Kind:
    """Return what `text` names, as far as it shows; `usual` where it does not."""
    name, slash, _ = text.partition("/")
    if usual in ("command", "program", "service"):
        return usual
    if name in OUTSIDE and slash and not PYTHON.search(text):
        return OUTSIDE[name]
    if name in ADAPTERS and slash and ":" in text:
        return "Python module"
    if ADDRESS.search(text):
        return "address"
    if PYTHON.search(text):
        return "Python file"
    if MODULE.match(text) and not slash:
        return "Python module"
    return "file" if usual == "text" and (slash or CODE_OR_FILE.search(text)) else usual


def _is_elsewhere(named: Named, folder: Path, made_in: str) -> bool:
    """Whether `named`, of one's own run, may be another by now: it lies in the run, or was meant from elsewhere."""
    inside = folder.resolve()
    if any(place.resolve().is_relative_to(inside) for place in named.places()):
        return True
    return not named.has_place and made_in != str(Path.cwd())
