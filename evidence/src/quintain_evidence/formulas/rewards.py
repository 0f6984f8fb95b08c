"""Rewards, each beside a plain second version."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from types import ModuleType
from typing import Any

from quintain.testing.episodes import episode_of, turn_of
from quintain.types import ToolCall, Trajectory
from quintain_evidence.formulas.formula import Formula, Rng, flatten


def economy(case: Sequence[tuple[int, int | None]]) -> list[float]:
    """Return OTC's factors from the table of its cases."""
    found: list[float] = []
    for num, fewest in case:
        if fewest == 0 and num == 0:
            found.append(1.0)
        elif fewest:
            found.append(math.sin(math.pi * num / (num + fewest)))
        else:
            found.append(math.cos(math.pi / 2 * num / (num + 2.0)))
    return found


def calls(rng: Rng) -> list[tuple[int, int | None]]:
    """Return numbers of calls and the fewest known; None where none is known."""
    return [(int(rng.integers(0, 9)), [None, *range(6)][int(rng.integers(0, 7))]) for _ in range(30)]


def repeated(case: Sequence[Sequence[int]]) -> list[float]:
    """Return the share of windows of three tokens that stand in the text earlier."""
    found: list[float] = []
    for ids in case:
        windows = [tuple(ids[k : k + 3]) for k in range(len(ids) - 2)]
        again = sum(window in windows[:k] for k, window in enumerate(windows))
        found.append(again / len(windows) if windows else 0.0)
    return found


def texts(rng: Rng) -> list[list[int]]:
    """Return texts of up to 12 tokens out of three."""
    return [rng.integers(0, 3, int(rng.integers(0, 13))).tolist() for _ in range(20)]


def shaped(case: Sequence[tuple[bool, int]]) -> list[float]:
    """Return 1 where right, else verl's -1 and .1 · (turns - 2)/2, up to -.6.

    Its turns are those of the assistant, one more than rounds, those of the user, one for each round, and one.
    """
    return [1.0 if right else min(-0.6, -1 + ((num + 1) + num + 1 - 2) / 2 * 0.1) for right, num in case]


def ends(rng: Rng) -> list[tuple[bool, int]]:
    """Return outcomes and numbers of rounds."""
    return [(bool(rng.random() < 0.3), int(rng.integers(0, 12))) for _ in range(30)]


def overlong(case: Sequence[tuple[int, int, int]]) -> list[float]:
    """Return DAPO's penalty, equation 13: nothing, a ramp over the last tokens before the limit, -1."""
    found: list[float] = []
    for limit, buffer, num in case:
        if num <= limit - buffer:
            found.append(0.0)
        elif num <= limit:
            found.append((limit - buffer - num) / buffer)
        else:
            found.append(-1.0)
    return found


def lengths(rng: Rng) -> list[tuple[int, int, int]]:
    """Return limits, buffers and sampled tokens."""
    limits = [int(x) for x in rng.integers(4, 20, 30)]
    return [(limit, int(rng.integers(1, limit + 1)), int(rng.integers(0, 24))) for limit in limits]


def of_length(num: int) -> Trajectory:
    """Return an episode of one turn with `num` sampled tokens."""
    return episode_of([turn_of((7,) * num)])


def overlap(case: Sequence[tuple[list[str], list[list[str]]]]) -> list[float]:
    """Return F1 of words, counted as often as they stand, with the gold that fits best."""
    found: list[float] = []
    for words, golds in case:
        every = [0.0]
        for gold in golds:
            common = sum((Counter(words) & Counter(gold)).values())
            precision, recall = common / len(words), common / len(gold)
            every.append(2 * precision * recall / (precision + recall) if common else 0.0)
        found.append(max(every))
    return found


def answers(rng: Rng) -> list[tuple[list[str], list[list[str]]]]:
    """Return answers and two golds each, of one to four words out of five."""
    words = ["red", "house", "moon", "river", "stone"]

    def some() -> list[str]:
        return [words[k] for k in rng.integers(0, 5, int(rng.integers(1, 5)))]

    return [(some(), [some(), some()]) for _ in range(20)]


def written(rng: Rng) -> list[tuple[str, list[str]]]:
    """Return answers and golds that differ in case, articles, punctuation, space, and sometimes in a word."""
    words = ["Red", "house", "moon"]

    def some() -> str:
        chosen = [words[k] for k in rng.integers(0, 3, int(rng.integers(0, 3)))]
        dressed = [["{}", "the {}", "{}!", " {}", "A {},"][int(rng.integers(0, 5))].format(w) for w in chosen]
        return " ".join(dressed)

    return [(some(), [some() for _ in range(int(rng.integers(1, 4)))]) for _ in range(20)]


def same_words(case: Sequence[tuple[str, list[str]]]) -> list[float]:
    """Return 1 where the words that are no articles are those of a gold answer, in order."""

    def bare(text: str) -> list[str]:
        letters = "".join(c for c in text.lower() if c.isalnum() or c.isspace())
        return [word for word in letters.split() if word not in {"a", "an", "the"}]

    return [float(any(bare(answer) == bare(gold) for gold in golds)) for answer, golds in case]


