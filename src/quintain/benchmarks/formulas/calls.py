"""Tool calls under a cap, traces rewritten to calls, and what they are paid, each beside a plain second version."""

from collections.abc import Sequence
from types import ModuleType

from quintain.benchmarks.formulas.episodes import TASK, episode_of, turn_of
from quintain.benchmarks.formulas.formula import Formula, Rng
from quintain.environments.protocol import Environment
from quintain.rewards.conduct import environment_reward
from quintain.rewards.efficiency import num_calls
from quintain.rewards.terms import apply
from quintain.types import (
    Action,
    Score,
    StepResult,
    Task,
    Text,
    ToolCall,
    ToolCause,
    ToolError,
    ToolSpec,
)

Said = tuple[str, bool, tuple[ToolCause, ...]]
"""(what a turn called, whether it was carried out, causes of calls that failed)"""


# ToRL's reward


def drawn_episodes(rng: Rng) -> list[tuple[bool, float, list[Said]]]:
    """Return outcomes, penalties and turns, some of them unreadable, refused or broken by the tool."""
    kinds: list[Said] = [
        ("add", True, ()),
        ("add", True, ("tool_error",)),
        ("add", False, ("invalid_call",)),
        ("add", False, ()),
        ("add", False, ("timeout",)),
        ("unreadable", False, ()),
    ]
    found: list[tuple[bool, float, list[Said]]] = []
    for _ in range(24):
        chosen = [kinds[k] for k in rng.integers(0, len(kinds), int(rng.integers(1, 4))).tolist()]
        found.append((bool(rng.random() < 0.5), float(rng.choice([0.25, 0.5])), chosen))
    return found


def own_rewards(module: ModuleType, case: Sequence[tuple[bool, float, list[Said]]]) -> list[float]:
    """Return the return of each episode."""
    found: list[float] = []
    for is_success, weight, said in case:
        turns = [
            turn_of(
                action=Action(error="bad") if what == "unreadable" else Action(),
                is_valid=valid,
                tool_errors=tuple(ToolError(tool="add", cause=cause) for cause in causes),
            )
            for what, valid, causes in said
        ]
        terms = (module.verdict(), module.broken_calls(weight))
        outcome = apply(episode_of(turns, is_success=is_success), terms).outcome
        assert isinstance(outcome, Score), "terms of numbers"
        found.append(outcome.value)
    return found


def plain_rewards(case: Sequence[tuple[bool, float, list[Said]]]) -> list[float]:
    """Return 1 or -1, less the penalty once where the agent broke a call."""
    found: list[float] = []
    for is_success, weight, said in case:
        total = 1.0 if is_success else -1.0
        for what, valid, causes in said:
            if what != "unreadable" and (causes == ("invalid_call",) or (not valid and causes == ())):
                total -= weight
                break
        found.append(total)
    return found


# The cap


