"""ReAct: does a model that imitates thoughts with results on the way go on from what the thought says?

Chains of one-digit sums, two of whose numbers must be looked up; there is no calculator. Tiny models imitate an expert
whose thoughts hold the results on the way. In held-out episodes, before the answer, two things are changed at once: a
result in the thought, which is cut behind it, and the price in the last observation, which is used after it. The number
is the share of answers that are what the chain comes to from there. The control imitates the same actions with another
task's thoughts of the same form. The rival, filler in the place of thoughts, is compared by success as things are. In
the null world a number is looked up and answered: nothing is to be carried, and all that counts is success.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from quintain.data.pipeline import as_example, example_samples
from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.rollout.samplers import sample_all
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.text.chat import Chat
from quintain.text.parse import parse_react
from quintain.types import Completion, Trajectory, as_text, derive_seed
from quintain.warm_start.start import expert_action
from quintain.worlds.calc.game import Calc
from quintain.worlds.calc.problem import OPERATIONS

PART = re.compile(r"(\d+) (add|subtract|multiply) (\d+) is (\d+)")
THOUGHT = re.compile(r"Thought: (.*)\n")
MOST = 9
"""Largest number on the way, as in the tasks."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The moment before an answer, changed: ``Cut(stream=(1, 2), prefix="Thought: 3 add 4 is 6", answer=8)``."""

    stream: tuple[int, ...]
    prefix: str
    answer: int


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return whether each answer follows the double edit: method and control; success of both in the null world."""
    world, count = str(options["world"]), int(options["seeds"])
    pupils, blank = teach(world, options, seed)
    cuts = draw_cuts(blank, world, count, seed)
    follows = {name: answers_follow(pupils[name], cuts) for name in ("method", "control")}
    asked = tasks_from(world, count, split="eval")
    success = {
        name: [float(g.trajectories[0].is_success) for g in pupil.play(world, asked, seed=seed)]
        for name, pupil in pupils.items()
    }
    null = str(options["null_world"])
    null_pupils, _ = teach(null, {**options, "updates": options["null_updates"]}, seed)
    bare = tasks_from(null, count, split="eval")
    null_success = {
        name: [float(g.trajectories[0].is_success) for g in null_pupils[name].play(null, bare, seed=seed)]
        for name in ("method", "control")
    }
    return [
        {
            "method": follows["method"][k],
            "control": follows["control"][k],
            "null_method": null_success["method"][k],
            "null_control": null_success["control"][k],
            "extra.success": success["method"][k],
            "extra.filler": success["filler"][k],
        }
        for k in range(count)
    ]


def teach(world: str, options: Mapping[str, Any], seed: int) -> tuple[dict[str, Pupil], Pupil]:
    """Return the models of all arms, copies of one that knows nothing, each taught in equally many updates."""
    blank = new_pupil(
        [world],
        seed=derive_seed("react", seed) % (1 << 31),
        model=str(options["model"]),
        agent="react",
        texts=[
            f"Thought: {a} {name} {b} is {a}; next is lookup {b}"
            for a in range(10) for b in range(10) for name in OPERATIONS
        ],
    )  # fmt: skip
    tasks = tasks_from(world, int(options["episodes"]), first=derive_seed(seed, "tasks") % 1_000_000)
    shown = blank.show(world, tasks, expert_action, seed=seed)
    verbose = Pupil(blank.model, blank.tokenizer, blank.seed, "react?filler=1")
    arms = {
        "method": (blank, shown),
        "control": (blank, with_other_thoughts(blank, shown, seed)),
        "filler": (verbose, verbose.show(world, tasks, expert_action, seed=seed)),
    }
    found: dict[str, Pupil] = {}
    for name, (start, episodes) in arms.items():
        pupil = start.copy()
        pupil.learn(
            example_samples([as_example(t) for t in episodes]),
            updates=int(options["updates"]),
            rate=float(options["rate"]),
            size=int(options["size"]),
            seed=seed,
        )
        found[name] = pupil
    return found, blank


def with_other_thoughts(pupil: Pupil, shown: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    """Return `shown`, each turn with the thought of another task's turn that has as many parts."""
    chat = Chat(pupil.tokenizer)
    texts = [[chat.text(turn.completion.token_ids) for turn in t.turns] for t in shown]
    places: dict[tuple[int, bool], list[tuple[int, int]]] = defaultdict(list)
    for i, own in enumerate(texts):
        for k, text in enumerate(own):
            places[text.count(";"), "next is" in text].append((i, k))
    other: dict[tuple[int, int], str] = {}
    for same in places.values():
        Random(derive_seed("thoughts", seed)).shuffle(same)
        for here, there in zip(same, [*same[1:], *same[:1]], strict=True):
            other[here] = (THOUGHT.findall(texts[there[0]][there[1]]) or [""])[0]
    found: list[Trajectory] = []
    for i, t in enumerate(shown):
        said = [
            chat.write(THOUGHT.sub(f"Thought: {other[i, k]}\n", texts[i][k])) for k in range(len(t.turns))
        ]
        turns = [
            replace(turn, completion=Completion(token_ids=ids, logprobs=(), stop="stop"))
            for turn, ids in zip(t.turns, said, strict=True)
        ]
        found.append(replace(t, turns=tuple(turns)))
    return found


