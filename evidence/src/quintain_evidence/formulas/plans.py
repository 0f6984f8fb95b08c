"""How plans are cut from what was done and said, each beside a plain second version."""

from collections.abc import Sequence
from types import ModuleType

from quintain.errors import UsageError
from quintain.types import Action
from quintain_evidence.formulas.formula import Formula, Rng

Way = tuple[list[str], list[float]]
"""(actions, progress before each and at the end)"""
WORDS = ("open", "red", "lamp", "buy", "it", "go")


def ways_drawn(rng: Rng) -> list[Way]:
    """Return ten ways of up to eight actions, whose progress rises, falls or stays."""
    found: list[Way] = []
    for _ in range(10):
        num = int(rng.integers(0, 9))
        found.append(([f"a{k}" for k in range(num)], rng.integers(0, 3, num + 1).astype(float).tolist()))
    return found


def ways_cut(module: ModuleType, case: Sequence[Way]) -> list[float]:
    """Return the code's steps, each as the numbers of its actions behind a mark."""
    found: list[float] = []
    for actions, progress in case:
        for step in module.split_steps([Action(text=text) for text in actions], progress):
            found += [-1.0, *(float(action.text[1:]) for action in step)]
    return found


def cut_by_marks(case: Sequence[Way]) -> list[float]:
    """Return the same: a mark before the first action, and before each that follows a change."""
    found: list[float] = []
    for actions, progress in case:
        for number in range(len(actions)):
            if number == 0 or progress[number] != progress[number - 1]:
                found.append(-1.0)
            found.append(float(number))
    return found


Told = tuple[list[list[str]], str]
"""(steps, each the texts of its actions; what was seen)"""


def draw_told(rng: Rng) -> list[Told]:
    """Return ten lists of steps in few words, some of which were seen."""

    def text(most: int) -> str:
        return " ".join(WORDS[k] for k in rng.integers(0, len(WORDS), int(rng.integers(1, most))).tolist())

    return [
        (
            [[text(4) for _ in range(int(rng.integers(1, 3)))] for _ in range(int(rng.integers(0, 20)))],
            f"Task: {text(5).upper()}. {text(3)}!",
        )
        for _ in range(10)
    ]


def plans_said(module: ModuleType, case: Sequence[Told]) -> list[float]:
    """Return the code's plans as numbers."""
    found: list[float] = []
    for steps, seen in case:
        made = module.step_plan([[Action(text=text) for text in step] for step in steps], seen)
        found += [number_of(step.text) for step in made.steps] + [letters(made.text)]
    return found


def number_of(text: str) -> float:
    """Return a number that tells texts of `WORDS` apart."""
    return float(sum((WORDS.index(word) + 1) * 7**k for k, word in enumerate(text.split())))


def letters(text: str) -> float:
    """Return the sum of the letters of `text`."""
    return float(sum(map(ord, text)))


def say_plans(case: Sequence[Told]) -> list[float]:
    """Return the last action of each step in seen words, what says nothing or the same again left out, 16 at most."""
    found: list[float] = []
    for steps, seen in case:
        words = seen.lower().replace(".", " ").replace("!", " ").replace(":", " ").split()
        said: list[str] = []
        before = ""
        for step in steps:
            text = " ".join(word for word in step[-1].split() if word in words)
            if text != before and text:
                said.append(text)
            before = text
        lines = "\n".join(f"{n + 1}. {text}" for n, text in enumerate(said[:16]))
        found += [number_of(text) for text in said[:16]] + [letters(lines)]
    return found


Graph = tuple[list[tuple[str, list[str]]], list[str]]
"""(blocks b0, b1, …, each a type and the names that it goes on to; what is answered at one after the other)"""
WAYS = {"process": (1, 1), "decision": (2, 9), "terminal": (0, 0)}
"""type of a block → ways on that it has at least and at most"""


def draw_graphs(rng: Rng) -> list[Graph]:
    """Return forty graphs of up to four blocks, of which some are workflows."""
    found: list[Graph] = []
    for _ in range(40):
        num = int(rng.integers(1, 5))
        names = [f"b{k}" for k in range(num)]
        kinds = [(*WAYS,)[int(rng.integers(0, 3))] for _ in names]
        counts = [WAYS[kind][0] if rng.random() < 0.95 else int(rng.integers(0, 3)) for kind in kinds]
        last = num + (rng.random() < 0.1)
        ends = [[f"b{k}" for k in rng.integers(0, last, count).tolist()] for count in counts]
        found.append(
            (
                list(zip(kinds, ends, strict=True)),
                [("k0", "k1", "no")[k] for k in rng.integers(0, 3, 8).tolist()],
            )
        )
    return found


