"""Functions of small agents for `repo?kind=agent`: parsers, memories, tool schemas, retries, stop words, limits.

Each has an issue as a user writes it, who sees what goes wrong and not where; tests that may be seen, which show every
bug; a patch that satisfies those and is wrong in a case that hidden tests have; and the same function in other words.
"""

from random import Random
from typing import Any

from quintain.worlds.repo.template import Arguments, Constants, Template

NAMES = ("search", "read", "write", "send", "list", "open")
WORDS = ("red", "blue", "gold", "salt", "moon", "tree", "wind", "rain")
TEXT = (("text",), ("answer",), ("reply",))
PAIR = (("known", "given"), ("before", "after"), ("first", "second"))


def _words(rng: Random, num: int) -> list[str]:
    return rng.sample(WORDS, num)


def _last_call(_constants: Constants, text: str) -> str:
    _, mark, tail = text.rpartition("<call>")
    return tail.partition("</call>")[0].strip() if mark and "</call>" in tail else ""


def _calls(rng: Random, _: Constants) -> list[Arguments]:
    first, second = rng.sample(NAMES, 2)
    return [[f"<call>{first}</call> then <call> {second} </call>"], [f"so <call>{first} </call>"]]


def _no_calls(rng: Random, constants: Constants) -> list[Arguments]:
    return [*_calls(rng, constants), [f"I would {rng.choice(NAMES)}"], [f"<call>{rng.choice(NAMES)}"]]


def _histories(rng: Random, _: Constants) -> list[Arguments]:
    words = _words(rng, 6)
    return [[words, 2], [words[:5], 3], [words[:2], 4]]


def _keep(_: Constants, messages: list[str], most: int) -> list[str]:
    return (
        messages
        if len(messages) <= most + 1
        else [messages[0], *messages[1:][-most if most else len(messages) :]]
    )


def _defaults(rng: Random, _: Constants) -> list[Arguments]:
    a, b = _words(rng, 2)
    return [[{a: 5, b: "x"}, {a: 0}], [{a: True}, {a: False}], [{a: 1, b: 2}, {b: 3}]]


def _fill(_: Constants, schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {**schema, **{name: value for name, value in given.items() if name in schema}}


def _retries(rng: Random, _: Constants) -> list[Arguments]:
    return [[4, rng.randint(1, 3), 100], [3, rng.randint(1, 3), 60]]


def _cap_retries(rng: Random, constants: Constants) -> list[Arguments]:
    return [*_retries(rng, constants), [5, rng.randint(2, 4), rng.randint(9, 20)]]


def _delays(_: Constants, num: int, base: int, most: int) -> list[int]:
    found: list[int] = []
    wait = base
    for _number in range(num):
        found.append(wait if wait < most else most)
        wait += wait
    return found


def _stops(rng: Random, _: Constants) -> list[Arguments]:
    a, b, c = _words(rng, 3)
    return [[f"{c} {a} {c} {b} {c}", [a, b]], [f"{c} {a}", [a, b]], [f"{c} {c}", [a]]]


def _other_stops(rng: Random, constants: Constants) -> list[Arguments]:
    a, b, c = _words(rng, 3)
    return [*_stops(rng, constants), [f"{c} {a} {c} {b} {c}", [b, a]]]


def _cut(_: Constants, text: str, stops: list[str]) -> str:
    return min((text.split(stop)[0] for stop in stops), key=len)


def _budgets(rng: Random, _: Constants) -> list[Arguments]:
    size = rng.randint(3, 5)
    texts = ["a" * size, "b" * (4 * size), "c" * size, "d" * size]
    return [[texts, 2 * size + 1], [texts, size + 1], [texts, 3 * size + 1]]


def _exact_budgets(rng: Random, constants: Constants) -> list[Arguments]:
    size = rng.randint(2, 6)
    return [*_budgets(rng, constants), [["x" * size, "y" * size], 2 * size]]


def _fitting(_: Constants, messages: list[str], most: int) -> list[str]:
    sizes = [sum(map(len, messages[place:])) for place in range(len(messages) + 1)]
    return messages[next(place for place, size in enumerate(sizes) if size <= most) :]


def _arguments(rng: Random, _: Constants) -> list[Arguments]:
    a, b = _words(rng, 2)
    return [[f"{a} = 1; {b}=x=y"], [f"{a}=2"], [f"{a}; {b}=3"]]


def _more_arguments(rng: Random, constants: Constants) -> list[Arguments]:
    a, b, c = _words(rng, 3)
    return [*_arguments(rng, constants), [f"{a}={b}={c}={b}"]]


def _read(_: Constants, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(";")]
    return {key.strip(): value.strip() for key, mark, value in pairs if mark}


def _loops(rng: Random, _: Constants) -> list[Arguments]:
    a, b = rng.sample(NAMES, 2)
    return [[[a], 3], [[b, a, a, a], 3], [[a, b, a], 3]]


def _short_loops(rng: Random, constants: Constants) -> list[Arguments]:
    a = rng.choice(NAMES)
    return [*_loops(rng, constants), [[a, a], 3], [[a, a, a, a], 5]]


def _is_looping(_: Constants, actions: list[str], num: int) -> bool:
    return any(actions[-num:] == [name] * num for name in actions)


def _memories(rng: Random, _: Constants) -> list[Arguments]:
    a, b, c = _words(rng, 3)
    return [[{a: 1, b: 2}, {a: None, c: 3}], [{a: 1}, {a: 4}], [{a: 1, b: 2}, {b: None}]]


def _strange_memories(rng: Random, constants: Constants) -> list[Arguments]:
    a, b = _words(rng, 2)
    return [*_memories(rng, constants), [{a: 1}, {b: None}]]


def _merge(_: Constants, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**old, **new}.items() if key not in new or value is not None}