class Counting(Environment):
    """Says how many calls it carried out in a turn; an answer ends it."""

    def reset(self, task: Task) -> str:
        """Begin."""
        return "go"

    def step(self, action: Action) -> StepResult:
        """Carry out the calls."""
        names = [call.name for call in action.tool_calls]
        return StepResult(observation=f"did {len(names)}", is_terminated="answer" in names)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return no tools: nothing is checked here."""
        return ()


def drawn_calls(rng: Rng) -> list[tuple[int, list[list[str]]]]:
    """Return caps, and the names that each turn calls."""
    names = ["add", "add", "add", "answer"]
    return [
        (
            int(rng.integers(0, 4)),
            [
                [names[k] for k in rng.integers(0, 4, int(rng.integers(1, 4))).tolist()]
                for _ in range(int(rng.integers(1, 5)))
            ],
        )
        for _ in range(12)
    ]


def own_cap(module: ModuleType, case: Sequence[tuple[int, list[list[str]]]]) -> list[float]:
    """Return for each turn the calls that were carried out, and whether it was told that none are left."""
    found: list[float] = []
    for cap, turns in case:
        world = module.CappedCalls(Counting(), calls=cap)
        world.reset(TASK)
        for names in turns:
            result = world.step(Action(tool_calls=tuple(ToolCall(name=name) for name in names)))
            told = str(result.observation)
            done = float(told.split()[1]) if told.startswith("did") else 0.0
            found += [done, float("no tool calls are left" in told)]
            if result.is_terminated:
                break
    return found


def plain_cap(case: Sequence[tuple[int, list[list[str]]]]) -> list[float]:
    """Return the same by counting down; a turn that ends the episode is told nothing of the cap."""
    found: list[float] = []
    for cap, turns in case:
        left = cap
        for names in turns:
            done, refused = 0, 0
            for name in names:
                if name == "answer" or left > 0:
                    done += 1
                    left -= name != "answer"
                else:
                    refused += 1
            is_over = "answer" in names
            found += [float(done), float(refused > 0 and not is_over)]
            if is_over:
                break
    return found


# Rewriting

ADD = ToolSpec(
    name="add",
    description="Add.",
    parameters={"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def drawn_traces(rng: Rng) -> list[tuple[list[tuple[str, int, int, int]], int]]:
    """Return lines (tool, two numbers, result) and an answer; some lines use no result, some are of no tool."""
    found: list[tuple[list[tuple[str, int, int, int]], int]] = []
    for _ in range(16):
        last, lines = int(rng.integers(1, 9)), list[tuple[str, int, int, int]]()
        for _ in range(int(rng.integers(0, 4))):
            other = int(rng.integers(1, 9))
            first = last if rng.random() < 0.8 else int(rng.integers(1, 90))
            lines.append(("add" if rng.random() < 0.9 else "recall", first, other, first + other))
            last = first + other
        found.append((lines, last if rng.random() < 0.7 else last + 1))
    return found


def own_rewriting(
    module: ModuleType, case: Sequence[tuple[list[tuple[str, int, int, int]], int]]
) -> list[float]:
    """Return the arguments of the calls that a trace becomes, and whether all their results are used."""
    found: list[float] = []
    for lines, answer in case:
        text = "\n".join(f"{name} {a} {b} = {c}" for name, a, b, c in lines)
        last = ToolCall(name="answer", arguments={"number": answer})
        plan = module.rewrite(Action(text=text, tool_calls=(last,)), [ADD])
        arguments = [value for action in plan for value in action.tool_calls[0].arguments.values()]
        told = ["go", *(f"= {sum(action.tool_calls[0].arguments.values())}" for action in plan[:-1])]
        shown = episode_of(
            turn_of(action=action, observation=(Text(text=said),))
            for said, action in zip(told, plan, strict=True)
        )
        found += [float(len(plan)), *map(float, arguments), float(module.uses_results(shown))]
    return found


def plain_rewriting(case: Sequence[tuple[list[tuple[str, int, int, int]], int]]) -> list[float]:
    """Return the same from the lines themselves."""
    found: list[float] = []
    for lines, answer in case:
        kept = [(a, b, c) for name, a, b, c in lines if name == "add"]
        numbers = [number for a, b, _ in kept for number in (a, b)] + [answer]
        is_used = all(c in numbers[2 * (place + 1) :] for place, (_, _, c) in enumerate(kept))
        found += [float(len(kept) + 1), *map(float, numbers), float(is_used)]
    return found


# Agent RFT's penalties


def drawn_costs(rng: Rng) -> list[tuple[float, int, float, float]]:
    """Return scores, calls, budgets and λ."""
    return [
        (
            float(rng.choice([0.0, 0.5, 1.0])),
            int(rng.integers(0, 40)),
            float(rng.integers(1, 8)),
            float(rng.choice([0.02, 0.05])),
        )
        for _ in range(30)
    ]


def own_costs(module: ModuleType, case: Sequence[tuple[float, int, float, float]]) -> list[float]:
    """Return what is left of each score."""
    found: list[float] = []
    for score, num, budget, weight in case:
        right = environment_reward()
        turn = turn_of(action=Action(tool_calls=(ToolCall(name="add"),) * num), reward=score)
        episode = episode_of([turn], is_success=score > 0)
        penalty = module.efficiency(right, num_calls, budget=budget, strength=weight, limit=0.25)
        outcome = apply(episode, (right, penalty)).outcome
        assert isinstance(outcome, Score), "terms of numbers"
        found.append(outcome.value)
    return found


def plain_costs(case: Sequence[tuple[float, int, float, float]]) -> list[float]:
    """Return the score, less at most a quarter of it, by how often the budget was gone beyond."""
    found: list[float] = []
    for score, num, budget, weight in case:
        beyond = (num - budget) / budget if num > budget else 0.0
        found.append(score - score * min(weight * beyond, 0.25))
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("calls.penalised", "rewards.efficiency", ("efficiency", "over_budget", "scale"), drawn_costs,
        own_costs, plain_costs),
    Formula("calls.torl_reward", "rewards.conduct", ("verdict", "broken_calls", "is_broken"), drawn_episodes,
        own_rewards, plain_rewards),
    Formula("calls.capped", "agents.capped", ("step", "within_cap"), drawn_calls, own_cap, plain_cap),
    Formula("calls.rewritten", "methods.toolrl.retool", ("rewrite", "call_of", "uses_results", "written"),
        drawn_traces, own_rewriting, plain_rewriting),
)  # fmt: skip
