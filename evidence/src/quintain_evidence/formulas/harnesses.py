"""What harnesses and rounds of attempts compute, each beside a plain second version."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

from quintain.agents.protocol import Prompt
from quintain.engines.protocol import Sampling
from quintain.environments.tools import tool
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import (
    Action,
    Completion,
    Failure,
    Task,
    ToolCall,
    ToolCause,
    ToolError,
    ToolSpec,
    Trajectory,
    Turn,
)
from quintain.worlds.ledger.book import ASKS, Book, draw_book
from quintain_evidence.formulas.formula import Formula, Rng

Told = tuple[int, str, bool, int]
"""(task, lesson, whether it may outlive, how many are kept)"""
HELD_OUT = 2
"""The task of three that is held out."""


def task(number: int) -> Task:
    """Return one of three tasks."""
    return Task(id=f"t{number}", environment="e", seed=0, split="eval" if number == HELD_OUT else "train")


def lessons_drawn(rng: Rng) -> list[Told]:
    """Return up to a dozen lessons, each a number between blanks, or nothing."""

    def text() -> str:
        return (
            "  \n" if rng.random() < 0.2 else f" {int(rng.integers(1, 99))} \n  {int(rng.integers(1, 99))} "
        )

    return [
        (int(rng.integers(0, 3)), text(), bool(rng.random() < 0.5), int(rng.integers(1, 5)))
        for _ in range(int(rng.integers(1, 13)))
    ]


def lessons_kept(module: ModuleType, case: Sequence[Told]) -> list[float]:
    """Return what the code keeps of each task, oldest first."""
    lessons = module.Lessons()
    for number, text, may_outlive, most in case:
        lessons = lessons.add(task(number), text, most, may_outlive=may_outlive)
    return numbers_of([list(lessons.of(f"t{number}")) for number in range(3)])


def keep_lessons(case: Sequence[Told]) -> list[float]:
    """Return the newest lessons of each task; of a held-out one those that do not outlive, and nothing of blanks."""
    kept: list[list[str]] = [[], [], []]
    for number, text, may_outlive, most in case:
        words = text.split()
        if words and not (number == HELD_OUT and may_outlive):
            kept[number].append(" ".join(words))
            while len(kept[number]) > most:
                del kept[number][0]
    return numbers_of(kept)


def numbers_of(kept: Sequence[Sequence[str]]) -> list[float]:
    """Return lessons as numbers, each task's behind their count; words are told apart from one another."""
    return [
        number
        for own in kept
        for number in (
            float(len(own)),
            *(float(sum(ord(sign) * 7**k for k, sign in enumerate(text))) for text in own),
        )
    ]


def moves_drawn(rng: Rng) -> list[tuple[list[Turn], str]]:
    """Return ten beginnings of an episode of few actions and replies, with thoughts, and the reply to the last."""
    found: list[tuple[list[Turn], str]] = []
    for _ in range(10):
        turns = [
            replace(
                turn_of([1], Action(text="ab"[int(rng.random() < 0.2)])),
                observation="xy"[int(rng.random() < 0.2)],
                seat="agent/plan" if rng.random() < 0.2 else "agent",
            )
            for _ in range(int(rng.integers(0, 9)))
        ]
        found.append((turns, "xy"[int(rng.random() < 0.2)]))
    return found


def repeats_counted(module: ModuleType, case: Sequence[tuple[list[Turn], str]]) -> list[float]:
    """Return what the code counts."""
    return [float(module.count_repeats(turns, reply)) for turns, reply in case]


def count_own_repeats(case: Sequence[tuple[list[Turn], str]]) -> list[float]:
    """Return the length of the last run of equal moves, counted from the first move on."""
    found: list[float] = []
    for turns, reply in case:
        acts = [turn for turn in turns if "/" not in turn.seat]
        shown = [*(str(turn.observation) for turn in acts), reply]
        run, before = 0, ("", "")
        for number, turn in enumerate(acts):
            move = turn.action.text, shown[number + 1]
            run = run + 1 if move == before else 1
            before = move
        found.append(float(run))
    return found


