"""ASearcher's questions: does anything but the answer fit a question that was injected into and fuzzed?

What is measured knows nothing of how questions are made: it reads their words, and asks the sentences of all paragraphs
for everything that fits. The control makes as many rounds without any check. Where no fact is about the thing that is
asked for, or leads to it, the question must come back as it was.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from quintain.environments.protocol import advance, begin
from quintain.types import derive_seed
from quintain.worlds.hopqa.facts import Question, QuestionShape, draw_question, read_facts
from quintain.worlds.hopqa.game import HopQA
from quintain.worlds.hopqa.synthesis import Hop, evolve, extend_way, word_question

SAID = re.compile(r"The (\S+) of (\S+) is (\S+)\.")
FORWARD = re.compile(r"the (\S+) of (.+)")
BACKWARD = re.compile(r"the \S+ whose (\S+) is (.+)")
ROUNDS = 2


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return how many rounds left a question that something else fits, with the checks and without them."""
    distractors = int(options["distractors"])
    shape = QuestionShape(1, 1, distractors, 0.0, False, False)
    violations = trials = control_violations = control_trials = changed = alone = 0
    shares: list[tuple[float, float]] = []
    for number in range(int(options["questions"])):
        rng = random.Random(derive_seed("questions", seed, number))
        question = draw_question(shape, rng)
        made = evolve(question, ROUNDS, rng)
        shares.append((made.closed_book[0], made.closed_book[-1]))
        if made.rounds:
            trials += 1
            violations += fits(made.question) != {question.gold}
            free = unchecked(question, len(made.rounds), rng)
            control_trials += 1
            control_violations += fits(free) != {question.gold}
        bare = replace(question, paragraphs=("Nothing is said.",) * len(question.paragraphs))
        alone += 1
        changed += evolve(bare, ROUNDS, rng).question is not bare
    return [
        {
            "violations": float(violations),
            "trials": float(trials),
            "control_violations": float(control_violations),
            "control_trials": float(control_trials),
            "extra.null_changed": float(changed),
            "extra.null_trials": float(alone),
            "extra.closed_before": fmean(first for first, _ in shares),
            "extra.closed_after": fmean(last for _, last in shares),
            "extra.closed_fall": fmean(first - last for first, last in shares),
            "extra.unsolved": unsolved(distractors, int(options["played"]), seed),
        }
    ]


def fits(question: Question) -> set[str]:
    """Return everything that fits `question`, by its words and what its paragraphs say."""
    facts = SAID.findall(" ".join(question.paragraphs))

    def named(words: str) -> set[str]:
        back, on = BACKWARD.fullmatch(words), FORWARD.fullmatch(words)
        if back is not None:
            known = named(back[2])
            return {thing for relation, thing, value in facts if relation == back[1] and value in known}
        if on is not None:
            known = named(on[2])
            return {value for relation, thing, value in facts if relation == on[1] and thing in known}
        return {words}

    return named(question.words().removeprefix("What is ").removesuffix("?"))


def unchecked(question: Question, rounds: int, rng: random.Random) -> Question:
    """Return `question` after as many rounds of which nothing is checked."""
    told = dict(read_facts(question.paragraphs))
    way = tuple(Hop(fact, source) for fact, source in zip(question.chain, question.sources, strict=True))
    for _ in range(rounds):
        way = next(
            (
                w
                for kind in rng.sample(("inject", "fuzz"), 2)
                if (w := extend_way(way, kind, list(told), told, rng))
            ),
            way,
        )
    return word_question(question, way)


def unsolved(distractors: int, num: int, seed: int) -> float:
    """Return the share of `num` tasks with such questions that who searches fact by fact does not solve."""
    world = HopQA(hops=1, closed=0.0, distractors=distractors, evolved=ROUNDS)
    failed = 0
    for index in range(num):
        begin(world, world.task("eval", derive_seed("played", seed, index) % (1 << 40)))
        result = advance(world, world.expert_action())
        for _ in range(world.max_turns - 1):
            if not result.is_terminated:
                result = advance(world, world.expert_action())
        failed += not result.is_success
    return failed / num
