"""How tasks and transcripts are made, each beside a plain second version."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from quintain.data.pipeline import as_example
from quintain.rewards.terms import apply
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Completion, Score, ToolSpec, Trajectory
from quintain.worlds.plan.strips import Atom, Domain, Predicate, Puzzle, Rule
from quintain_evidence.formulas.formula import Formula, Rng, flatten

LONGEST = 12
"""Tokens of an episode that is short enough."""
NUM_FACTS = 7
WEIGHTS = (0.1, 0.0, 0.4)
"""What format is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A try in plain data: of each turn what was done, whether it could be read, whether it could be carried out."""

    turns: list[tuple[str, bool, bool]]
    num_tokens: int
    is_right: bool

    def trajectory(self) -> Trajectory:
        """Return it as the code that ships takes it."""
        sizes = [1] * len(self.turns)
        sizes[0] += self.num_tokens - len(sizes)
        turns = (
            turn_of(
                (3,) * size,
                Action(text=text, error=None if is_readable else "no call"),
                prompt_ids=(),
                is_valid=is_valid,
            )
            for (text, is_readable, is_valid), size in zip(self.turns, sizes, strict=True)
        )
        return episode_of(turns, 0.25, is_success=self.is_right)


def tries(rng: Rng) -> list[Tried]:
    """Return eight tries of one to four turns."""
    found: list[Tried] = []
    for _ in range(8):
        num = int(rng.integers(1, 5))
        texts = rng.choice(["search seat", "Search seat ", "answer Rome", "wait", "search mayor"], num)
        turns = [(str(text), bool(rng.random() < 0.9), bool(rng.random() < 0.9)) for text in texts]
        tokens = int(rng.choice([num, LONGEST, LONGEST + 1]))
        found.append(Tried(turns=turns, num_tokens=tokens, is_right=bool(rng.random() < 0.7)))
    return found


def sifted(module: ModuleType, case: Sequence[Tried]) -> list[float]:
    """Return how many tries each of WebDancer's stages leaves, how often they repeat themselves, what they are paid."""
    told = [tried.trajectory() for tried in case]
    made = module.pipeline(LONGEST).run([as_example(trajectory) for trajectory in told])
    paid = [apply(t, module.rewards(weight)).outcome for weight in WEIGHTS for t in told]
    return flatten(
        [
            [passage.num_out for passage in made.funnel.passages],
            [module.num_repeats(t) for t in told],
            [outcome.value for outcome in paid if isinstance(outcome, Score)],
        ]
    )


def sifted_plainly(case: Sequence[Tried]) -> list[float]:
    """Return the same with counts, set by set."""
    valid = [t for t in case if min(readable and carried for _, readable, carried in t.turns)]
    short = [t for t in valid if not t.num_tokens > LONGEST]
    right = [t for t in short if t.is_right]
    texts = [[text.lower().strip() for text, _, _ in t.turns] for t in case]
    again = [sum(text in own[:k] for k, text in enumerate(own)) for own in texts]
    good = [t for t in right if not again[case.index(t)]]
    paid = [
        w * float(not any(not readable for _, readable, _ in t.turns)) + (1 - w) * t.is_right
        for w in WEIGHTS
        for t in case
    ]
    return flatten([[len(valid), len(short), len(right), len(good)], again, paid])


Corpus = tuple[list[tuple[str, str, str]], int, bool, list[int], int]
"""facts as (subject, relation, answer), which one is asked for, whether all is told, what is told, what chance says"""


def corpora(rng: Rng) -> Corpus:
    """Return a corpus of two to twelve facts about five things, one fact a paragraph."""
    things = ["Ka", "Lo", "Mi", "To", "Vis"]
    facts = [
        (str(s), str(r), str(a))
        for s, r, a in zip(
            rng.choice(things, 12), rng.choice(["seat", "owner"], 12), rng.choice(things, 12), strict=True
        )
        if s != a
    ] + [("Ka", "seat", "Lo")]
    asked = int(rng.integers(len(facts)))
    is_closed = bool(rng.random() < 0.5)
    told = sorted({int(k) for k in rng.integers(0, len(facts), 2)} - {asked})
    return facts, asked, is_closed, sorted({*told, asked}) if is_closed else told, int(rng.integers(0, 5))