def temperatures(rng: Rng) -> list[tuple[float, float]]:
    """Return temperatures and steps, some of which reach the hottest exactly."""
    return [(round(float(rng.uniform(0, 1.3)), 1), round(float(rng.uniform(0.1, 0.9)), 1)) for _ in range(12)]


def ramp_of(module: ModuleType, case: Sequence[tuple[float, float]]) -> list[float]:
    """Return the code's next temperatures, -1 where there is none."""
    found = [module.next_temperature(*each) for each in case]
    return [-1.0 if each is None else each for each in found]


def raise_temperatures(case: Sequence[tuple[float, float]]) -> list[float]:
    """Return the next temperature: higher by a step, 1 where that is more, none from 1 on."""
    return [-1.0 if now >= 1 else 1.0 if now + step > 1 else now + step for now, step in case]


def attempts_drawn(rng: Rng) -> list[Trajectory]:
    """Return up to four attempts at each of up to five tasks, some of which broke; none after a solved one."""
    found: list[Trajectory] = []
    for number in range(int(rng.integers(1, 6))):
        for index in range(int(rng.integers(1, 5))):
            is_solved = bool(rng.random() < 0.3)
            made = episode_of(
                [turn_of([1], Action(text="a"))], float(is_solved), is_success=is_solved,
                task=Task(id=f"t{number}", environment="e", seed=0), group=f"g{number}", index=index,
            )  # fmt: skip
            is_broken = rng.random() < 0.25 and (
                number or index
            )  # the first is scored, so that there is a rate
            broken = Failure(owner="environment", kind="x", message="y")
            found.append(replace(made, outcome=broken) if is_broken else made)
            if found[-1].is_success:
                break
    return found


def rates_of(module: ModuleType, case: Sequence[Trajectory]) -> list[float]:
    """Return the code's shares by number of attempts."""
    return [number for pair in sorted(module.rate_rounds(case).items()) for number in pair]


def rate_attempts(case: Sequence[Trajectory]) -> list[float]:
    """Return for 1, 2, … attempts the share of tasks solved by then, of tasks of which one attempt did not break."""
    names = {t.task.id for t in case if not isinstance(t.outcome, Failure)}
    own = {name: [t for t in case if t.task.id == name] for name in names}
    found: list[float] = []
    for number in range(1, max(len(each) for each in own.values()) + 1):
        solved = [name for name in names if [t for t in own[name][:number] if t.is_success]]
        found += [number, len(solved) / len(names)]
    return found


def votes(rng: Rng) -> list[list[str]]:
    """Return answers of up to nine chains, a quarter of them none."""
    return [
        [
            "" if rng.random() < 0.25 else "abc"[int(rng.integers(0, 3))]
            for _ in range(int(rng.integers(0, 10)))
        ]
        for _ in range(10)
    ]


def votes_counted(module: ModuleType, case: Sequence[Sequence[str]]) -> list[float]:
    """Return the code's winner, its votes, and whether it backs off."""
    found: list[float] = []
    for own in case:
        winner, count = module.majority(own)
        found += [float(ord(winner)) if winner else 0.0, count, float(module.must_back_off(count, len(own)))]
    return found


def count_votes(case: Sequence[Sequence[str]]) -> list[float]:
    """Return the first answer that none is given more often than, its votes, and whether they are under half of all."""
    found: list[float] = []
    for own in case:
        best, most = "", 0
        for answer in own:
            if answer and own.count(answer) > most:
                best, most = answer, own.count(answer)
        found += [float(ord(best)) if best else 0.0, most, float(most < len(own) / 2)]
    return found


Written = tuple[str, Action]


