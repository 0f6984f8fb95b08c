"""Rewards of whole episodes, each beside a plain second version that goes from turn to turn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, cast

from quintain.rewards.arrangement import Room
from quintain.rewards.conduct import success
from quintain.rewards.pointing import Target
from quintain.rewards.terms import Term
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import (
    Action,
    Failure,
    Group,
    Score,
    Task,
    ToolCall,
    ToolError,
    Trajectory,
    Turn,
)
from quintain_evidence.formulas.formula import Formula, Rng, flatten

Per = list[list[float]]
"""[episode][turn]"""


def episode(rng: Rng, task: Task, index: int) -> Trajectory:
    """Return an episode of 1 to 6 turns: some are thoughts, some break, some call tools, some answer."""
    turns: list[Turn] = []
    for number in range(int(rng.integers(1, 7))):
        is_broken, is_valid = bool(rng.random() < 0.2), bool(rng.random() < 0.7)
        calls = tuple(ToolCall(name="abc"[int(k)]) for k in rng.integers(0, 3, int(rng.integers(0, 4))))
        state = None if rng.random() < 0.15 else f"s{int(rng.integers(0, 3))}"
        turns.append(
            turn_of(
                rng.integers(0, 30, int(rng.integers(1, 9))).tolist(),
                Action(error="?")
                if is_broken
                else Action(text="xyz"[int(rng.integers(0, 3))], tool_calls=calls),
                seat="agent/plan" if number and rng.random() < 0.2 else "agent",
                reward=round(float(rng.normal()), 3),
                reward_terms={"answer": 1.0} if rng.random() < 0.3 else {},
                state_key=state,
                is_valid=is_valid,
            )
        )
    is_failed = index > 0 and rng.random() < 0.15
    made = episode_of(turns, 1.0, is_success=bool(rng.random() < 0.5), task=task, group=task.id, index=index)
    broken = Failure(owner="judge", kind="x", message="y")
    return replace(made, outcome=broken) if is_failed else made


def groups(rng: Rng) -> list[Group]:
    """Return up to five groups of up to four episodes; a task may come twice."""
    found: list[Group] = []
    for _ in range(int(rng.integers(1, 6))):
        task = Task(id=f"t{int(rng.integers(0, 3))}", environment="e", seed=0)
        members = tuple(episode(rng, task, index) for index in range(int(rng.integers(1, 5))))
        found.append(Group(task=task, trajectories=members))
    return found


def episodes(case: Sequence[Group]) -> list[Trajectory]:
    """Return the episodes that count."""
    return [t for group in case for t in group.trajectories if isinstance(t.outcome, Score)]


def lengths(t: Trajectory) -> list[int]:
    """Return the sampled tokens of each turn."""
    return [len(turn.completion.token_ids) for turn in t.turns]


def acted(t: Trajectory) -> list[Turn]:
    """Return the turns whose speaker has no role: what an agent says to itself is left out."""
    return [turn for turn in t.turns if "/" not in turn.seat]


def made_calls(t: Trajectory) -> int:
    """Return the calls of an episode, one less for each turn with calls that answers; what is only thought is none."""
    total = 0
    for turn in t.turns:
        if "/" in turn.seat:
            continue
        total += len(turn.action.tool_calls)
        if turn.action.tool_calls and "answer" in turn.reward_terms:
            total -= 1
    return total


def of_term(
    name: str,
    place: str,
    function: str,
    make: Callable[[Callable[..., Any]], Term],
    plain: Callable[[Trajectory], list[float]],
    *more: str,
    draw: Callable[[Rng], list[Group]] = groups,
) -> Formula:
    """Return the formula of a term: what it measures of every episode, its weight, beside `plain`."""

    def ours(module: ModuleType, case: Sequence[Group]) -> list[float]:
        term = make(vars(module)[function])
        found = [term.measure(t) for t in episodes(case)]
        assert not any(isinstance(one, Failure) for one in found), "these terms cannot fail"
        return flatten(
            [[one] if isinstance(one, float | int) else [*cast(Sequence[float], one)] for one in found]
        )

    return Formula(f"rewards.{name}", f"rewards.{place}", (function, *more), draw, ours,
        lambda case: flatten([plain(t) for t in episodes(case)]))  # fmt: skip


def news(t: Trajectory) -> list[float]:
    """Return 1 for each turn that led to a state not met before."""
    met, found = set[str | None](), list[float]()
    for number, turn in enumerate(t.turns):
        met.add(turn.state_key)
        after = t.turns[number + 1].state_key if number + 1 < len(t.turns) else None
        found.append(float(after is not None and after not in met))
    return found


def searched(t: Trajectory) -> list[float]:
    """Return the mean over acting turns of 1 - .9^tokens, thoughts before them included; 0 for what repeats itself."""
    words = [i for turn in t.turns for i in turn.completion.token_ids]
    windows = [tuple(words[k : k + 4]) for k in range(len(words) - 3)]
    if windows and 1 - len(set(windows)) / len(windows) > 0.02:
        return [0.0]
    spans, span = list[int](), 0
    for turn, length in zip(t.turns, lengths(t), strict=True):
        span += length
        if "/" not in turn.seat:
            spans.append(span)
            span = 0
    return [sum(1 - 0.9**n for n in spans) / len(spans)]


def broken(t: Trajectory) -> list[float]:
    """Return -1 for each turn that could not be read."""
    return [-1.0 if turn.action.error is not None else 0.0 for turn in t.turns]


def guarded_groups(rng: Rng) -> list[Group]:
    """Return groups in whose turns some calls were refused by a guard, and others failed."""

    def judged(turn: Turn) -> Turn:
        causes = ("", "refused", "tool_error")
        drawn = [causes[int(k)] for k in rng.integers(0, 3, len(turn.action.tool_calls))]
        errors = [
            ToolError(tool=call.name, cause=cast(Any, cause))
            for call, cause in zip(turn.action.tool_calls, drawn, strict=True)
            if cause
        ]
        return replace(turn, tool_errors=tuple(errors))

    return [
        replace(
            group,
            trajectories=tuple(replace(t, turns=tuple(map(judged, t.turns))) for t in group.trajectories),
        )
        for group in groups(rng)
    ]


def refused_calls(t: Trajectory) -> list[float]:
    """Return -1 for each call of a turn that a guard refused; calls that failed are none."""
    found: list[float] = []
    for turn in t.turns:
        number = 0
        for error in turn.tool_errors:
            if error.cause == "refused":
                number += 1
        found.append(float(-number))
    return found


def draw_offences(rng: Rng) -> list[Group]:
    """Return groups in which an environment counts unlawful acts of some turns."""

    def offend(turn: Turn) -> Turn:
        counted = {"illegal": float(rng.integers(0, 4))} if rng.random() < 0.6 else {}
        return replace(turn, reward_terms={**turn.reward_terms, **counted})

    return [
        replace(
            group,
            trajectories=tuple(replace(t, turns=tuple(map(offend, t.turns))) for t in group.trajectories),
        )
        for group in groups(rng)
    ]


def count_offences(t: Trajectory) -> list[float]:
    """Return minus what each turn was counted; a turn of which nothing is said has none."""
    found: list[float] = []
    for turn in t.turns:
        counted = [amount for name, amount in turn.reward_terms.items() if name == "illegal"]
        found.append(0.0 - sum(counted))
    return found


def refused(t: Trajectory) -> list[float]:
    """Return -1 for each action that was read and not carried out."""
    return [-1.0 if turn.action.error is None and not turn.is_valid else 0.0 for turn in t.turns]


def done(t: Trajectory) -> list[float]:
    """Return 1 for each action that was read and carried out; a thought is no action."""
    return [
        0.0 if turn.action.error is not None or not turn.is_valid or "/" in turn.seat else 1.0
        for turn in t.turns
    ]


def first_tries(t: Trajectory) -> list[float]:
    """Return 1 for each action that was carried out and never before in its episode."""
    found: list[float] = []
    for number, turn in enumerate(t.turns):
        before = [
            (other.action.text, other.action.tool_calls)
            for other, is_done in zip(t.turns[:number], done(t), strict=False)
            if is_done
        ]
        is_new = (turn.action.text, turn.action.tool_calls) not in before
        found.append(1.0 if is_new and done(t)[number] else 0.0)
    return found


def brief(t: Trajectory) -> list[float]:
    """Return what .3 for each token over 9, as a share of 9, and at most .4, takes off a right answer."""
    over = max(0.0, sum(lengths(t)) - 9) / 9
    return [-t.is_success * min(0.3 * over, 0.4)]


def few(t: Trajectory) -> list[float]:
    """Return what OTC-PPO's factor cos(m·π/(2m + 3)) takes off a right answer."""
    num = made_calls(t)
    return [t.is_success * (math.cos(num * math.pi / (2 * num + 3)) - 1)]