def checks(rng: Rng) -> list[list[bool]]:
    """Return results of one to six checks."""
    return [[bool(x) for x in rng.integers(0, 2, int(rng.integers(1, 7)))] for _ in range(20)]


def states(rng: Rng) -> list[tuple[int, int, int]]:
    """Return states at the end, goals, and states at the start, out of three."""
    return [(int(a), int(b), int(c)) for a, b, c in rng.integers(0, 3, (30, 3))]


def matched(case: Sequence[tuple[list[ToolCall], list[ToolCall]]]) -> list[float]:
    """Return ToolRL's correctness, 6 S / S_max - 3, with the best of all ways to pair calls."""
    found: list[float] = []
    for predicted, wanted in case:
        names = [call.name for call in predicted], [call.name for call in wanted]
        union = Counter(names[0]) | Counter(names[1])
        share = sum((Counter(names[0]) & Counter(names[1])).values()) / union.total() if union else 1.0
        best = 0.0
        longer = max(len(predicted), len(wanted))
        for order in permutations(range(longer)):
            total = sum(
                alike(predicted[i], wanted[j])
                for i, j in enumerate(order)
                if i < len(predicted) and j < len(wanted)
            )
            best = max(best, total)
        most = 1 + sum(1 + len(call.arguments) for call in wanted)
        found.append(6 * (share + best) / most - 3)
    return found


def alike(first: ToolCall, second: ToolCall) -> float:
    """Return how alike two calls are: shared names of arguments over all, and values that are equal; 0 for others."""
    if first.name != second.name:
        return 0.0
    union = set(first.arguments) | set(second.arguments)
    names = len(set(first.arguments) & set(second.arguments)) / len(union) if union else 1.0
    return names + sum(first.arguments.get(key, None) == value for key, value in second.arguments.items())


def requests(rng: Rng) -> list[tuple[list[ToolCall], list[ToolCall]]]:
    """Return calls that were made and wanted, up to three, of two tools with up to three arguments."""

    def some() -> list[ToolCall]:
        return [
            ToolCall(
                name=["a", "b"][int(rng.integers(0, 2))],
                arguments={key: int(rng.integers(0, 2)) for key in "xyz" if rng.random() < 0.6},
            )
            for _ in range(int(rng.integers(1, 4)))
        ]

    return [(some(), some()) for _ in range(8)]


def each(
    name: str,
    place: str,
    function: str,
    call: Callable[[Callable[..., Any], Any], float],
    draw: Callable[[Rng], Sequence[Any]],
    reference: Callable[[Any], Sequence[float]],
) -> Formula:
    """Return the formula of a function of single cases; `call` applies it to one."""

    def ours(module: ModuleType, cases: Sequence[Any]) -> list[float]:
        return flatten([call(vars(module)[function], case) for case in cases])

    return Formula(f"rewards.{name}", f"rewards.{place}", (function,), draw, ours, reference)


Dialogues = tuple[list[list[float]], float, float, float]


def dialogues(rng: Rng) -> list[Dialogues]:
    """Return outcomes, tokens and nats of some dialogues, with two prices and the least nats."""
    num = int(rng.integers(1, 8))
    paid, tokens = rng.integers(0, 3, num) / 2, rng.integers(1, 60, num)
    nats = rng.uniform(0.1, 6.0, num)
    told = [paid.tolist(), tokens.tolist(), nats.tolist()]
    return [(told, float(rng.uniform(0, 2)), float(rng.uniform(0, 2)), float(rng.uniform(0.2, 2)))]


def ranked(cases: Sequence[Dialogues]) -> list[float]:
    """Return Optima's worth of dialogues."""
    ((paid, tokens, nats), price, plain, least) = cases[0]
    longest = sorted(tokens)[-1]
    found: list[float] = []
    for k in range(len(paid)):
        surprise = nats[k] if nats[k] > least else least
        found.append(paid[k] - tokens[k] / longest * price + plain / surprise)
    return found


def messages(rng: Rng) -> list[tuple[list[int], ...]]:
    """Return pairs of messages of up to six tokens out of three."""
    return [tuple(rng.integers(0, 3, int(rng.integers(0, 7))).tolist() for _ in range(2)) for _ in range(4)]


def edits(cases: Sequence[tuple[list[int], ...]]) -> list[float]:
    """Return the least numbers of edits by trying all first steps, over the longer length."""

    def fewest(one: tuple[int, ...], other: tuple[int, ...]) -> int:
        if not one or not other:
            return len(one) + len(other)
        if one[0] == other[0]:
            return fewest(one[1:], other[1:])
        return 1 + min(fewest(one[1:], other), fewest(one, other[1:]), fewest(one[1:], other[1:]))

    return [
        fewest(tuple(one), tuple(other)) / max(len(one), len(other)) if one or other else 0.0
        for one, other in cases
    ]


Paid = tuple[float, bool, bool]