def write_actions(rng: Rng) -> list[Written]:
    """Return thoughts, some of several lines or of the words of the form, with a call or words to act by."""
    thoughts = ("", "so", "two\nlines", "Observation is near", "act: ion [1]")
    found: list[Written] = []
    for _ in range(12):
        values = {name: int(rng.integers(0, 9)) for name in "ab"[: int(rng.integers(0, 3))]}
        call = ToolCall(name=("look", "tell")[int(rng.integers(0, 2))], arguments=values)
        words = ("go [left]", "say: so", "wait")[int(rng.integers(0, 3))]
        made = Action(tool_calls=(call,)) if rng.random() < 0.6 else Action(text=words)
        found.append((thoughts[int(rng.integers(0, len(thoughts)))], made))
    return found


def write_by(module: ModuleType, case: Sequence[Written]) -> list[float]:
    """Return what the code writes as numbers, and whether `parse_react` reads the action from it, twice over."""
    found: list[float] = []
    for thought, action in case:
        text = module.write_react(action, thought)
        tools = [
            ToolSpec(
                name=name, description="", parameters={"type": "object", "properties": {"a": {}, "b": {}}}
            )
            for name in ("look", "tell")
        ]
        read = module.parse_react(text, tools if action.tool_calls else ())
        again = module.parse_react(module.write_react(read, ""), tools if action.tool_calls else ())
        same = [
            each.tool_calls == action.tool_calls and (bool(action.tool_calls) or each.text == action.text)
            for each in (read, again)
        ]
        found += [code(text), *map(float, same)]
    return found


def by_form(case: Sequence[Written]) -> list[float]:
    """Return the form of the paper, written out: a line of thought if there is any, and one of action, read back."""
    found: list[float] = []
    for thought, action in case:
        said = action.text
        for call in action.tool_calls:
            inside = ", ".join(f'"{key}": {value}' for key, value in call.arguments.items())
            said = call.name + "[" + ("{" + inside + "}" if inside else "") + "]"
        lines = [f"Thought: {thought}"] if thought else []
        found += [code("\n".join([*lines, f"Action: {said}"])), 1.0, 1.0]
    return found


def code(text: str) -> float:
    """Return a number that tells `text` from others of its kind."""
    return float(sum(ord(sign) * (k % 97 + 1) for k, sign in enumerate(text)) % 100_003)


WRAPPED = {
    "plan": "planning", "rci": "planning", "memory": "memory", "summary": "memory", "labelled": "profile",
    "ramp": "action",
}  # fmt: skip


def stacks_drawn(rng: Rng) -> list[str]:
    """Return eight names of agents: up to two wrappers around a harness, some with options."""
    fronts = [
        *WRAPPED,
        "plan?replan_every=2",
        "plan?replan_every=0",
        "labelled?label=wrong",
        "summary?every=3",
    ]
    found: list[str] = []
    for _ in range(8):
        chosen = [fronts[int(k)] for k in rng.choice(len(fronts), int(rng.integers(0, 3)), replace=False)]
        window = [["window", "window?turns=1"][int(rng.integers(0, 2))]] if rng.random() < 0.4 else []
        inner = ["tools", "react", "roles", "workforce"][int(rng.integers(0, 4))]
        found.append("+".join([*chosen, *window, inner]))
    return found


def modules_of(module: ModuleType, case: Sequence[str]) -> list[float]:
    """Return how much the code says that fills each module, and whether the agent is active."""
    found: list[float] = []
    for name in case:
        made = module.describe(name)
        found += [float(len(getattr(made, each))) for each in module.MODULE_NAMES]
        found += [float(made.is_active), float(made.name == name)]
    return found


def fill_by(case: Sequence[str]) -> list[float]:
    """Return the same, counted layer by layer."""
    found: list[float] = []
    for name in case:
        *fronts, inner = name.split("+")
        counts: dict[str, int] = dict.fromkeys(("planning", "memory", "profile", "action"), 0)
        for front in fronts:
            if not front.startswith("window"):
                counts[WRAPPED[front.split("?")[0]]] += 1
        counts["action"] += 1
        counts["profile"] += inner == "roles"
        counts["planning"] += inner == "workforce"
        begins_anew = any(front.startswith("window") or front == "plan?replan_every=2" for front in fronts)
        counts["memory"] += not counts["memory"] and not begins_anew
        active = counts["planning"] or counts["memory"] or counts["profile"]
        found += [*map(float, counts.values()), 0.0, float(bool(active)), 1.0]
    return found