def overlong(t: Trajectory) -> list[float]:
    """Return 0 up to 12 tokens, -1 from 20 on, and a line between."""
    total = sum(lengths(t))
    return [0.0 if total <= 12 else -1.0 if total >= 20 else -(total - 12) / 8]


def remembered(module: ModuleType, case: Sequence[Group]) -> list[float]:
    """Return what the memory of the fewest calls holds after all groups, and what its term pays."""
    fewest = module.FewestCalls()
    for group in case:
        fewest.update([group])
    term = fewest.term(success(), smoothing=3.0)
    known = [float(fewest.known.get(f"t{k}", -1)) for k in range(3)]
    return [*known, *flatten([term.measure(t) for t in episodes(case)]), float(module.productivity(case))]


def fewest(case: Sequence[Group]) -> list[float]:
    """Return the fewest calls of right answers to each task, OTC's price of a right answer, right answers per call."""
    known: list[float] = []
    for k in range(3):
        counts = [made_calls(t) for t in episodes(case) if t.is_success and t.task.id == f"t{k}"]
        known.append(float(min(counts)) if counts else -1.0)
    paid: list[float] = []
    for t in episodes(case):
        num, least = made_calls(t), known[int(t.task.id[1])]
        if least > 0:
            factor = math.sin(math.pi * num / (num + least))
        else:
            factor = 1.0 if num == 0 else math.cos(num * math.pi / (2 * num + 3))
        paid.append(t.is_success * (factor - 1))
    calls = sum(made_calls(t) for t in episodes(case))
    return [*known, *paid, sum(t.is_success for t in episodes(case)) / max(calls, 1)]


