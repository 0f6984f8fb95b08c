"""BFCL: are the verdicts of the adapter those of the package's own evaluator, run as its authors run it?

Gold answers are mutated (half of the mutations change nothing that counts), written as a model writes them, judged by
the adapter as text and as calls, and put into files that the package's evaluator reads in a process of its own. A
violation is an answer on which the verdicts differ. The control judges the same answers by those of the next question.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from quintain.adapters.bfcl.environment import (
    MAX_STEPS,
    ONE_TURN,
    SEVERAL_TURNS,
    Bfcl,
    BfclTurns,
    functions_of,
    read,
    specs_of,
)
from quintain.adapters.bfcl.gold import gold_calls, write_call, write_calls
from quintain.adapters.bfcl.package import decode
from quintain.adapters.bfcl.summary import NUM_LIVE, summarise
from quintain.environments.protocol import advance, begin
from quintain.errors import DataError
from quintain.types import Action, Task, ToolCall
from quintain_evidence.experiments.evaluation import bfcl_evaluator

PATIENCE = 3600
"""Seconds that the package's evaluator may take."""
WORDS = "I am sorry, but I need to know more."
Calls = Sequence[ToolCall]
Texts = list[str]
"""of one turn: what is said in each of its steps"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model answered: ``Answer(model="m0", question="parallel_3", turns=[["[f(a=1)]"]], is_gold=False)``."""

    model: str
    question: str
    turns: list[Texts]
    is_gold: bool


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the counts over all categories, and of each by name."""
    found = {"trials": 0.0, "violations": 0.0, "control_trials": 0.0, "control_violations": 0.0}
    figures = {"extra.right": 0.0, "extra.refused": 0.0, "extra.refused_otherwise": 0.0, "extra.shifted": 0.0}
    answers: dict[str, list[Answer]] = {}
    for name in (*ONE_TURN, *SEVERAL_TURNS):
        num = int(options["one_turn" if name in ONE_TURN else "several_turns"])
        with closing(Bfcl(name, answers="text")) as world:
            answers[name] = draw_answers(world, num, Random(f"{seed}/{name}"))
    verdicts, overall = evaluate(answers)
    for name, own in answers.items():
        theirs = verdicts[name]
        with closing(Bfcl(name, answers="text")) as world:
            ours = [judge(world, answer) for answer in own]
            shifted = [judge(world, answer, by=1) for answer in own]
        of_tools = ours if name in SEVERAL_TURNS else of_calls(name, own)
        told = list(zip(own, theirs, ours, of_tools, shifted, strict=True))
        found["trials"] += len(own)
        found["violations"] += sum(mine != right or other != right for _, right, mine, other, _ in told)
        if "relevance" not in name:
            found["control_trials"] += len(own)
            found["control_violations"] += sum(shift != right for _, right, _, _, shift in told)
            figures["extra.shifted"] += sum(shifted)
        gold = {(answer.question, right, mine) for answer, right, mine, _, _ in told if answer.is_gold}
        figures["extra.right"] += sum(theirs)
        figures["extra.refused"] += sum(not right for _, right, _ in gold)
        figures["extra.refused_otherwise"] += sum(right != mine for _, right, mine in gold)
        figures[f"extra.right_{name}"] = sum(theirs) / len(own)
    figures["extra.right"] /= found["trials"]
    figures["extra.shifted"] /= found["control_trials"]
    figures["extra.summary"] = max(
        abs(summary_of(model, answers, verdicts) - told) for model, told in overall.items()
    )
    return [found | figures]


def summary_of(
    model: str, answers: Mapping[str, Sequence[Answer]], verdicts: Mapping[str, Sequence[bool]]
) -> float:
    """Return the leaderboard's number of `model` by the adapter, from the categories in which it answered."""
    right = {
        name: [
            is_right for answer, is_right in zip(own, verdicts[name], strict=True) if answer.model == model
        ]
        for name, own in answers.items()
    }
    answered = {name: own for name, own in right.items() if own}
    num = NUM_LIVE | {name: len(own) for name, own in answered.items() if name in NUM_LIVE}
    return summarise({name: sum(own) / len(own) for name, own in answered.items()}, num).overall