class Given:
    """Chance that is given: the number of what is chosen."""

    def __init__(self, number: int) -> None:
        self.number = number

    def choice(self, options: Sequence[Any]) -> Any:
        """Return the option of the number, counted round and round."""
        return options[self.number % len(options)]


def evolved(module: ModuleType, case: Corpus) -> list[float]:
    """Return the facts that a question leads through after one and two rounds, and what is told with it."""
    facts, asked, is_closed, told, number = case
    made = [module.Fact(*fact) for fact in facts]
    question = module.Question(
        chain=(made[asked],), paragraphs=tuple(f.words() for f in made), titles=tuple(f.subject for f in made),
        sources=(asked,), is_closed=is_closed, told=tuple(told),
    )  # fmt: skip
    found: list[float] = []
    for rounds in (0, 1, 2):
        harder = module.harder(question, rounds, Given(number))
        assert [made[place] for place in harder.sources] == list(harder.chain), "each fact has its paragraph"
        found += [len(harder.chain), *harder.sources, *harder.told]
    return found


def evolved_plainly(case: Corpus) -> list[float]:
    """Return the same: before the first thing stands, by chance, a fact that it is the answer of and that is new."""
    facts, asked, is_closed, told, number = case
    way, seen = [asked], {facts[asked][0], facts[asked][2]}
    known, found = set(told), [1.0, float(asked), *map(float, told)]
    for _ in range(2):
        first = facts[way[0]][0]
        fits = [
            k for k, (s, _, a) in enumerate(facts)
            if a == first and s not in seen and not (k in known and not is_closed)
        ]  # fmt: skip
        if fits:
            way = [fits[number % len(fits)], *way]
            seen |= {facts[way[0]][0]}
            known |= {way[0]} if is_closed else set[int]()
        found += [float(len(way)), *map(float, way), *map(float, sorted(known))]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """A task over plain facts, by their numbers; a rule is what it needs, adds and deletes."""

    rules: list[tuple[set[int], set[int], set[int]]]
    start: set[int]
    goal: list[int]
    number: int
    """what chance says"""

    def steps(self, goal: set[int]) -> int:
        """Return the least number of rules from the start to `goal`; 0 for none at all or for no way."""
        level, seen = [self.start], {frozenset(self.start)}
        for count in range(40):
            if any(goal <= state for state in level):
                return count
            after = [
                (state - gone) | new for state in level for needs, new, gone in self.rules if needs <= state
            ]
            level = []
            for state in after:
                if frozenset(state) not in seen:
                    seen.add(frozenset(state))
                    level.append(state)
        return 0

    def puzzle(self) -> Puzzle:
        """Return it as the code that ships takes it."""

        def atoms(facts: Iterable[int]) -> tuple[Atom, ...]:
            return tuple(Atom(f"f{fact}") for fact in sorted(facts))

        domain = Domain(
            (),
            tuple(Predicate(f"f{k}", (), f"f{k}") for k in range(NUM_FACTS)),
            tuple(Rule(f"a{k}", (), *map(atoms, rule)) for k, rule in enumerate(self.rules)),
        )
        return Puzzle(domain, (), atoms(self.start), tuple(Atom(f"f{fact}") for fact in self.goal))


def tasks(rng: Rng) -> Bits:
    """Return a task that can be solved, over seven facts of which five change, with two or three to bring about."""
    while True:
        rules: list[tuple[set[int], set[int], set[int]]] = []
        for _ in range(7):
            drawn = [int(k) for k in rng.permutation(5)]
            needs, rest = set(drawn[: int(rng.integers(0, 3))]), drawn[3:]
            rules.append((needs, {rest[0]}, {rest[1]} if rng.random() < 0.3 else set[int]()))
        start = {int(k) for k in rng.integers(0, 5, 1)} | {6}
        goal = [int(k) for k in rng.permutation(5) if int(k) not in start][: int(rng.integers(2, 4))]
        case = Bits(rules=rules, start=start, goal=goal, number=int(rng.integers(0, 3)))
        if case.steps(set(goal)):
            return case