class Shelf:
    """Tools of all kinds of arguments."""

    def __init__(self) -> None:
        self.num_done = 0

    @tool
    def take(self, name: str, count: int, kind: Literal["red", "blue"] = "red") -> str:
        """Take some."""
        self.num_done += 1
        return "taken"


def calls_drawn(rng: Rng) -> list[ToolCall]:
    """Return twenty calls: of no such tool, with arguments left out, renamed, added, or of another type."""
    values: dict[str, tuple[Any, ...]] = {
        "name": ("fig", 3, None), "count": (2, "2", True, 1.5), "kind": ("red", "green"), "nam": ("fig",), "unit": (1,),
    }  # fmt: skip
    found: list[ToolCall] = []
    for _ in range(20):
        chances = {"name": 0.8, "count": 0.8, "kind": 0.3, "nam": 0.2, "unit": 0.2}
        names = [name for name, chance in chances.items() if rng.random() < chance]
        picked = {
            name: values[name][0 if rng.random() < 0.7 else int(rng.integers(0, len(values[name])))]
            for name in names
        }
        found.append(ToolCall(name="take" if rng.random() < 0.9 else "tak", arguments=picked))
    return found


KINDS = ("ok", "unknown_tool", "misnamed", "missing", "extra", "mistyped")


def kinds_of(module: ModuleType, case: Sequence[ToolCall]) -> list[float]:
    """Return the code's kind of each call, and how often the tool was run after it."""
    shelf, found = Shelf(), list[float]()
    for call in case:
        found += [float(KINDS.index(module.call_tool(shelf, call).kind)), float(shelf.num_done)]
    return found


def kinds_by_rule(case: Sequence[ToolCall]) -> list[float]:
    """Return the kind of each call, asked one question after the other, and the number of right ones so far."""
    found, done = list[float](), 0
    for call in case:
        has = call.arguments
        strange = [name for name in has if name not in ("name", "count", "kind")]
        lacks = [name for name in ("name", "count") if name not in has]
        mistyped = [
            name
            for name, value in has.items()
            if (name == "name" and type(value) is not str)
            or (name == "count" and type(value) is not int)
            or (name == "kind" and value not in ("red", "blue"))
        ]
        if call.name != "take":
            kind = "unknown_tool"
        elif strange:
            kind = "misnamed" if lacks else "extra"
        else:
            kind = "missing" if lacks else "mistyped" if mistyped else "ok"
        done += kind == "ok"
        found += [float(KINDS.index(kind)), float(done)]
    return found


def attempts_with_calls(rng: Rng) -> list[Trajectory]:
    """Return ten episodes in which some calls are wrong, some tools fail, and some errors come twice."""
    found: list[Trajectory] = []
    for _ in range(10):
        turns: list[Turn] = []
        for _ in range(int(rng.integers(1, 7))):
            causes: tuple[ToolCause, ...] = ("invalid_call", "tool_error")
            errors = [ToolError(tool="t", cause=cause) for cause in causes if rng.random() < 0.4]
            turns.append(
                turn_of(
                    [1], Action(text="abc"[int(rng.integers(0, 3))]), tool_errors=tuple(errors),
                    observation=f"Error \n {int(rng.integers(0, 2))}",
                )
            )  # fmt: skip
        found.append(replace(episode_of(turns), final_observation=f"Error {int(rng.integers(0, 2))}"))
    return found


def failures_told(module: ModuleType, case: Sequence[Trajectory]) -> list[float]:
    """Return what the code tells of each episode, as numbers."""
    return numbers_of([module.find_failed_calls(t) for t in case])


