"""A policy over tool calls, as data (Progent, arXiv 2504.11703): who may call what, with which arguments.

A file of JSON has, per tool, a list of rules; what no rule allows is refused. A rule of a lower number of `priority`
comes first, and of equal ones those that forbid; the first that matches decides. Conditions are JSON schemas of single
arguments. They are strict where schemas are lenient: a pattern fits the whole text, a bound is for numbers alone, an
argument that is missing fulfils nothing unless it is named as optional, and True is not 1. The keyword ``said_by`` asks
that a value was said before: by the task, or in the result of a tool. The published code departs from all of these.

Beside its tools a policy may have an order in which they are to be called (``$order``, `quintain.safety.temporal`); a
call must be allowed by both, and a policy of an order alone allows every tool in it.

Nothing here runs code: a policy is read from a file whose content stands in the manifest of a run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, cast, get_args

import regex
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.validators import extend

from quintain.config.files import find_near, read_file
from quintain.errors import ConfigError, UsageError, suggestion
from quintain.safety.guard import ALLOWED, Effect, Verdict
from quintain.safety.temporal import OTHER, Automaton, TemporalGuard, read_order
from quintain.types import Action, CallResult, Observation, Task, ToolCall, ToolSpec, as_text

Fallback = Literal["message", "end", "ask"]
SAY = "say"
"""The tool that an action without a call is judged as, with the argument ``text``."""
ORDER = "$order"
"""The part of a policy that says in which order tools may be called."""
TASK = "task"
"""The source of ``said_by`` that is the first observation."""
SAID_BY = "said_by"
KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), (int, float)
    ),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), (str,)),
    **dict.fromkeys(("items", "minItems", "maxItems", "uniqueItems", "contains"), (list,)),
    **dict.fromkeys(("properties", "required", "additionalProperties"), (dict,)),
}
"""Keywords of a schema that are about values of one type, and fulfilled by no other here."""
KEYWORDS = frozenset([*KINDS, "type", "enum", "const", "anyOf", "allOf", "not", SAID_BY])
"""Keywords of a schema that a condition may have."""
PARTS = ("priority", "effect", "when", "optional", "fallback", "says", "installs")
EFFECTS, FALLBACKS = ("allow", "forbid"), get_args(Fallback)
PATTERN_SECONDS = 1.0
"""Seconds that a pattern may take."""
UNKNOWN = (TimeoutError, RecursionError, ArithmeticError)
"""What is raised where it cannot be said whether a value fulfils a schema."""
DEEPEST = 64
"""Tables and lists within each other that a policy may have; what is checked goes as deep."""
LONGEST = 120
"""Characters of a complaint."""
PUBLISHED_PARTS = ("priority", "effect", "conditions", "fallback")
PUBLISHED: Mapping[int | None, Any] = {None: "message", 0: "message", 1: "end", 2: "ask"}
"""Fallbacks as the published code numbers them, in rules that are lists: [priority, effect, conditions, fallback]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is so of calls that match: ``Rule(effect="allow", when={"order": {"said_by": ["task"]}})``."""

    effect: Literal["allow", "forbid"] = "allow"
    priority: int = 1
    when: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """argument → JSON schema; all must hold"""
    optional: frozenset[str] = frozenset()
    """arguments of `when` that a call may lack"""
    fallback: Fallback = "message"
    """what becomes of a call that it forbids, or that it alone could have allowed"""
    says: str = ""
    """what the agent is told then, instead of the usual"""
    installs: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict[str, "tuple[Rule, ...]"])
    """tool → the rules that it has once a call has matched and was allowed"""


Rules = Mapping[str, tuple[Rule, ...]]
"""tool → its rules, in the order in which they are tried"""
Said = tuple[tuple[str, str], ...]
"""what was said so far: (source, text)"""
_said: ContextVar[Said] = ContextVar("_said", default=())


class Policy:
    """A `Guard` by rules: ``Policy.load("policy.json")``. It has the state of one episode, and shares none of it."""

    def __init__(self, rules: Rules, order: Automaton | None = None) -> None:
        """Begin with `rules`, and with the `order` of calls; see `read_policy` and `read_order_of`."""
        self._order = None if order is None else TemporalGuard(order)
        self._is_open = order is not None and not rules
        self._given = {tool: sort_rules(each) for tool, each in rules.items()}
        self._rules: Rules = self._given
        self._sources = frozenset(find_sources(rules))
        self._said: Said = ()

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Return the policy in the file at `path`; raises as `read_policy` does."""
        return cls(read_policy(path), read_order_of(path))

    @property
    def rules(self) -> Rules:
        """The rules that hold now, in their order."""
        return self._rules

    def begin(self, task: Task, observation: Observation) -> None:
        """See `Guard.begin`: what rules installed is forgotten."""
        self._rules = self._given
        self._said = ()
        if self._order is not None:
            self._order.begin(task, observation)
        self._hear((TASK, as_text(observation)), (TASK, task.prompt))

    def see(self, actions: tuple[Action, ...], observation: Observation) -> None:
        """See `Guard.see`: each result is said by the tool that was called."""
        names = [action.tool_calls[0].name if action.tool_calls else SAY for action in actions]
        parts = () if isinstance(observation, str) else observation
        results = [part for part in parts if isinstance(part, CallResult)]
        if len(results) == len(names):
            self._hear(*((names[part.call], part.text) for part in results))
        elif len({*names}) == 1:  # of several tools it is not known who said what of one text
            self._hear((names[0], as_text(observation)))

    def _hear(self, *said: tuple[str, str]) -> None:
        """Keep of what was `said` that which a rule may ask for, each once, in an order that does not tell when."""
        kept = {(source, text) for source, text in said if source in self._sources and text}
        self._said = tuple(sorted({*self._said, *kept}))

    def judge(self, action: Action) -> Verdict:
        """See `Guard.judge`; rules that the matching one installs hold from the next call on."""
        if self._order is None:
            return self._judge(action)
        before = self._rules
        verdict = ALLOWED if self._is_open else self._judge(action)
        if verdict.effect == "allow":
            verdict = self._order.judge(action)
            if verdict.effect != "allow":
                self._rules = before  # a refused call installs nothing
        return verdict

    def _judge(self, action: Action) -> Verdict:
        """Return what the rules say of `action`."""
        call = action.tool_calls[0] if action.tool_calls else None
        if call is None:
            if SAY not in self._rules:
                return ALLOWED
            call = ToolCall(name=SAY, arguments={"text": action.text})
        verdict, rule = decide(self._rules.get(call.name, ()), call, self._said)
        if verdict.effect == "allow" and rule is not None and rule.installs:
            self._rules = {**self._rules, **{name: sort_rules(each) for name, each in rule.installs.items()}}
        return verdict

    def snapshot(self) -> tuple[Any, ...]:
        """Return the rules that hold, what was said, and where in the order the calls are, if there is one."""
        order = () if self._order is None else (self._order.snapshot(),)
        return self._rules, self._said, *order

    def restore(self, state: tuple[Any, ...]) -> None:
        """Continue from `state`."""
        self._rules, self._said, *order = state
        if self._order is not None:
            self._order.restore(order[0])