def visited(module: ModuleType, case: Sequence[Group]) -> list[float]:
    """Return the bonus for rare states, all of the case counted."""
    visits = module.Visits()
    for group in case:
        visits.update([group])
    return flatten([list(visits.bonus().measure(t)) for t in episodes(case)])


def rare(case: Sequence[Group]) -> list[float]:
    """Return 1/√N of the state that each action led to, N over all episodes of its task, failures too.

    That is the state in which the next action was taken; thoughts are passed over.
    """
    every = [t for group in case for t in group.trajectories]
    found: list[float] = []
    for t in episodes(case):
        for number, turn in enumerate(t.turns):
            later = [u.state_key for u in t.turns[number + 1 :] if "/" not in u.seat]
            key = later[0] if later and "/" not in turn.seat else None
            num = sum(
                u.state_key == key and "/" not in u.seat
                for o in every
                if o.task.id == t.task.id
                for u in o.turns
            )
            found.append(1 / math.sqrt(num) if key is not None else 0.0)
    return found


def applied(module: ModuleType, case: Sequence[Group]) -> list[float]:
    """Return turn rewards and outcomes with three terms: weighted, capped, gated."""
    terms = (
        module.Term(name="right", measure=lambda t: float(t.is_success), weight=2.0),
        module.Term(
            name="long", measure=lambda t: [-float(n) for n in lengths(t)], weight=0.1, cap=(-1.0, 0.0)
        ),
        module.Term(name="calls", measure=made_calls, weight=0.5, gate="right"),
    )
    paid = [t for group in module.apply_all(case, terms) for t in group.trajectories]
    counted = [t for t in paid if isinstance(t.outcome, Score)]
    return flatten([[*(turn.reward for turn in t.turns), t.outcome.value] for t in counted])


def sum_up(case: Sequence[Group]) -> list[float]:
    """Return the same by hand: the cap cuts the turn that passes it."""
    found: list[float] = []
    for t in episodes(case):
        rewards, spent = list[float](), 0.0
        for length in lengths(t):
            part = max(-0.1 * length, -1.0 - spent)
            spent += part
            rewards.append(part)
        rewards[-1] += 2.0 * t.is_success + (0.5 * made_calls(t) if t.is_success else 0.0)
        found += [*rewards, sum(rewards)]
    return found