def evolved_both(module: ModuleType, case: Bits) -> list[float]:
    """Return the plan's length, and of the easier and the harder task, if any, the goal and the length."""
    task = case.puzzle()
    found = [float(module.length(task))]
    for make in (module.easier, module.harder):
        made = make(task, Given(case.number))
        goal = [] if made is None else sorted(int(atom.predicate[1:]) for atom in made.goal)
        found += [float(len(goal)), *map(float, goal), 0.0 if made is None else module.length(made)]
    return found


def evolved_both_plainly(case: Bits) -> list[float]:
    """Return the same by trying every goal with a fact less and with a fact more."""
    whole = case.steps(set(case.goal))
    found = [float(whole)]
    changed = {k for _, new, gone in case.rules for k in new | gone}
    fewer = [set(case.goal) - {left} for left in case.goal]
    more = [
        {*case.goal, k}
        for k in range(NUM_FACTS)
        if k in changed and k not in case.goal and k not in case.start
    ]
    for goals, sign in ((fewer, -1), (more, 1)):
        fits = [
            (case.steps(goal), goal)
            for goal in goals
            if case.steps(goal) and sign * (case.steps(goal) - whole) > 0
        ]
        far = sorted(steps for steps, _ in fits)[::-sign][:1]
        best = [goal for steps, goal in fits if [steps] == far]
        goal = best[case.number % len(best)] if best else set[int]()
        found += [float(len(goal)), *map(float, sorted(goal)), float(case.steps(goal)) if goal else 0.0]
    return found


def lengths(rng: Rng) -> list[int]:
    """Return the turns of up to thirty episodes."""
    return rng.integers(1, 15, int(rng.integers(1, 30))).tolist()


def told_lengths(module: ModuleType, case: list[int]) -> list[float]:
    """Return what stays of episodes of such lengths, tasks the same where lengths are, and the shares by length."""
    tried = [
        Tried(turns=[("go", True, True)] * n, num_tokens=n, is_right=n % 5 > 0).trajectory() for n in case
    ]
    examples = [as_example(t) for t in tried]
    made = module.pipeline(lambda own: [len(t.turns) for t in own], 3, 9).run(examples)
    kept = [examples.index(example) for example in made.examples]
    shares = module.histogram(case)
    return flatten(
        [[p.num_out for p in made.funnel.passages], kept, [*shares.values()], [int(k[-1]) for k in shares]]
    )