def tell_failures(case: Sequence[Trajectory]) -> list[float]:
    """Return the wrong calls in order, each with the observation after it, without those that were told already."""
    found: list[list[str]] = []
    for t in case:
        own: list[str] = []
        for number, turn in enumerate(t.turns):
            after = t.turns[number + 1].observation if number + 1 < len(t.turns) else t.final_observation
            line = f"{turn.action.text}: {' '.join(str(after).split())}"
            if any(error.cause == "invalid_call" for error in turn.tool_errors) and line not in own:
                own.append(line)
        found.append(own)
    return numbers_of(found)


Criticised = tuple[int, int, bool, list[tuple[bool, bool]]]
"""(rounds, retries, whether it is grounded, for each draft whether it can be read and what is said of it accepts it)"""
ROLES = ("ground", "draft", "critique")


def draw_drafts(rng: Rng) -> list[Criticised]:
    """Return ten ways in which drafts and critiques may come."""
    return [
        (
            int(rng.integers(0, 4)),
            int(rng.integers(0, 3)),
            bool(rng.random() < 0.5),
            [(bool(rng.random() < 0.6), bool(rng.random() < 0.4)) for _ in range(10)],
        )
        for _ in range(10)
    ]


class Drafting:
    """An agent and its session, whose drafts are readable as they are told; what else is said to it is not read."""

    def __init__(self, drafts: Sequence[tuple[bool, bool]]) -> None:
        self.drafts = list(drafts)

    def open(self, brief: Any) -> "Drafting":
        """Be the session."""
        return self

    def observe(self, observation: Any, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """Ask for anything."""
        return Prompt(token_ids=(0,), starts_segment=False, sampling=Sampling())

    def read(self, completion: Completion) -> Action:
        """Read a draft; an acceptance is the token 1."""
        return Action(text="act") if completion.token_ids[0] >= 2 else Action(text="?", error="unreadable")


def drafts_criticised(module: ModuleType, case: Sequence[Criticised]) -> list[float]:
    """Return the roles of the turns that the code asks for, as numbers, each case behind a mark."""
    found: list[float] = []
    for rounds, retries, grounds, drafts in case:
        chat: Any = SimpleNamespace(
            stop_ids=frozenset(), words=lambda ids: "I see No problem." if ids[0] == 1 else "A wall."
        )
        agent: Any = Drafting(drafts)
        settings = module.Critique(agent, chat, rounds=rounds, retries=retries, grounds=grounds)
        brief: Any = SimpleNamespace(legal_actions=())
        session = settings.open(brief)
        found.append(-1.0)
        prompt, left = session.observe("A wall."), list(drafts)
        is_fine = False
        while prompt is not None:
            found.append(float(ROLES.index(prompt.role)))
            if prompt.role == "draft":
                is_readable, is_fine = left.pop(0)
                said = 2 if is_readable else 0
            else:
                said = int(prompt.role == "critique" and is_fine)
            session.read(Completion(token_ids=(said,), logprobs=(), stop="stop"))
            prompt = session.more()
    return found


def criticise_by_rule(case: Sequence[Criticised]) -> list[float]:
    """Return the same: a draft is asked for again while it cannot be read, and criticised while something is wrong."""
    found: list[float] = []
    for rounds, retries, grounds, drafts in case:
        found += [-1.0, *([0.0, 0.0] if grounds else [])]
        for is_readable, is_fine in drafts:
            found.append(1.0)
            if not is_readable:
                retries -= 1
                if retries < 0:
                    break
            else:
                rounds -= 1
                if rounds < 0:
                    break
                found.append(2.0)
                if is_fine:
                    break
    return found


NAMES = ("fig", "red ball", "Blue", "x 1")
VALUES = ("3", "41", "unknown", "None.", "?", "7")


@dataclass(frozen=True, slots=True, kw_only=True)
class Navigated:
    """A plan and what was written of its facts, and how many facts are kept."""

    plan: str
    marks: list[str]
    most: int


def draw_facts(rng: Rng) -> Navigated:
    """Return a plan with 0 to 5 facts in brackets, broken ones among them, and up to three texts of marks."""
    forms = ("[{}]", "[ {} ]", "({}: 3)", "{}", "[{}", "[]")
    pieces = [
        forms[int(rng.integers(len(forms)))].format(NAMES[int(rng.integers(4))])
        for _ in range(int(rng.integers(6)))
    ]
    lines = ("{0}: {1}", "- {0} = {1}", "({0}: {1})", "{0} {1}", "[{0}]: {1}", "{0}:{1}")

    def line() -> str:
        name = NAMES[int(rng.integers(4))]
        name = name.upper() if rng.random() < 0.3 else name
        return lines[int(rng.integers(len(lines)))].format(name, VALUES[int(rng.integers(len(VALUES)))])

    marks = ["\n".join(line() for _ in range(int(rng.integers(4)))) for _ in range(int(rng.integers(4)))]
    return Navigated(plan=" and ".join(pieces), marks=marks, most=int(rng.integers(1, 5)))


def mark_facts(module: ModuleType, case: Navigated) -> list[float]:
    """Return the facts by number, each with its value (-1: unknown), and how many are unknown, after each text."""
    facts, found = module.Facts.read(case.plan, case.most), list[float]()
    for text in ["", *case.marks]:
        facts.mark(text)
        found += [x for name, value in facts.values.items() for x in (place_of(name), float(value or -1))]
        found += [float(len(facts.unknown))]
    return found


def place_of(name: str) -> float:
    """Return the number of a fact's name; -1 for the whole task."""
    return float(NAMES.index(name)) if name in NAMES else -1.0


def scan_facts(case: Navigated) -> list[float]:
    """Return the same by going through the characters."""
    names, open_at = list[str](), -1
    for place, sign in enumerate(case.plan):
        if sign == "[":
            open_at = place
        elif sign == "]" and open_at >= 0:
            name = case.plan[open_at + 1 : place].strip()
            if name and name not in names:
                names.append(name)
            open_at = -1
    names = names[: case.most] or ["the answer"]
    values, found = [-1.0] * len(names), list[float]()
    for text in ["", *case.marks]:
        for line in text.split("\n"):
            cuts = [place for place, sign in enumerate(line) if sign in ":="]
            if not cuts:
                continue
            said = line[: cuts[0]].strip().lstrip("-([ ").rstrip("] ").lower()
            value = line[cuts[0] + 1 :].strip().rstrip(") ")
            if value.isdecimal():
                values = [
                    float(value) if name.lower() == said else old
                    for name, old in zip(names, values, strict=True)
                ]
        found += [x for name, value in zip(names, values, strict=True) for x in (place_of(name), value)]
        found += [float(values.count(-1.0))]
    return found


Asked = tuple[Book, list[object]]


def draw_questions(rng: Rng) -> list[Asked]:
    """Return six ledgers of up to nine rows with questions, some of them corrected, and values given as answers."""
    found: list[Asked] = []
    for _ in range(6):
        drawn = Random(int(rng.integers(1 << 30)))
        book = draw_book(drawn, int(rng.integers(2, 10)), ASKS, is_corrected=bool(rng.random() < 0.5))
        right = answer_by_hand(book)
        near = [
            right,
            right[0],
            float(right[0]),
            str(right[0]),
            [*right, 1],
            right[::-1],
            [float(n) for n in right],
        ]
        found.append((book, [*near, True, None, [[right[0]]]]))
    return found


def answer_questions(module: ModuleType, case: Sequence[Asked]) -> list[float]:
    """Return the code's answers, and which of the values it takes for them."""
    found: list[float] = []
    for book, values in case:
        own = module.Book(rows=book.rows, regions=book.regions, ask=book.ask, of=book.of, late=book.late)
        answer = module.find_answer(own.corrected)
        found += [
            code(own.question()),
            *map(float, answer),
            *(float(module.is_answer(value, answer)) for value in values),
        ]
    return found


def answer_by_hand(book: Book) -> list[int]:
    """Return the answer row by row, after the correction."""
    amounts = [row.amount for row in book.rows]
    if book.late is not None:
        amounts[book.late[0]] = book.late[1]
    places = list(range(len(amounts)))
    if book.ask == "sort":
        return sorted(places, key=lambda place: (-amounts[place], place))
    regions = dict(book.regions)
    keys = [row.shop if book.ask == "sum" else regions[row.shop] for row in book.rows]
    return [sum(amounts[place] for place in places if keys[place] == book.of)]


def take_by_hand(case: Sequence[Asked]) -> list[float]:
    """Return the answers by hand, and whether each value is written as they are, in a list or as one number."""
    found: list[float] = []
    for book, values in case:
        right = answer_by_hand(book)
        asked = {
            "sort": "List the ids of the rows by amount, the largest first; of equal amounts the lower id.",
            "sum": f"Add up the amounts of the shop {book.of}.",
            "join": f"Add up the amounts of the shops of the region {book.of}.",
        }[book.ask]
        written = {repr(right)} | ({repr(right[0])} if len(right) == 1 else set())
        found += [code(asked), *map(float, right), *(float(repr(value) in written) for value in values)]
    return found


def draw_outputs(rng: Rng) -> list[tuple[str, int, bool]]:
    """Return twelve texts of up to nine signs, the most of them that are shown, and whether more is withheld."""
    return [
        ("abcdefghi"[: int(rng.integers(10))], int(rng.integers(1, 9)), bool(rng.random() < 0.5))
        for _ in range(12)
    ]


def shorten_by(module: ModuleType, case: Sequence[tuple[str, int, bool]]) -> list[float]:
    """Return what the code shows of each text, as a number."""
    return [code(module.shorten(text, most, withhold=withhold)) for text, most, withhold in case]


def shorten_by_hand(case: Sequence[tuple[str, int, bool]]) -> list[float]:
    """Return the text where it fits, else its first signs and the number of the others, or its length alone."""
    found: list[float] = []
    for text, most, withhold in case:
        long = sum(1 for _ in text)
        shown = "".join(sign for place, sign in enumerate(text) if place < most)
        cut = f"{shown}\n... ({long - most} more characters; print less)"
        kept = f"({long} characters, more than {most}, were withheld; print less)"
        found.append(code(text if long <= most else kept if withhold else cut))
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("rci.turns", "agents.rci", ("CritiqueSession", "accepts"), draw_drafts, drafts_criticised,
        criticise_by_rule),
    Formula("ledger.answers", "worlds.ledger.book", ("find_answer", "is_answer"), draw_questions, answer_questions,
        take_by_hand),
    Formula("agents.shorten", "agents.code_world", ("shorten",), draw_outputs, shorten_by, shorten_by_hand),
    Formula("agents.lessons", "agents.reflexion", ("Lessons",), lessons_drawn, lessons_kept, keep_lessons),
    Formula("agents.repeats", "agents.reflexion", ("count_repeats",), moves_drawn, repeats_counted,
        count_own_repeats),
    Formula("agents.ramp", "agents.ramp", ("next_temperature",), temperatures, ramp_of, raise_temperatures),
    Formula("agents.majority", "agents.backoff", ("majority", "must_back_off"), votes, votes_counted,
        count_votes),
    Formula("text.react", "text.parse", ("write_react", "parse_react"), write_actions, write_by, by_form),
    Formula("agents.modules", "agents.spec", ("describe", "forgets"), stacks_drawn, modules_of, fill_by),
    Formula("environments.call_kinds", "environments.tools", ("name_fault",), calls_drawn, kinds_of,
        kinds_by_rule),
    Formula("agents.failed_calls", "agents.reflexion", ("find_failed_calls",), attempts_with_calls, failures_told,
        tell_failures),
    Formula("agents.facts", "agents.infonav", ("Facts",), draw_facts, mark_facts, scan_facts),
    Formula("eval.by_round", "eval.report", ("rate_rounds",), attempts_drawn, rates_of, rate_attempts),
)  # fmt: skip