def draw_answers(world: Bfcl, num: int, rng: Random) -> list[Answer]:
    """Return `num` answers to the questions of `world`, as many models as that takes; of the first, gold itself."""
    found: list[Answer] = []
    while len(found) < num:
        model = f"m{len({answer.model for answer in found})}"
        for row in world.questions[: num - len(found)]:
            is_gold = model == "m0"
            turns = gold_turns(world, row)
            if not is_gold and rng.random() < 0.85:
                turns = (
                    mutate_turns(turns, rng) if isinstance(world, BfclTurns) else [[mutate(world, row, rng)]]
                )
            found.append(Answer(model=model, question=row["id"], turns=turns, is_gold=is_gold))
    return found


def gold_turns(world: Bfcl, row: dict[str, Any]) -> list[Texts]:
    """Return the gold answer to `row` as a model says it: a call in a step, and words at the end of a turn."""
    if isinstance(world, BfclTurns):
        return [
            [*(f"[{call}]" for call in name_arguments(row, turn)), WORDS] for turn in world.answers[row["id"]]
        ]
    if "irrelevance" in world.category:
        return [[WORDS]]
    return [[write_calls(calls_of(world, row), world.category)]]


def name_arguments(row: dict[str, Any], turn: Sequence[str]) -> list[str]:
    """Return the gold calls of a turn with all arguments named: the decoder drops those that are not."""
    specs = specs_of(functions_of(row))
    return [write_call(read(call, specs)) for call in turn]


def calls_of(world: Bfcl, row: dict[str, Any]) -> Calls:
    """Return the gold calls of a question of one turn; where any call is right, or none, one without arguments."""
    if "relevance" in world.category:
        functions = row["function"] or [{"name": "search"}]
        return (ToolCall(name=functions[0]["name"]),)
    return gold_calls(world.answers[row["id"]], row["function"], world.category)


def mutate(world: Bfcl, row: dict[str, Any], rng: Random) -> str:
    """Return a mutated gold answer to a question of one turn."""
    calls = list(calls_of(world, row))
    if rng.random() < 0.45:
        return rng.choice(KEEPING)(
            write_calls([shuffle_arguments(call, rng) for call in calls], world.category)
        )
    place = rng.randrange(len(calls))
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice([WORDS, "[]", "", "I", "{}", "f(", write_calls(calls, world.category)[:-3]])
    if kind == 1:
        del calls[place]
    elif kind == 2:
        calls.append(calls[place])
    elif kind == 3:
        calls[place] = replace(calls[place], name=calls[place].name + rng.choice(["x", ".y", "_"]))
    else:
        calls[place] = spoil(calls[place], rng, kind)
    return write_calls(calls, world.category)


KEEPING: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: text[1:-1],
    lambda text: f"```{text}```",
    lambda text: f"\n {text}\n",
    lambda text: f"'{text}'",
)
"""Ways to write the same; some are another thing to the decoder."""


def shuffle_arguments(call: ToolCall, rng: Random) -> ToolCall:
    """Return `call` with its arguments in another order."""
    items = list(call.arguments.items())
    rng.shuffle(items)
    return replace(call, arguments=dict(items))


def spoil(call: ToolCall, rng: Random, kind: int) -> ToolCall:
    """Return `call` with an argument that is gone, unknown, of another type or of another value."""
    arguments = dict(call.arguments)
    if not arguments or kind == 4:
        return replace(call, arguments={**arguments, "unknown": "1"})
    key = rng.choice(list(arguments))
    value = arguments[key]
    if kind == 5:
        del arguments[key]
    elif kind == 6:
        arguments[key] = str(value) if not isinstance(value, str) else f"{value}!"
    else:
        arguments[key] = other(value)
    return replace(call, arguments=arguments)