def searched(rng: Rng) -> list[Paid]:
    """Return scores of answers, 0 in half of the cases, whether was searched, and whether the form is right."""
    return [
        (float(rng.integers(0, 2) * rng.uniform(0, 1)), *rng.integers(0, 2, 2).astype(bool).tolist())
        for _ in range(30)
    ]


def stages_of(module: ModuleType, cases: Sequence[Paid]) -> list[float]:
    """Return what the code pays in the first stage, by the paper and by the code, and in the second."""
    return [
        number
        for score, has_searched, formed in cases
        for number in (
            module.first_stage(has_searched, formed),
            module.first_stage(has_searched, formed, score),
            module.second_stage(score, formed),
        )
    ]


def staged(cases: Sequence[Paid]) -> list[float]:
    """Return R1-Searcher's rewards from a table of what is paid for."""
    found: list[float] = []
    for score, has_searched, formed in cases:
        habit = {(False, False): 0.0, (True, True): 1.0}.get((has_searched, formed), 0.5)
        found += [habit, habit + (1 if score else -1), score if formed else score - 2]
    return found


def floors_of(module: ModuleType, cases: Sequence[Paid]) -> list[float]:
    """Return what the code pays, as the paper says it and so that more is never paid less."""
    return [
        module.with_floor(score, formed, floor=floor, is_monotone=monotone)
        for score, _, formed in cases
        for floor in (0.1, 0.4)
        for monotone in (False, True)
    ]


def floored(cases: Sequence[Paid]) -> list[float]:
    """Return ReSearch's rewards, case by case."""
    found: list[float] = []
    for score, _, formed in cases:
        for floor in (0.1, 0.4):
            for monotone in (False, True):
                lifted = floor if score == 0 or (monotone and score < floor) else score
                found.append(lifted if formed else 0.0)
    return found


def asked(rng: Rng) -> list[tuple[str, list[str]]]:
    """Return queries of one or two words and documents of up to four sentences of three words."""
    words = ["Seat", "Orbit", "Rome", "sky"]

    def some(least: int, most: int) -> str:
        return " ".join(words[k] for k in rng.integers(0, 4, int(rng.integers(least, most))))

    return [(some(1, 3), [some(3, 4) + "." for _ in range(int(rng.integers(1, 5)))]) for _ in range(12)]


def sentences_of(module: ModuleType, cases: Sequence[tuple[str, list[str]]]) -> list[float]:
    """Return which sentence the code says of each document, -1 for none."""
    said = [
        module.find_sentence(f'search[{{"query":"{query}"}}]', " ".join(document))
        for query, document in cases
    ]
    return [float(d.index(s)) if s in d else -1.0 for s, (_, d) in zip(said, cases, strict=True)]


def sentences(cases: Sequence[tuple[str, list[str]]]) -> list[float]:
    """Return the first sentence that every word of the query stands in, -1 for none."""
    return [
        next(
            (
                float(k)
                for k, sentence in enumerate(document)
                if all(word.lower() in sentence.lower().strip(".").split(" ") for word in query.split(" "))
            ),
            -1.0,
        )
        for query, document in cases
    ]


FORMULAS: tuple[Formula, ...] = (
    Formula("agents.needed_sentence", "agents.refined", ("find_sentence",), asked, sentences_of, sentences),
    Formula("rewards.staged", "rewards.retrieval", ("first_stage", "second_stage"), searched, stages_of,
        staged),
    Formula("rewards.floored", "rewards.retrieval", ("with_floor",), searched, floors_of, floored),
    each("tool_economy", "efficiency", "tool_economy", lambda f, c: f(*c), calls, economy),
    each("repetition", "search", "repetition", lambda f, c: f(c, 3), texts, repeated),
    each("turn_shaped", "search", "turn_shaped", lambda f, c: f(*c), ends, shaped),
    each("overlong_penalty", "efficiency", "overlong_penalty",
        lambda f, c: f(c[0], buffer=c[1]).measure(of_length(c[2])), lengths, overlong),
    each("token_f1", "answers", "token_f1", lambda f, c: f(" ".join(c[0]), [" ".join(g) for g in c[1]]),
        answers, overlap),
    each("exact_match", "answers", "exact_match", lambda f, c: f(*c), written, same_words),
    each("share_passed", "execution", "share_passed", lambda f, c: f(c), checks,
        lambda case: [results.count(True) / len(results) for results in case]),
    each("state_reached", "execution", "state_reached",
        lambda f, c: float(f(c[0], goal=c[1], start=c[2])), states,
        lambda case: [float(now == goal and now != start) for now, goal, start in case]),
    each("match_score", "tool_match", "match_score", lambda f, c: f(*c), requests, matched),
    each("dialogue", "dialogue", "dialogue_rewards",
        lambda f, c: f(*c[0], token_weight=c[1], loss_weight=c[2], min_loss=c[3]), dialogues, ranked),
    each("edit_distance", "dialogue", "edit_distance", lambda f, c: f(*c), messages, edits),
)  # fmt: skip