def told_lengths_plainly(case: list[int]) -> list[float]:
    """Return the same by counting."""
    right = [k for k, n in enumerate(case) if n not in (5, 10)]
    new = [k for k in right if case.index(case[k]) == k]
    kept = [k for k in new if case[k] in (3, 4, 5, 6, 7, 8, 9)]
    ends = [end for end in (4, 8, 12, 16) if any(end - 4 < n <= end for n in case)]
    shares = [sum(end - 4 < n <= end for n in case) / len(case) for end in ends]
    return flatten([[len(right), len(new), len(kept)], kept, shares, [end % 10 for end in ends]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Calls in plain data: name, document and those of its arguments, of each; and what takes what."""

    calls: list[tuple[str, str, dict[str, str]]]
    taken: list[tuple[str, str, int]]
    """(call, argument, value that it takes)"""
    number: int

    @property
    def tools(self) -> dict[str, ToolSpec]:
        """The documents by name; the examples of an argument are 0, 1 and 2."""
        return {
            name: ToolSpec(
                name=name, description=told,
                parameters={"properties": {k: {"description": v, "examples": [0, 1, 2]} for k, v in own.items()}},
            )
            for name, told, own in self.calls
        }  # fmt: skip

    def result(self, name: str, arguments: Mapping[str, int]) -> int:
        """Return what a call gives: a number up to 3 out of its name and arguments."""
        return (len(name) + 2 * sum(arguments.values())) % 4

    def run(self, calls: Sequence[tuple[str, Mapping[str, int]]]) -> list[int] | None:
        """Return the results of `calls`; None where a value is not taken."""
        known = set(self.taken)
        if any((name, k, v) not in known for name, own in calls for k, v in own.items()):
            return None
        return [self.result(name, own) for name, own in calls]


def documents(rng: Rng) -> Documents:
    """Return three to five calls of one or two arguments, each of which takes most values."""
    words = ["order", "parcel", "code", "of", "the", "guest"]

    def text() -> str:
        return " ".join(rng.choice(words, int(rng.integers(1, 4))))

    calls = [
        (
            f"t{'o' * number}",
            f"Gives the owner{number} of {text()}.",
            {k: text() for k in ("x", "y")[: 1 + number % 2]},
        )
        for number in range(int(rng.integers(3, 6)))
    ]
    taken = [
        (name, k, value)
        for name, _, own in calls
        for k in own
        for value in range(4)
        if value < 3 or rng.random() < 0.5
    ]
    return Documents(calls=calls, taken=taken, number=int(rng.integers(0, 99)))


def linked(module: ModuleType, case: Documents) -> list[float]:
    """Return the edges of each stage as numbers, similarities, what a walk found out, and the words of its goal."""
    names = [name for name, _, _ in case.calls]
    tools: Any = case
    found = module.stages_of_graph(tools, least=0.3, probes=3)
    known = module.all_pairs(case.tools)
    numbers = [[known.index(edge) for edge in edges] for edges in found.values()]
    calls = module.walk(tools, found["executed"], 2, Given(case.number))
    goal = "" if calls is None else module.write_goal(case.tools, calls)
    return flatten(
        [
            [
                len(known),
                *(names.index(edge.source) for edge in known),
                *(names.index(edge.tool) for edge in known),
            ],
            [len(own) for own in numbers],
            numbers,
            [module.similarity(case.tools, edge) for edge in known],
            [0.0] if calls is None else [float(made.result) for made in calls],
            [float(ord(letter)) for letter in goal],
            [
                float(module.names_any(goal, names)),
                float(module.names_any(f"{goal} {names[0].upper()}", names)),
            ],
        ]
    )


def linked_plainly(case: Documents) -> list[float]:
    """Return the same from tables, stage by stage."""
    told, own = {n: t for n, t, _ in case.calls}, {n: a for n, _, a in case.calls}
    names = list(told)
    pairs = [(i, j, k) for i in names for j in names if i != j for k in own[j]]

    def bag(text: str) -> set[str]:
        return {w for w in text.lower().replace(".", "").split() if w not in ("of", "the", "gives")}

    close = [
        len(bag(told[i]) & bag(own[j][k])) / max((len(bag(told[i])) * len(bag(own[j][k]))) ** 0.5, 1e-9)
        for i, j, k in pairs
    ]
    near = [e for e, cosine in enumerate(close) if cosine >= 0.3]
    takes = set(case.taken)
    able: list[int] = []
    for e in near:
        i, j, k = pairs[e]
        results = [case.result(i, dict.fromkeys(own[i], value)) for value in (0, 1, 2)]
        if all((j, k, value) in takes for value in results):
            able.append(e)
    first = names[case.number % len(names)]
    value = case.number % 3
    one = case.result(first, dict.fromkeys(own[first], value))
    after = [pairs[e] for e in able if pairs[e][0] == first]
    results, goal = [0.0], ""
    if after:
        _, j, k = after[case.number % len(after)]
        filled = {name: one if name == k else value for name in own[j]}
        results = [float(one), float(case.result(j, filled))]
        start = " with ".join(f"{own[first][name].split()[0]} {value}" for name in own[first])
        inner = f"the owner{names.index(first)} of {start}"
        slots = [inner if name == k else f"{own[j][name].split()[0]} {value}" for name in own[j]]
        goal = f"Find the owner{names.index(j)} of {' with '.join(slots)}."
    stages = [list(range(len(pairs))), near, able]
    return flatten(
        [
            [len(pairs), *(names.index(i) for i, _, _ in pairs), *(names.index(j) for _, j, _ in pairs)],
            [len(stage) for stage in stages], stages, close, results,
            [float(ord(letter)) for letter in goal], [0.0, 1.0],
        ]
    )  # fmt: skip


Roles = list[tuple[str, str]]
"""what each role says, in order"""
LETTERS = {"think": "T", "plan": "P", "suggested_answer": "S", "action": "A"}
ORDER = re.compile(r"(T?S[12]P)*T?S[345]A")
"""Roles in their order, with the scores of checks in the place of the checks."""


def spoken_roles(rng: Rng) -> Roles:
    """Return the run of a team, and in half of the cases a mistake in it."""
    found: Roles = []
    answer = ""
    for _ in range(int(rng.integers(0, 3))):
        found += [("think", "<b> & </think>")] if rng.random() < 0.7 else []
        found += [("suggested_answer", "12"), ("double_check", str(rng.integers(1, 3))), ("plan", "again")]
    answer = str(rng.choice(["12", "a < b &amp; c", "<action>7</action>"]))
    found += [("think", "")] if rng.random() < 0.7 else []
    found += [("suggested_answer", answer), ("double_check", str(rng.integers(3, 6))), ("action", answer)]
    place = int(rng.integers(len(found)))
    match int(rng.integers(8)):
        case 0:
            found.pop(place)
        case 1:
            found.insert(place, found[int(rng.integers(len(found)))])
        case 2:
            found[place] = (found[place][0], str(rng.choice(["0", "6", "2", "4", "no", "4.5"])))
        case 3:
            found[place] = (str(rng.choice([*LETTERS, "double_check"])), found[place][1])
        case _:
            pass
    return found


def is_ordered(roles: Roles) -> bool:
    """Return whether roles come in their order, by a pattern, and what is done is what was suggested last."""
    letters = "".join(
        LETTERS.get(role, content if len(content) == 1 and content in "12345" else "?")
        for role, content in roles
    )
    suggested = [content for role, content in roles if role == "suggested_answer"]
    return bool(ORDER.fullmatch(letters)) and suggested[-1:] == [roles[-1][1]]


def ordered_roles(module: ModuleType, case: Roles) -> list[float]:
    """Return whether roles are in order, and what is read again of what was written."""
    told = [module.Activation(*each) for each in case]
    again = module.read_roles(module.write_roles(told))
    return [
        float(not module.find_broken_rule(told)),
        float(len(again)),
        *(float(a == b) for a, b in zip(again, told, strict=False)),
    ]


def teams(rng: Rng) -> list[tuple[list[Roles], bool]]:
    """Return six episodes of one or two turns, and whether each solved its task."""
    return [
        ([spoken_roles(rng) for _ in range(int(rng.integers(1, 3)))], bool(rng.random() < 0.7))
        for _ in range(6)
    ]


def team_chosen(module: ModuleType, case: Sequence[tuple[list[Roles], bool]]) -> list[float]:
    """Return how many episodes each of the stages leaves, and which, by their numbers."""
    told: list[Trajectory] = []
    for turns, is_right in case:
        texts = [module.write_roles([module.Activation(*each) for each in roles]) for roles in turns]
        plain = Tried(
            turns=[("", True, True)] * len(turns), num_tokens=len(turns), is_right=is_right
        ).trajectory()
        spoken = tuple(
            replace(turn, completion=Completion(token_ids=tuple(map(ord, text)), logprobs=(), stop="stop"))
            for turn, text in zip(plain.turns, texts, strict=True)
        )
        told.append(replace(plain, turns=spoken))
    made = module.pipeline(lambda ids: "".join(map(chr, ids)), 6, 3).run([as_example(t) for t in told])
    numbers = [next(k for k, t in enumerate(told) if t is e.trajectory) for e in made.examples]
    return flatten([[p.num_out for p in made.funnel.passages], numbers])


def team_chosen_plainly(case: Sequence[tuple[list[Roles], bool]]) -> list[float]:
    """Return the same, set by set."""
    right = [k for k, (_, is_right) in enumerate(case) if is_right]
    order = [k for k in right if all(is_ordered(roles) for roles in case[k][0])]
    many = [k for k in order if sum(len(roles) for roles in case[k][0]) > 5]
    back = [
        k
        for k in many
        for _ in range(
            3
            if any(each in (("double_check", "1"), ("double_check", "2")) for r in case[k][0] for each in r)
            else 1
        )
    ]
    return flatten([[len(right), len(order), len(many), len(back)], back])


Attempts = tuple[list[tuple[str, bool]], int, int]
"""(skill, success) of each try, how many skills are drawn, and what chance says"""
LETTER_SKILLS = "abcde"


def draw_attempts(rng: Rng) -> Attempts:
    """Return up to forty tries of four of five skills, and up to seven draws."""
    tries = [
        (str(rng.choice(list(LETTER_SKILLS[:4]))), bool(rng.random() < 0.4))
        for _ in range(int(rng.integers(0, 40)))
    ]
    return tries, int(rng.integers(1, 8)), int(rng.integers(0, 1_000))


def tell_skills(module: ModuleType, case: Attempts) -> list[float]:
    """Return tries, successes, rate and error of each skill, and which are drawn."""
    tries, count, seed = case
    report = module.count_skills(tries)
    told = [report.get(skill, module.Known()) for skill in LETTER_SKILLS]
    drawn = module.draw_weak(report, list(LETTER_SKILLS), count, seed)
    return flatten(
        [
            [[known.tries, known.successes, known.rate, known.error] for known in told],
            [LETTER_SKILLS.index(skill) for skill in drawn],
        ]
    )


def tell_skills_plainly(case: Attempts) -> list[float]:
    """Return the same: moments of a Beta distribution that begins even, and draws by its mean of failures."""
    tries, count, seed = case
    told: list[list[float]] = []
    for skill in LETTER_SKILLS:
        own = [success for name, success in tries if name == skill]
        good, bad = 1 + own.count(True), 1 + own.count(False)
        whole = good + bad
        told.append([len(own), own.count(True), good / whole, (good * bad / whole**2 / (whole + 1)) ** 0.5])
    failing = np.array([1 - mean for _, _, mean, _ in told])
    rng = np.random.default_rng(seed)
    drawn: list[int] = []
    for round_of in range(0, count, 5):
        size = min(5, count - round_of)
        drawn += rng.choice(5, size, replace=False, p=failing / failing.sum()).tolist()
    return flatten([told, drawn])


def draw_starts(rng: Rng) -> dict[str, int]:
    """Return what somebody begins with: raw things, tools, and none of some."""
    names = ["wood", "stone", "coal", "iron", "diamond", "stone pickaxe", "iron sword", "wood pickaxe"]
    chosen = rng.choice(names, int(rng.integers(0, 6)), replace=False).tolist()
    return {name: int(rng.integers(0, 2)) for name in chosen}


def repair_start(module: ModuleType, case: dict[str, int]) -> list[float]:
    """Return how many of each thing there are after the repair, in the order of their names."""
    found = module.add_tools(case)
    return flatten([[len(name), count] for name, count in sorted(found.items())])


def repair_start_plainly(case: dict[str, int]) -> list[float]:
    """Return the same, thing by thing."""
    found = {name: count for name, count in case.items() if count > 0}
    for raw, tool in (("stone", "wood"), ("coal", "wood"), ("iron", "stone"), ("diamond", "iron")):
        if case.get(raw):
            found[f"{tool} pickaxe"] = 1
    return flatten([[len(name), found[name]] for name in sorted(found)])


FORMULAS: tuple[Formula, ...] = (
    Formula("imitation.sifted", "methods.imitation.web_dancer", ("pipeline", "num_repeats", "rewards"), tries,
        sifted, sifted_plainly),
    Formula("imitation.evolved", "worlds.plan.drawn",
        ("easier", "harder", "_choose_task", "extend_goals", "steps_of", "length"), tasks, evolved_both,
        evolved_both_plainly),
    Formula("imitation.new_tasks", "methods.imitation.agent_gen", ("pipeline", "new_tasks", "histogram"),
        lengths, told_lengths, told_lengths_plainly),
    Formula("imitation.linked", "methods.imitation.goat",
        ("stages_of_graph", "all_pairs", "similarity", "holds", "walk", "write_goal", "names_any"), documents,
        linked, linked_plainly),
    Formula("text.roles", "text.roles", ("find_broken_rule", "score_of", "read_roles", "write_roles"), spoken_roles,
        ordered_roles, lambda case: [float(is_ordered(case)), float(len(case)), *[1.0] * len(case)]),
    Formula("imitation.team", "methods.imitation.afm",
        ("pipeline", "transcripts", "is_in_order", "is_corrected"), teams, team_chosen, team_chosen_plainly),
    Formula("imitation.harder", "worlds.hopqa.facts", ("harder", "read_facts"), corpora, evolved,
        evolved_plainly),
    Formula("synthesis.skills", "curriculum.skills", ("Known", "count_skills", "draw_weak"), draw_attempts,
        tell_skills, tell_skills_plainly),
    Formula("synthesis.start", "worlds.craft.layout", ("add_tools",), draw_starts, repair_start, repair_start_plainly),
)  # fmt: skip