def other(value: Any) -> Any:
    """Return another value of the same type; of a text the same but for what the checker does not look at."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return value.upper() if isinstance(value, str) else value[:-1] if isinstance(value, list) else {}


def mutate_turns(turns: list[Texts], rng: Random) -> list[Texts]:
    """Return a mutated gold answer to a question of several turns."""
    found = [list(turn) for turn in turns]
    turn = found[rng.randrange(len(found))]
    calls = [text for texts in found for text in texts[:-1]]
    kind = rng.randrange(9)
    place = rng.randrange(len(turn))
    if kind == 0:
        turn.insert(0, rng.choice(["[pwd()]", "[ls()]", "[no_such(a=1)]", "[fuel_levels()]"]))
    elif kind == 1 and calls:
        turn.insert(place, rng.choice(calls))
    elif kind == 2:
        turn[:] = [WORDS]
    elif kind == 3 and len(turn) > 1:
        del turn[-2]
    elif kind == 4 and len(turn) > 1:
        del turn[0]
    elif kind == 5 and len(turn) > 2:
        turn[:-1] = [f"[{', '.join(text[1:-1] for text in turn[:-1])}]"]
    elif kind == 6:
        turn[-1] = rng.choice(["[]", "", "I", "Done.", "[f("])
    elif kind == 7:
        turn[:-1] = [*turn[:-1], *["[pwd()]"] * rng.choice([2, 19, 22])]
    elif kind == 8 and len(turn) > 1:
        turn[0] = turn[0].replace("='", "='x", 1)
    return found


def judge(world: Bfcl, answer: Answer, *, by: int = 0) -> bool:
    """Return the adapter's verdict on `answer`; with `by`, as if it were one to a question that many places behind."""
    ids = [row["id"] for row in world.questions]
    question = ids[(ids.index(answer.question) + by) % len(ids)]
    task = Task(id=question, environment=world.name, seed=1, data={"question": question})
    begin(world, task)
    for turn in answer.turns:
        for text in turn:
            result = advance(world, Action(text=text))
            if result.is_terminated:
                return bool(result.is_success)
            if not has_calls(text):
                break
    return False


def of_calls(category: str, answers: Sequence[Answer]) -> list[bool]:
    """Return the adapter's verdicts on the calls in `answers`, as tools are called; what has none is said."""
    found: list[bool] = []
    with closing(Bfcl(category)) as world:
        for answer in answers:
            begin(
                world,
                Task(id=answer.question, environment=world.name, seed=1, data={"question": answer.question}),
            )
            found.append(bool(advance(world, as_calls(answer.turns[0][0], category)).is_success))
    return found


def as_calls(text: str, category: str) -> Action:
    """Return `text` as calls of tools; what cannot be read, or is no list of calls, as an action with an error."""
    try:
        calls = decode(text, category)
        return Action(
            tool_calls=tuple(ToolCall(name=n, arguments=a) for call in calls for n, a in call.items())
        )
    except (DataError, AttributeError, TypeError):
        return Action(text=text, error="it cannot be read")


def evaluate(answers: Mapping[str, Sequence[Answer]]) -> tuple[dict[str, list[bool]], dict[str, float]]:
    """Return the verdicts of the package's evaluator by category, and its summary by model; it reads files."""
    with tempfile.TemporaryDirectory() as folder:
        results, scores = Path(folder, "results"), Path(folder, "scores")
        scores.mkdir()
        for category, own in answers.items():
            for model in {answer.model for answer in own}:
                place = results / model / f"BFCL_v4_{category}_result.json"
                place.parent.mkdir(parents=True, exist_ok=True)
                lines = [write_result(answer, category) for answer in own if answer.model == model]
                place.write_text("\n".join(lines), "utf-8")
        place = Path(bfcl_evaluator.__file__)
        told = f"({str(results)!r}, {str(scores)!r}, {list(answers)!r})"
        code = (
            f"import sys; sys.path.insert(0, {str(place.parent)!r}); import {place.stem} as e; e.main{told}"
        )
        command = ["env", f"BFCL_PROJECT_ROOT={folder}", sys.executable, "-c", code]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        failed: set[tuple[str, str]] = set()
        for file in scores.rglob("*_score.json"):
            model = file.relative_to(scores).parts[0]
            failed |= {(model, json.loads(line)["id"]) for line in file.read_text("utf-8").splitlines()[1:]}
        with (scores / "data_overall.csv").open(newline="") as file:
            overall = {
                row["Model"]: float(row["Overall Acc"].rstrip("%")) / 100 for row in csv.DictReader(file)
            }
    verdicts = {
        category: [(answer.model, answer.question) not in failed for answer in own]
        for category, own in answers.items()
    }
    return verdicts, overall


def write_result(answer: Answer, category: str) -> str:
    """Return the line of a file of results that has `answer`."""
    said = as_recorded(answer.turns) if category in SEVERAL_TURNS else answer.turns[0][0]
    return json.dumps({"id": answer.question, "result": said})


def as_recorded(turns: list[Texts]) -> list[Texts]:
    """Return what the package records of `turns`: the first text without a call ends one, a step too many ends all."""
    found: list[Texts] = []
    for turn in turns:
        found.append([])
        for text in turn:
            found[-1].append(text)
            if not has_calls(text):
                break
            if len(found[-1]) > MAX_STEPS:
                return found
    return found


def has_calls(text: str) -> bool:
    """Return whether the package reads calls in `text`."""
    try:
        return bool(decode(text, "multi_turn_base"))
    except DataError:
        return False