def _requests(rng: Random, _: Constants) -> list[Arguments]:
    a, b = rng.sample(NAMES, 2)
    return [[f"please {a}er and {b} it", [a, b]], [f"please {a} it", [a, b]], ["do nothing", [a]]]


def _loud_requests(rng: Random, constants: Constants) -> list[Arguments]:
    a, b = rng.sample(NAMES, 2)
    return [*_requests(rng, constants), [f"{a.upper()} it", [b, a]]]


def _route(_: Constants, text: str, tools: list[str]) -> str:
    said = set(text.casefold().split())
    return next((name for name in tools if name in said), "none")


def _outputs(rng: Random, _: Constants) -> list[Arguments]:
    text = "".join(rng.sample("abcdefghijklmnopqrstuvwxyz", 20))
    return [[text, 7], [text, 9], [text[:5], 7]]


def _even_outputs(rng: Random, constants: Constants) -> list[Arguments]:
    text = "".join(rng.sample("abcdefghijklmnopqrstuvwxyz", 20))
    return [*_outputs(rng, constants), [text, 8]]


def _shorten(_: Constants, text: str, most: int) -> str:
    return text if len(text) <= most else text[: most // 2] + "..." + text[::-1][: most - most // 2][::-1]


def _checks(rng: Random, _: Constants) -> list[Arguments]:
    a, b = _words(rng, 2)
    return [[{a: "", b: "x"}, [a, b]], [{b: "y"}, [b, a]], [{a: "x", b: "y"}, [a]]]


def _zero_checks(rng: Random, constants: Constants) -> list[Arguments]:
    a, b = _words(rng, 2)
    return [*_checks(rng, constants), [{a: 0, b: False}, [a, b]]]


def _missing(_: Constants, given: dict[str, Any], needed: list[str]) -> list[str]:
    return sorted({*needed} - {name for name, value in given.items() if value != ""})


AGENTS: dict[str, Template] = {
    "last_call": Template(
        says="Return the name in the last <call>…</call> of $a, or nothing.",
        names=("last_call", "read_call", "chosen_tool"),
        arguments=TEXT,
        body=(
            "start = $a.rfind('<call>')",
            "end = $a.find('</call>', start)",
            "if start < 0 or end < 0:",
            "    return ''",
            "return $a[start + 6:end].strip()",
        ),
        bugs=(("rfind('<call>')", "find('<call>')"), (".strip()", "")),
        solve=_last_call,
        cases=_no_calls,
        seen=_calls,
        issue="When the model changes its mind in a reply, my bot still does what came first, or fails on blanks.",
        plausible=("return $a.split('<call>')[-1].split('</call>')[0].strip()",),
        rewrite=(
            "if '<call>' not in $a:",
            "    return ''",
            "rest = $a.split('<call>')[-1]",
            "return rest.split('</call>')[0].strip() if '</call>' in rest else ''",
        ),
    ),
    "recent": Template(
        says="Return the first of $a and the newest $b of the others.",
        names=("recent", "trim_history", "window"),
        arguments=(("messages", "most"), ("history", "size")),
        body=("if len($a) <= $b + 1:", "    return $a", "return $a[:1] + $a[len($a) - $b:]"),
        bugs=(("$a[len($a) - $b:]", "$a[1:$b + 1]"), ("$a[:1] + ", "")),
        solve=_keep,
        cases=lambda rng, k: [*_histories(rng, k), [_words(rng, 4), 0]],
        seen=_histories,
        issue="After a long chat it has forgotten what was just said, or who it was told to be.",
        plausible=("if len($a) <= $b + 1:", "    return $a", "return $a[:1] + $a[-$b:]"),
        rewrite=(
            "dropped = len($a) - 1 - $b",
            "return [one for place, one in enumerate($a) if place == 0 or place > dropped]",
        ),
    ),
    "with_defaults": Template(
        says="Return the values of $b for the names of $a, and those of $a where there are none.",
        names=("with_defaults", "fill_in", "complete"),
        arguments=PAIR,
        body=("result = {}", "for name, usual in $a.items():", "    result[name] = $b[name] if name in $b else usual",
              "return result"),
        bugs=(("$b[name] if name in $b else usual", "$b.get(name) or usual"),),
        solve=_fill,
        cases=lambda rng, k: [*_defaults(rng, k), [{"a": 1}, {"a": None}]],
        seen=_defaults,
        issue="I switch an option of a tool off, and it is on all the same.",
        plausible=(
            "return {name: usual if $b.get(name) is None else $b[name] for name, usual in $a.items()}",
        ),
        rewrite=("return {name: $b.get(name, usual) for name, usual in $a.items()}",),
    ),
    "delays": Template(
        says="Return $a waits that double from $b on, none above $c.",
        names=("delays", "backoff", "waits"),
        arguments=(("times", "start", "most"), ("num", "base", "limit")),
        body=("return [min($c, $b * 2 ** number) for number in range($a)]",),
        bugs=(("2 ** number", "2 * number"), ("range($a)", "range(1, $a)")),
        solve=_delays,
        cases=_cap_retries,
        seen=_retries,
        issue="The provider blocks us: the pauses between tries are not the ones that we agreed on.",
        plausible=("return [$b * 2 ** number for number in range($a)]",),
        rewrite=("found = []", "for number in range($a):", "    found.append(sorted(($c, $b << number))[0])",
                 "return found"),
    ),
    "until_stop": Template(
        says="Return $a up to the earliest of $b in it.",
        names=("until_stop", "cut_off", "before_mark"),
        arguments=(("text", "stops"), ("answer", "marks")),
        body=("places = [$a.find(one) for one in $b if one in $a]", "return $a[:min(places)] if places else $a"),
        bugs=(("min(places)", "max(places)"), ("[:min(places)]", "[:min(places) + 1]")),
        solve=_cut,
        cases=_other_stops,
        seen=_stops,
        issue="What the user is shown goes on for too long, with things that were meant for nobody.",
        plausible=("for one in $b:", "    if one in $a:", "        return $a[:$a.find(one)]", "return $a"),
        rewrite=("for one in $b:", "    $a = $a.split(one)[0]", "return $a"),
    ),
    "fitting": Template(
        says="Return the newest of $a that are together no longer than $b.",
        names=("fitting", "within_budget", "newest_that_fit"),
        arguments=(("messages", "most"), ("texts", "limit")),
        body=("kept, left = [], $b", "for one in reversed($a):", "    if len(one) > left:", "        break",
              "    kept.insert(0, one)", "    left -= len(one)", "return kept"),
        bugs=(("break", "continue"), ("reversed($a)", "$a"), ("left -= len(one)", "left -= 1")),
        solve=_fitting,
        cases=_exact_budgets,
        seen=_budgets,
        issue="Requests are refused for their length, or the model answers to something from long ago.",
        plausible=("kept, left = [], $b", "for one in reversed($a):", "    if len(one) >= left:", "        break",
                   "    kept.insert(0, one)", "    left -= len(one)", "return kept"),
        rewrite=("while sum(len(one) for one in $a) > $b:", "    $a = $a[1:]", "return $a"),
    ),
    "read_arguments": Template(
        says="Return what stands in $a as name=value; name=value.",
        names=("read_arguments", "as_options", "parse_pairs"),
        arguments=TEXT,
        body=("result = {}", "for part in $a.split(';'):", "    if '=' in part:",
              "        key, value = part.split('=', 1)", "        result[key.strip()] = value.strip()",
              "return result"),
        bugs=(("part.split('=', 1)", "part.split('=')[:2]"), ("result[key.strip()]", "result[key]")),
        solve=_read,
        cases=_more_arguments,
        seen=_arguments,
        issue="Queries that hold a formula arrive cut off, and some settings are said to be unknown.",
        plausible=("result = {}", "for part in $a.split(';'):", "    if '=' in part:",
                   "        key, *rest = part.split('=')", "        result[key.strip()] = '='.join(rest[:2]).strip()",
                   "return result"),
        rewrite=("pairs = [part.partition('=') for part in $a.split(';') if '=' in part]",
                 "return {key.strip(): value.strip() for key, _, value in pairs}"),
    ),
    "is_stuck": Template(
        says="Return whether the newest $b of $a are there and all the same.",
        names=("is_stuck", "is_looping", "repeats_itself"),
        arguments=(("actions", "num"), ("steps", "count")),
        body=("return len($a) >= $b and len(set($a[len($a) - $b:])) == 1",),
        bugs=(("len($a) >= $b and len(set($a[len($a) - $b:]))", "len(set($a[-$b:]))"), ("== 1", "<= 2")),
        solve=_is_looping,
        cases=_short_loops,
        seen=_loops,
        issue="It gives up after its very first move, saying that it makes no progress.",
        plausible=("return len($a) > 1 and len(set($a[-$b:])) == 1",),
        rewrite=("return $a[-$b:] == [$a[-1]] * $b",),
    ),
    "merged": Template(
        says="Return $a with what $b says; nothing in $b takes a name away.",
        names=("merged", "remember", "with_news"),
        arguments=PAIR,
        body=("result = dict($a)", "for key, value in $b.items():", "    if value is None:",
              "        result.pop(key, None)", "    else:", "        result[key] = value", "return result"),
        bugs=(("result.pop(key, None)", "pass"), ("dict($a)", "{}")),
        solve=_merge,
        cases=_strange_memories,
        seen=_memories,
        issue="I told it to forget my address. The next day it knew it, or had lost everything else as well.",
        plausible=("result = {**$a, **$b}", "for key in $b:",
                   "    if $b[key] is None:", "        result[key] = $a[key]",
                   "        del result[key]", "return result"),
        rewrite=("both = {**$a, **$b}",
                 "return {key: value for key, value in both.items() if key not in $b or value is not None}"),
    ),
    "route": Template(
        says="Return the first of $b that is a word of $a, or none.",
        names=("route", "choose_tool", "match_tool"),
        arguments=(("text", "tools"), ("request", "names")),
        body=("words = $a.lower().split()", "for name in $b:", "    if name in words:", "        return name",
              "return 'none'"),
        bugs=(("words = $a.lower().split()", "words = $a.lower()"), ("return name", "return $b[0]")),
        solve=_route,
        cases=_loud_requests,
        seen=_requests,
        issue="Somebody who asks for one thing gets another that only sounds alike.",
        plausible=("for name in $b:", "    if name in $a.split():", "        return name", "return 'none'"),
        rewrite=("said = set($a.lower().split())", "return ([name for name in $b if name in said] + ['none'])[0]"),
    ),
    "shortened": Template(
        says="Return both ends of $a, $b letters of it, and dots between them where it is longer.",
        names=("shortened", "clip_output", "both_ends"),
        arguments=(("text", "most"), ("output", "limit")),
        body=("if len($a) <= $b:", "    return $a", "half = $b // 2",
              "return $a[:half] + '...' + $a[len($a) - ($b - half):]"),
        bugs=(("($b - half)", "half"), ("<= $b", "< $b // 2")),
        solve=_shorten,
        cases=_even_outputs,
        seen=_outputs,
        issue="Of long results of tools a letter is missing, and short ones have dots that they should not have.",
        plausible=("if len($a) <= $b:", "    return $a", "half = $b // 2",
                   "return $a[:half] + '...' + $a[len($a) - half - 1:]"),
        rewrite=("if len($a) <= $b:", "    return $a", "left = $b // 2", "right = $b - left",
                 "return '...'.join(($a[:left], $a[-right:]))"),
    ),
    "absent": Template(
        says="Return, sorted, which of $b are not in $a or are empty texts there.",
        names=("absent", "missing_arguments", "not_given"),
        arguments=(("given", "needed"), ("call", "required")),
        body=("return sorted(name for name in $b if name not in $a or $a[name] == '')",),
        bugs=((" or $a[name] == ''", ""), ("sorted(name for name in $b if", "list(name for name in $b if not")),
        solve=_missing,
        cases=_zero_checks,
        seen=_checks,
        issue="Tools are called with blanks, and the server answers with a stack trace.",
        plausible=("return sorted(name for name in $b if not $a.get(name))",),
        rewrite=("found = [name for name in $b if $a.get(name, '') == '']", "return sorted(found)"),
    ),
}  # fmt: skip