def draw_cuts(pupil: Pupil, world: str, count: int, seed: int) -> list[Cut]:
    """Return `count` moments before an answer, each with two changes after which the chain stays within one digit."""
    chat, rng = Chat(pupil.tokenizer), Random(derive_seed("cuts", seed))
    found: list[Cut] = []
    first = 0
    while len(found) < count:
        tasks = tasks_from(world, 2 * count, split="eval", first=first)
        first += 2 * count
        for episode in pupil.show(world, tasks, expert_action, seed=seed):
            cut = cut_in(episode, chat, rng)
            found += [cut] if cut is not None else []
    return found[:count]


def cut_in(episode: Trajectory, chat: Chat, rng: Random) -> Cut | None:
    """Return the changed moment before the answer of `episode`; None where no two changes fit."""
    *before, last = episode.turns
    text = chat.text(last.completion.token_ids)
    parts = [(int(a), name, int(b), int(c)) for a, name, b, c in PART.findall(text)]
    price = int(as_text(last.observation).rpartition(" ")[2])
    known = [chat.text(turn.completion.token_ids) for turn in before][-1].count(" is ") - 1
    # Parts before `known` were there before the last look-up: the price is used in part `known`.
    if known < 1 or known >= len(parts):
        return None
    choices: list[tuple[int, int, int]] = []
    for value in range(MOST + 1):
        for other in range(1, MOST + 1):
            if value == parts[known - 1][3] or other == price:
                continue
            answer = recompute(parts, known, value, other)
            if answer is not None and answer != parts[-1][3]:
                choices.append((value, other, answer))
    if not choices:
        return None
    value, other, answer = rng.choice(choices)
    ids = [i for turn in before for i in (*turn.prompt_ids, *turn.completion.token_ids)]
    shown = chat.encoder.decode(last.prompt_ids)
    if shown.count(f"= {price}") != 1:
        return None
    ids += chat.tokenizer(shown.replace(f"= {price}", f"= {other}"), add_special_tokens=False)["input_ids"]
    told = [f"{a} {name} {b} is {c}" for a, name, b, c in parts[: known - 1]]
    a, name, b, _ = parts[known - 1]
    prefix = "Thought: " + "; ".join([*told, f"{a} {name} {b} is {value}"])
    return Cut(tuple(ids), prefix, answer)


def recompute(parts: Sequence[tuple[int, str, int, int]], known: int, value: int, price: int) -> int | None:
    """Return what the chain comes to from `value` on, with `price` in part `known`; None outside of one digit."""
    for place in range(known, len(parts)):
        number = price if place == known else parts[place][2]
        value = OPERATIONS[parts[place][1]](value, number)  # pyright: ignore[reportArgumentType]
        if not 0 <= value <= MOST:
            return None
    return value


def answers_follow(pupil: Pupil, cuts: Sequence[Cut]) -> list[float]:
    """Return whether the likeliest continuation of each of `cuts` gives its answer."""
    chat = Chat(pupil.tokenizer)
    sampling = Sampling(temperature=0.0, max_tokens=64, stop_ids=chat.stop_ids)
    requests = [
        Request(
            session=str(k),
            prompt_ids=(*cut.stream, *chat.encoder.plain(cut.prefix)),
            seed=k,
            sampling=sampling,
        )
        for k, cut in enumerate(cuts)
    ]
    tools = Calc(calculator=False).tools()
    with closing(build_engine(EngineSettings(), pupil.model, pupil.tokenizer)) as engine:
        replies = sample_all(engine, requests, patience=600.0)
    found: list[float] = []
    for k, cut in enumerate(cuts):
        reply = replies[str(k)]
        assert isinstance(reply, Completion), "an engine here does not fail"
        action = parse_react(cut.prefix + chat.text(reply.token_ids), tools)
        found.append(float(any(call.arguments.get("number") == cut.answer for call in action.tool_calls)))
    return found