def sort_rules(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return `rules` in the order in which they are tried: low numbers first, and of equal ones those that forbid."""
    return tuple(sorted(rules, key=lambda rule: (rule.priority, rule.effect == "allow")))


def find_allowed(rules: Rules) -> Iterator[str]:
    """Yield the tools of which `rules`, or those that they install, may allow a call."""
    for tool, each in rules.items():
        yield from [tool for rule in each if rule.effect == "allow"]
        for rule in each:
            yield from find_allowed(rule.installs)


def find_sources(rules: Rules) -> Iterator[str]:
    """Yield the sources that conditions of `rules`, and of those that they install, ask for."""
    for rule in (rule for each in rules.values() for rule in each):
        for schema in rule.when.values():
            yield from _sources_in(schema)
        yield from find_sources(rule.installs)


def _sources_in(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sources that `schema` asks for, however deep."""
    yield from schema.get(SAID_BY, ())
    for part in _parts_of(schema):
        yield from _sources_in(cast("Mapping[str, Any]", part))


def decide(rules: Sequence[Rule], call: ToolCall, said: Said) -> tuple[Verdict, Rule | None]:
    """Return what `rules`, sorted, say of `call` where all of `said` was said, and the rule that allows it."""
    fault = last = None
    for number, rule in enumerate(rules, start=1):
        name = f"{call.name} {number}"
        found = find_fault(rule, call, said)
        if rule.effect == "forbid":
            if found is None or found[1]:
                return _refuse(rule, f"{call.name}: this is forbidden.", name), rule
        elif found is None:
            return replace(ALLOWED, rule=name), rule
        else:
            fault, last = fault or found[0], rule
    if last is None:
        reason = "no such call is allowed here" if rules else "this tool is not allowed here"
        return Verdict(effect="forbid", says=f"Error: {call.name}: {reason}."), None
    return _refuse(last, f"{call.name}: {fault}.", ""), None


def _refuse(rule: Rule, usual: str, name: str) -> Verdict:
    """Return the verdict of a call that `rule` refuses."""
    effects: Mapping[Fallback, Effect] = {"message": "forbid", "end": "end", "ask": "ask"}
    return Verdict(effect=effects[rule.fallback], says=f"Error: {rule.says or usual}", rule=name)


def find_fault(rule: Rule, call: ToolCall, said: Said) -> tuple[str, bool] | None:
    """Return a condition of `rule` that `call` does not fulfil, and whether that is unknown; None where it matches.

    It is unknown whether an argument that is missing fulfils its condition; one that surely does not is told first.
    """
    unknown: tuple[str, bool] | None = None
    for name, schema in rule.when.items():
        if name in call.arguments:
            try:
                reason = complaint(schema, call.arguments[name], said)
            except UNKNOWN:
                unknown = f"{name}: it cannot be found out whether this is allowed", True
                continue
            if reason:
                return f"{name}: {reason}", False
        elif name not in rule.optional:
            unknown = f"{name} must be given", True
        elif rule.effect == "forbid":
            return f"{name} is not given", False
    return unknown


def complaint(schema: Mapping[str, Any], value: object, said: Said = ()) -> str:
    """Return what of `schema` the `value` does not fulfil where all of `said` was said; empty where it fulfils all.

    Raises:
        TimeoutError, RecursionError, ArithmeticError: it cannot be said.
    """
    token = _said.set(said)
    try:
        error = next(_validator_of(json.dumps(schema)).iter_errors(value), None)
    finally:
        _said.reset(token)
    return "" if error is None else error.message[:LONGEST]


def is_said(value: object, text: str) -> bool:
    """Whether `value`, a text or a number, stands in `text` as words of their own; of a list, every part of it."""
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return bool(parts) and all(is_said(part, text) for part in parts)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    words = str(value).strip()
    pattern = rf"(?<!\w){regex.escape(words)}(?!\w)"
    return bool(words) and regex.search(pattern, text, regex.IGNORECASE) is not None


def is_kind(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether `value` is of `kinds`; a truth value is no number, nor is one that is not finite."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return not isinstance(value, float) or math.isfinite(value)


Found = Iterator[ValidationError]
Check = Callable[[Any, Any, Any, Any], "Found | None"]


def _strict(name: str, check: Check) -> Check:
    """Return `check` of the keyword `name` as one that no value of another type fulfils."""

    def strict(validator: Any, rule: Any, value: Any, schema: Any) -> Found:
        if not is_kind(value, KINDS[name]):
            yield ValidationError(f"{value!r:.40} is of the wrong type")
        else:
            yield from check(validator, rule, value, schema) or ()

    return strict


def _fits(_validator: Any, pattern: str, value: Any, _schema: Any) -> Found:
    """Yield a fault unless the whole of `value` is as `pattern` says."""
    if not regex.fullmatch(pattern, value, timeout=PATTERN_SECONDS):
        yield ValidationError(f"{value!r:.40} is not as {pattern} says")


def _was_said(_validator: Any, sources: list[str], value: Any, _schema: Any) -> Found:
    """Yield a fault unless `value` was said by one of `sources`; of a list, each part by any of them."""
    heard = [text for source, text in _said.get() if source in sources]
    parts = cast("list[object]", value) if isinstance(value, list) else [cast(object, value)]
    if not parts or not all(any(is_said(part, text) for text in heard) for part in parts):
        yield ValidationError(f"{value!r:.40} was not said by {' or '.join(sources)}")


_DEFINED = cast("Mapping[str, Check]", Draft202012Validator.VALIDATORS)
_Validator: Any = extend(
    Draft202012Validator,
    {
        **{name: _strict(name, _fits if name == "pattern" else _DEFINED[name]) for name in KINDS},
        SAID_BY: _was_said,
    },
)


@lru_cache(maxsize=1024)
def _validator_of(schema: str) -> Any:
    return _Validator(json.loads(schema))


def read_policy(path: str | Path) -> Rules:
    """Return the rules in the file at `path`; none where it has an order alone.

    Raises:
        UsageError: there is no such file, or it is no .json.
        ConfigError: it is no policy, a schema is none, or rules contradict each other: with the place.
    """
    file = Path(path)
    table = _read_table(file)
    table.pop(ORDER, None)
    return read_rules(table, f"policy {file.name}")


def read_rules(table: Mapping[str, object], where: str) -> Rules:
    """Return the rules in `table`, tool → list of rules; raises as `read_policy` does."""
    refuse_unreadable(table, where)
    rules = {tool: _read_rules(each, f"{where}: {tool}") for tool, each in table.items()}
    for tool, each in rules.items():
        refuse_contradiction(each, f"{where}: {tool}")
    return rules


def read_order_of(path: str | Path) -> Automaton | None:
    """Return the order of calls in the policy at `path`; None where it has none.

    Raises as `read_policy` does, and a `ConfigError` where its rules allow no call that the order asks for.
    """
    file = Path(path)
    table = _read_table(file)
    if ORDER not in table:
        return None
    order, rules = read_order(table[ORDER], f"policy {file.name}: {ORDER}"), read_policy(file)
    allowed = {*find_allowed(rules), *([] if SAY in rules else [SAY])} if rules else {*order.names}
    told_apart = {name if name in order.names else OTHER for name in allowed}
    if not order.can_accept(told_apart):
        raise ConfigError(
            f"policy {file.name}: got rules that allow no trace which {ORDER} accepts; give each tool that it asks for "
            "a rule, or write another formula"
            if rules
            else f"policy {file.name}: {ORDER}: got a formula that holds of no action at all, so that nothing may be "
            "done; mend it"
        )
    return order


def _read_table(file: Path) -> dict[str, Any]:
    """Return what is in the policy `file`, as far as it can be checked without knowing its parts."""
    if file.suffix != ".json":
        raise ConfigError(
            f"policy: got {str(file)!r}; give a .json file, tool → list of rules (docs/guards.md)"
        )
    if not file.is_file():
        raise UsageError(
            f"policy: got {str(file)!r}, which is no file, and what is guarded by it cannot be played without; "
            f"{find_near(file)}"
        )
    table = read_file(file)
    if not table:
        raise ConfigError(
            f"policy {file.name}: got no tool, and would refuse every call; give a tool its rules"
        )
    refuse_unreadable(table, f"policy {file.name}")
    return dict(table)


def refuse_unreadable(table: object, where: str) -> None:
    """Raise a `ConfigError` where `table` is too deep to be checked, or has a number that bounds nothing."""
    left: list[tuple[object, int]] = [(table, 1)]
    while left:
        found, depth = left.pop()
        if depth > DEEPEST:
            raise ConfigError(
                f"{where}: got more than {DEEPEST} tables and lists in each other; make it flatter"
            )
        if isinstance(found, float) and not math.isfinite(found):
            raise ConfigError(f"{where}: got the number {found}, which bounds nothing; give a finite one")
        inner: object = found
        if isinstance(found, dict):
            inner = list(cast("dict[str, object]", found).values())
        if isinstance(inner, list):
            left += [(each, depth + 1) for each in cast("list[object]", inner)]


def _read_rules(found: object, where: str) -> tuple[Rule, ...]:
    """Return the rules of a tool, in the order of the file."""
    if not isinstance(found, list):
        raise ConfigError(
            f"{where}: got {found!r:.60}; give a list of rules, [{{}}] for one that allows every call"
        )
    rules = cast("list[object]", found)
    return tuple(_read_rule(each, f"{where}, rule {number}") for number, each in enumerate(rules, start=1))


def _read_rule(found: object, where: str) -> Rule:
    """Return a rule, from a table, or from a list or a table with ``conditions`` as published code has them."""
    if isinstance(found, dict) and "conditions" in found:
        found = _list_published(cast("dict[str, Any]", found), where)
    if isinstance(found, list):
        found = _from_published(cast("list[Any]", found), where)
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: got {found!r:.60}; give a table with some of {', '.join(PARTS)}")
    table = cast("dict[str, Any]", found)
    for name in table:
        if name not in PARTS:
            raise ConfigError(f"{where}: got {name!r}; {suggestion(name, PARTS)}")
    effect, fallback = table.get("effect", "allow"), table.get("fallback", "message")
    for name, value, known in (("effect", effect, EFFECTS), ("fallback", fallback, FALLBACKS)):
        if value not in known:
            raise ConfigError(f"{where}: got the {name} {value!r:.40}; give one of {', '.join(known)}")
    priority, says = table.get("priority", 1), table.get("says", "")
    if type(priority) is not int:
        raise ConfigError(
            f"{where}: got the priority {priority!r:.40}; give a whole number, low ones come first"
        )
    if not isinstance(says, str):
        raise ConfigError(f"{where}: got says {says!r:.40}; give a text")
    when, installs, optional = table.get("when", {}), table.get("installs", {}), table.get("optional", [])
    for name, value in (("when", when), ("installs", installs)):
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: got {name} {value!r:.40}; give a table")
    for argument, schema in cast("dict[str, object]", when).items():
        refuse_schema(schema, f"{where}: {argument}")
    if not isinstance(optional, list) or not {*map(str, cast("list[object]", optional))} <= {*when}:
        raise ConfigError(f"{where}: got optional {optional!r:.60}; give a list of arguments that when has")
    return Rule(
        effect=effect,
        priority=priority,
        when=when,
        optional=frozenset(cast("list[str]", optional)),
        fallback=fallback,
        says=says,
        installs={
            tool: _read_rules(each, f"{where}, installs {tool}")
            for tool, each in cast("dict[str, object]", installs).items()
        },
    )


def _list_published(found: Mapping[str, Any], where: str) -> list[Any]:
    """Return a table with ``conditions`` as the list of the same."""
    for name in found:
        if name not in PUBLISHED_PARTS:
            raise ConfigError(f"{where}: got {name!r} beside conditions; {suggestion(name, PUBLISHED_PARTS)}")
    return [found.get("priority", 1), found.get("effect", 0), found["conditions"], found.get("fallback", 0)]


def _from_published(found: list[Any], where: str) -> dict[str, Any]:
    """Return ``[priority, effect, conditions, fallback]``, and rules to install after them, as a table.

    Patterns of published code are found anywhere in a text. Where they allow, they fit the whole of it here, which
    allows less; where they forbid they are found anywhere, for else less would be forbidden.
    """
    is_known = len(found) in (4, 5) and type(found[1]) is int and type(found[3]) in (int, type(None))
    if not is_known or found[1] not in (0, 1) or found[3] not in PUBLISHED:
        raise ConfigError(
            f"{where}: got {found!r:.60}; give a table, or [priority, 0 allow or 1 forbid, conditions, 0 message or "
            "1 end or 2 ask]"
        )
    priority, effect, when, fallback, *installs = found
    as_schemas: object = when
    if isinstance(when, dict):
        schemas = {
            name: {"pattern": each} if isinstance(each, str) else each
            for name, each in cast("dict[str, object]", when).items()
        }
        as_schemas = {name: _loosen(each, is_forbidding=effect == 1) for name, each in schemas.items()}
    table = {
        "priority": priority,
        "effect": EFFECTS[effect],
        "when": as_schemas,
        "fallback": PUBLISHED[fallback],
    }
    return {**table, "installs": installs[0] or {}} if installs else table


def _loosen(schema: object, *, is_forbidding: bool) -> object:
    """Return `schema` with patterns that are found anywhere in a text, where what they fit is forbidden."""
    if isinstance(schema, list):
        return [_loosen(each, is_forbidding=is_forbidding) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, object] = {}
    for name, each in cast("dict[str, object]", schema).items():
        if name == "pattern" and isinstance(each, str) and is_forbidding:
            found[name] = f"(?s:.*)(?:{each})(?s:.*)"
        elif name == "properties" and isinstance(each, dict):
            parts = cast("dict[str, object]", each)
            found[name] = {key: _loosen(part, is_forbidding=is_forbidding) for key, part in parts.items()}
        elif name in ("not", "items", "contains", "additionalProperties", "anyOf", "allOf"):
            found[name] = _loosen(each, is_forbidding=is_forbidding != (name == "not"))
        else:
            found[name] = each
    return found


def refuse_schema(schema: object, where: str) -> None:
    """Raise a `ConfigError` where `schema` is none, has a word that is not checked, or can never be fulfilled."""
    if not isinstance(schema, dict):
        raise ConfigError(f'{where}: got {schema!r:.60}; give a JSON schema, such as {{"enum": ["a"]}}')
    table = cast("dict[str, Any]", schema)
    for name in table:
        if name not in KEYWORDS:
            raise ConfigError(f"{where}: got {name!r}, which is not checked; {suggestion(name, KEYWORDS)}")
    sources = table.get(SAID_BY, [TASK])
    if not isinstance(sources, list) or not sources or not all(isinstance(each, str) for each in sources):
        raise ConfigError(
            f"{where}: got {SAID_BY} {sources!r:.40}; give a list of tools, and {TASK!r} for the task"
        )
    try:
        Draft202012Validator.check_schema({name: each for name, each in table.items() if name != SAID_BY})
        regex.compile(table.get("pattern", ""))
    except (SchemaError, regex.error) as error:
        told = error.message if isinstance(error, SchemaError) else f"its pattern has {error}"
        raise ConfigError(f"{where}: got a schema that is none ({told:.120}); mend it") from error
    for part in _parts_of(table):
        refuse_schema(part, where)
    if reason := find_impossible(table):
        raise ConfigError(
            f"{where}: got a condition that no value fulfils ({reason}); mend or remove the rule"
        )


def _parts_of(schema: Mapping[str, Any]) -> Iterator[object]:
    """Yield the schemas within `schema`."""
    for name in ("items", "not", "contains", "additionalProperties"):
        if name in schema and not isinstance(schema[name], bool):
            yield schema[name]
    for name in ("anyOf", "allOf"):
        yield from schema.get(name, ())
    yield from schema.get("properties", {}).values()


def find_impossible(schema: Mapping[str, Any]) -> str:
    """Return why no value fulfils `schema`, where that is plain to see; empty elsewhere."""
    rest = {name: each for name, each in schema.items() if name not in ("enum", "const", SAID_BY)}
    chosen = [schema["const"]] if "const" in schema else schema.get("enum")
    if chosen is not None:
        both = [
            each
            for each in chosen
            if "enum" not in schema or any(_is_same(each, one) for one in schema["enum"])
        ]
        if not any(not complaint(rest, each) for each in both):
            return "its values are ruled out by the rest"
    for least, most in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
        if least in schema and most in schema and schema[least] > schema[most]:
            return f"{least} {schema[least]} is above {most} {schema[most]}"
    kinds = {KINDS[name] for name in schema if name in KINDS}
    return "it asks for two types" if len(kinds) > 1 else ""


def _is_same(one: object, other: object) -> bool:
    """Whether two values of JSON are the same; True is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def refuse_contradiction(rules: Sequence[Rule], where: str) -> None:
    """Raise a `ConfigError` where two rules say the opposite of the same calls, or one can never be reached."""
    numbers = {id(rule): number for number, rule in enumerate(rules, start=1)}
    for one, other in combinations(rules, 2):
        if one.effect != other.effect and one.priority == other.priority and one.when == other.when:
            raise ConfigError(
                f"{where}: got rules {numbers[id(one)]} and {numbers[id(other)]}, which allow and forbid the same "
                "calls at one priority; remove one of them"
            )
    order = sort_rules(rules)
    for place, rule in enumerate(order[:-1]):
        if not rule.when:
            hidden = order[place + 1]
            raise ConfigError(
                f"{where}: got rule {numbers[id(hidden)]}, which is never reached, for rule {numbers[id(rule)]} comes "
                "first and decides every call; give it conditions, or another priority"
            )
    for rule in rules:
        for tool, installed in rule.installs.items():
            refuse_contradiction(installed, f"{where}, rule {numbers[id(rule)]}, installs {tool}")


def refuse_unknown_order(order: Automaton, tools: Sequence[ToolSpec], where: str) -> None:
    """Raise a `ConfigError` where `order` names what is not among `tools`."""
    names = [*(tool.name for tool in tools), SAY]
    for name in filter(None, order.names):
        if name not in names:
            raise ConfigError(f"{where}: got the tool {name!r} in {ORDER}; {suggestion(name, names)}")


def refuse_unknown(rules: Rules, tools: Sequence[ToolSpec], where: str) -> None:
    """Raise a `ConfigError` where `rules` name a tool, or an argument of one, that is not among `tools`."""
    known = {tool.name: tool for tool in tools}
    names = [*known, SAY]
    for tool, each in rules.items():
        if tool not in names:
            raise ConfigError(f"{where}: got the tool {tool!r}; {suggestion(tool, names)}")
        fields: Mapping[str, Any] = {"text": {"type": "string"}}
        if tool in known:
            fields = known[tool].parameters.get("properties", {})
        for number, rule in enumerate(each, start=1):
            place = f"{where}: {tool}, rule {number}"
            for argument, schema in rule.when.items():
                if argument not in fields:
                    raise ConfigError(
                        f"{place}: got the argument {argument!r}; {suggestion(argument, fields)}"
                    )
                _refuse_other_type(schema, fields[argument], f"{place}: {argument}")
                for source in _sources_in(schema):
                    if source not in (*names, TASK):
                        raise ConfigError(
                            f"{place}: got {SAID_BY} {source!r}; {suggestion(source, [*names, TASK])}"
                        )
            refuse_unknown(rule.installs, tools, f"{place}, installs")


TYPES: Mapping[tuple[type, ...], tuple[str, ...]] = {
    (int, float): ("integer", "number"),
    (str,): ("string",),
    (list,): ("array",),
    (dict,): ("object",),
}


def _refuse_other_type(schema: Mapping[str, Any], own: Mapping[str, Any], where: str) -> None:
    """Raise a `ConfigError` where `schema` is about another type than the argument has, which its `own` schema says."""
    kind = own.get("type")
    asked = schema.get("type", kind)
    if not isinstance(kind, str) or not isinstance(asked, str):
        return
    for name in (each for each in schema if each in KINDS):
        if kind not in TYPES[KINDS[name]]:
            raise ConfigError(f"{where}: got {name}, which no {kind} fulfils; the argument is of type {kind}")
    if asked != kind and {asked, kind} != {"integer", "number"}:
        raise ConfigError(f"{where}: got type {asked}; the argument is of type {kind}")