def follow_graphs(module: ModuleType, case: Sequence[Graph]) -> list[float]:
    """Return which of the graphs are read, and the blocks that are passed in these."""
    found: list[float] = []
    for blocks, answers in case:
        lines = [
            f"b{k} ::: {kind} ::: do ::: {'; '.join(f'k{n}: {to}' for n, to in enumerate(ends))}"
            for k, (kind, ends) in enumerate(blocks)
        ]
        try:
            flow = module.read_workflow("\n".join(lines))
        except UsageError:
            found.append(-1.0)
            continue
        block = flow.first
        for said in answers:
            block = flow.pass_on(block, said)
            found.append(float(block.name[1:]))
    return found


def follow_by_paths(case: Sequence[Graph]) -> list[float]:
    """Return the same by trying all paths of every length."""
    found: list[float] = []
    for blocks, answers in case:
        if not _is_workflow(blocks):
            found.append(-1.0)
            continue
        at = 0
        for said in answers:
            ends = blocks[at][1]
            if ends:
                at = int(ends[0 if said == "k0" else 1 if said == "k1" and len(ends) > 1 else -1][1:])
            found.append(float(at))
    return found


def _is_workflow(blocks: Sequence[tuple[str, list[str]]]) -> bool:
    """Return whether all blocks are reached, come to a terminal, and decide nothing for ever."""
    num, kinds = len(blocks), [kind for kind, _ in blocks]
    if any(not WAYS[kind][0] <= len(ends) <= WAYS[kind][1] for kind, ends in blocks):
        return False
    steps = [[int(to[1:]) for to in ends] for _, ends in blocks]
    if any(to >= num for ends in steps for to in ends):
        return False

    def reach(first: int, only: str = "") -> set[int]:
        here, seen = {first}, set[int]()
        for _ in range(num + 1):
            here = {to for at in here if only in ("", kinds[at]) for to in steps[at]}
            seen |= here
        return seen

    all_reached = reach(0) | {0} == set(range(num))
    all_end = all(any(kinds[at] == "terminal" for at in reach(k) | {k}) for k in range(num))
    return (
        all_reached
        and all_end
        and not any(k in reach(k, "decision") for k in range(num) if kinds[k] == "decision")
    )


Race = tuple[list[int], list[float]]
"""(which texts are written, by number; the score of each workflow, the kept one first)"""
TEXTS = ("no workflow", *(f"a ::: terminal ::: do {k} :::" for k in range(4)))


def draw_races(rng: Rng) -> list[Race]:
    """Return ten races of up to four texts, with scores that are often equal."""
    return [
        (
            rng.integers(0, len(TEXTS), int(rng.integers(0, 5))).tolist(),
            rng.integers(-3, 2, 5).astype(float).tolist(),
        )
        for _ in range(10)
    ]


def run_races(module: ModuleType, case: Sequence[Race]) -> list[float]:
    """Return the scores of what was tried, and who is kept."""
    found: list[float] = []
    for texts, scores in case:
        kept = module.read_workflow(module.PLAIN)
        tried = module.try_texts([TEXTS[k] for k in texts], kept, lambda flows, own=scores: own[: len(flows)])
        for each in tried:
            found += [each.score, float(each.is_kept), float(bool(each.fault)), float(len(each.text))]
        found.append(float(len(module.kept_workflow(tried).text)))
    return found


def race_by_hand(case: Sequence[Race]) -> list[float]:
    """Return the same: followed ones first, then what was no workflow, at -2; the first of the best is kept."""
    plain = "begin ::: process ::: Act. ::: next: rest\nrest ::: terminal ::: Do what is left. :::"
    found: list[float] = []
    for texts, scores in case:
        followed = [plain, *(TEXTS[k] for k in texts if k)]
        top, kept = max(scores[: len(followed)]), ""
        for text, score in zip(followed, scores, strict=False):
            is_kept = not kept and score == top
            kept = text if is_kept else kept
            found += [score, float(is_kept), 0.0, float(len(text))]
        for _ in range(texts.count(0)):
            found += [-2.0, 0.0, 1.0, float(len(TEXTS[0]))]
        found.append(float(len(kept)))
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("plan.split_steps", "agents.plan", ("split_steps",), ways_drawn, ways_cut, cut_by_marks),
    Formula("plan.step_plan", "agents.plan", ("step_plan",), draw_told, plans_said, say_plans),
    Formula(
        "workflow.follow",
        "agents.workflow",
        ("read_workflow", "pass_on"),
        draw_graphs,
        follow_graphs,
        follow_by_paths,
    ),
    Formula(
        "auto_flow.race",
        "methods.agents.auto_flow",
        ("try_texts", "kept_workflow"),
        draw_races,
        run_races,
        race_by_hand,
    ),
)