def layouts(rng: Rng) -> list[tuple[Any, Room, Sequence[float] | None]]:
    """Return answers, most of them layouts of two or three things, with rooms and grades."""
    found: list[tuple[Any, Room, Sequence[float] | None]] = []
    for _ in range(20):
        things = ("a", "b", "c")[: int(rng.integers(2, 4))]
        sizes = tuple((float(w), float(d)) for w, d in rng.integers(1, 3, (len(things), 2)))
        pillars = tuple((float(x), float(y)) for x, y in rng.integers(0, 4, (int(rng.integers(0, 3)), 2)))
        walls = things[: int(rng.integers(0, 2))]
        room = Room(width=4, depth=4, things=things, sizes=sizes, walls=walls, pillars=pillars)
        answer: Any = [[name, *rng.integers(-1, 5, 2).tolist()] for name in things]
        kind = rng.random()
        if kind < 0.1:
            answer = dict.fromkeys(things, 1)
        elif kind < 0.2:
            answer = answer[1:]
        elif kind < 0.3:
            answer[0] = [things[0], 1]
        grades: Sequence[float] = rng.integers(0, 11, int(rng.integers(0, 6))).tolist()
        found.append((answer, room, grades if rng.random() < 0.9 else None))
    return found


def laid_out(case: Sequence[tuple[Any, Room, Sequence[float] | None]]) -> list[float]:
    """Return format, collisions, constraints and grades, -9 where the judge failed, by squares of half a cell."""
    found: list[float] = []
    for answer, room, grades in case:
        if grades is None:
            found.append(-9.0)
            continue
        size = dict(zip(room.things, room.sizes, strict=True))
        parts = [0.0, 0.0, 0.0]
        if isinstance(answer, list) and any(len(entry) != 3 for entry in answer):
            parts[0] = 0.05
        elif isinstance(answer, list) and len(answer) < len(room.things):
            parts[0] = 0.25
        elif isinstance(answer, list):
            boxes = {name: (x, y, x + size[name][0], y + size[name][1]) for name, x, y in answer}
            cells = {
                name: {(i, j) for i in range(int(x), int(r)) for j in range(int(y), int(b))}
                for name, (x, y, r, b) in boxes.items()
            }
            names = list(cells)
            pairs = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
            bad = sum(
                not all(0 <= i < 4 and 0 <= j < 4 for i, j in cells[name])
                or any((int(x), int(y)) in cells[name] for x, y in room.pillars)
                for name in names
            )
            bad += sum(
                not (x == 0 or y == 0 or r == 4 or b == 4)
                for name in room.walls
                for x, y, r, b in [boxes[name]]
            )
            parts = [
                0.5,
                -0.2 * sum(bool(cells[a] & cells[b]) for a, b in pairs) / len(pairs),
                -0.2 * bad / (len(names) + len(room.walls)),
            ]
        found += [*parts, sum(grades) / 50 if parts[0] == 0.5 else 0.0]
    return found


def arranged(module: ModuleType, case: Sequence[tuple[Any, Room, Sequence[float] | None]]) -> list[float]:
    """Return the terms of the code, in the same order."""
    found: list[float] = []
    for answer, room, grades in case:
        terms = module.arrangement_terms(answer, room, grades)
        if terms is None:
            found.append(-9.0)
        else:
            found += [terms["format"], terms["collision"], terms["constraint"], terms.get("grades", 0.0)]
    return found


def pointed(rng: Rng) -> list[tuple[Action, Target]]:
    """Return actions on a small screen, and targets with and without boxes; edges are met often."""
    found: list[tuple[Action, Target]] = []
    for _ in range(40):
        left, top = (int(k) for k in rng.integers(0, 3, 2))
        box = (float(left), float(top), float(left + 2), float(top + 1)) if rng.random() < 0.8 else None
        arguments: dict[str, Any] = {"x": int(rng.integers(0, 6)), "y": int(rng.integers(0, 5))}
        if rng.random() < 0.1:
            del arguments["y"]
        name = "click" if rng.random() < 0.8 else "type"
        action = Action(tool_calls=(ToolCall(name=name, arguments=arguments),))
        found.append((Action(error="?") if rng.random() < 0.1 else action, Target(kind="click", box=box)))
    return found


def thirds(case: Sequence[tuple[Action, Target]]) -> list[float]:
    """Return a point for form, one for the kind, one for the place where there is one, over what there is."""
    found: list[float] = []
    for action, target in case:
        if action.error is not None:
            found.append(0.0)
            continue
        call = action.tool_calls[0]
        points = [1.0, float(call.name == target.kind)]
        if target.box is not None:
            x, y = call.arguments["x"], call.arguments.get("y", 99)
            left, top, right, bottom = target.box
            is_in = left - x <= 0 <= right - x and top - y <= 0 <= bottom - y
            points.append(float(is_in and call.name == target.kind))
        found.append(sum(points) / len(points))
    return found


def scored(module: ModuleType, case: Sequence[tuple[Any, Room, Sequence[float] | None]]) -> list[float]:
    """Return the whole scores of the code, -9 where the judge failed."""
    found = [module.arrangement_score(answer, room, grades) for answer, room, grades in case]
    return [-9.0 if score is None else float(score) for score in found]


def in_all(case: Sequence[tuple[Any, Room, Sequence[float] | None]]) -> list[float]:
    """Return the sum of the terms of each answer, which are four where the judge did not fail."""
    found: list[float] = []
    for one in case:
        found.append(sum(laid_out([one])))
    return found


def graded(module: ModuleType, case: Sequence[tuple[Action, Target]]) -> list[float]:
    """Return the scores of the code."""
    return [module.pointing_score(action, target) for action, target in case]


FORMULAS: tuple[Formula, ...] = (
    of_term("format_penalty", "conduct", "format_penalty", lambda f: f(), broken),
    of_term("invalid_action_penalty", "conduct", "invalid_action_penalty", lambda f: f(), refused),
    of_term("illegal_act_penalty", "conduct", "illegal_act_penalty", lambda f: f(), count_offences, draw=draw_offences),
    of_term("refused_call_penalty", "conduct", "refused_call_penalty", lambda f: f(), refused_calls,
            draw=guarded_groups),
    of_term("executed", "conduct", "pay_executed", lambda f: f(), done),
    of_term("untried_bonus", "exploration", "pay_untried", lambda f: f(), first_tries),
    of_term("turn_shaped_success", "search", "turn_shaped_success", lambda f: f(),
            lambda t: [1.0 if t.is_success else min(-0.6, -1.1 + len(acted(t)) / 10)]),
    of_term("well_formed", "conduct", "well_formed", lambda f: f(),
            lambda t: [sum(turn.action.error is None for turn in acted(t)) / len(acted(t))]),
    of_term("new_state", "conduct", "new_state_bonus", lambda f: f(), news),
    of_term("search_bonus", "search", "search_bonus", lambda f: f(base=0.9, max_repetition=0.02), searched),
    of_term("over_turn_budget", "search", "over_turn_budget", lambda f: f(3),
            lambda t: [-min(max(n - 3, 0), 3) / 3 for n in lengths(t)]),
    of_term("efficiency", "efficiency", "efficiency",
            lambda f: f(success(), lambda t: sum(lengths(t)), budget=9, strength=0.3, limit=0.4), brief),
    of_term("economy_alone", "efficiency", "fewest_calls", lambda f: f(success(), smoothing=3.0), few),
    of_term("overlong_penalty", "efficiency", "overlong_penalty", lambda f: f(20, buffer=8), overlong),
    Formula("rewards.fewest_calls", "rewards.efficiency", ("FewestCalls", "productivity"), groups, remembered,
        fewest),
    Formula("rewards.visits", "rewards.exploration", ("Visits",), groups, visited, rare),
    Formula("rewards.apply", "rewards.terms", ("apply_all",), groups, applied, sum_up,
        aside=("check", "_find_overflow", "_failure")),
    Formula("rewards.arrangement_terms", "rewards.arrangement", ("arrangement_terms",), layouts, arranged,
        laid_out),
    Formula("rewards.arrangement_score", "rewards.arrangement", ("arrangement_score",), layouts, scored,
        in_all),
    Formula("rewards.pointing_score", "rewards.pointing", ("pointing_score",), pointed, graded, thirds),
)  # fmt: skip
