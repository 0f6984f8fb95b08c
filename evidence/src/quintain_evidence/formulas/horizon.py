"""How long episodes may be and what of them is kept, each beside a plain second version over lists of numbers."""

from dataclasses import replace
from itertools import product
from statistics import fmean, stdev
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

from quintain.agents.plan import Plan, Step
from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import (
    Action,
    Completion,
    Credit,
    Failure,
    Group,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    flatten_scored,
)
from quintain_evidence.formulas.formula import Formula, Rng, flatten
from quintain_evidence.labs.observed import observed_world
from quintain_evidence.labs.tabular import TablePolicy, cosine, loss_gradient

Schedule = tuple[int, int, tuple[int, ...], int, list[int]]
"""h_min, h_max, horizons by hand, steps of an iteration, steps that are asked for"""
Kept = tuple[list[int], list[tuple[int, bool, int]]]
"""sites of a buffer's episodes; and of each new one its group, whether it succeeded, and how it ends"""
ENDS: tuple[Action, ...] = (
    Action(text="answer 4"),
    Action(text="answer n/a"),
    Action(tool_calls=(ToolCall(name="answer", arguments={"text": "N/A"}),)),
    Action(tool_calls=(ToolCall(name="answer", arguments={"text": "all"}),)),
)


def draw_schedule(rng: Rng) -> Schedule:
    """Return a schedule by the formula or by hand, and steps from the first to far beyond the last iteration."""
    low = int(rng.integers(1, 12))
    by_hand = (
        tuple(int(k) for k in rng.integers(1, 40, int(rng.integers(1, 5)))) if rng.random() < 0.5 else ()
    )
    high = low + int(rng.integers(0, 40))
    return low, high, by_hand, int(rng.integers(1, 6)), [1, *map(int, rng.integers(1, 40, 12))]


def allow(module: ModuleType, case: Schedule) -> list[float]:
    """Return the turns that TTI's code allows at each step."""
    low, high, by_hand, length, steps = case
    config = SimpleNamespace(min_turns=low, max_turns=high, turns=by_hand, stage_steps=length)
    return [float(module.horizon(config, step)) for step in steps]


def allow_by_hand(case: Schedule) -> list[float]:
    """Return the same by going through all iterations before: h grows by h_min until h_max."""
    low, high, by_hand, length, steps = case
    found: list[float] = []
    for step in steps:
        turns, place, left = low, 0, length
        for _ in range(step - 1):
            left -= 1
            if left == 0:
                turns, place, left = turns + low if turns + low < high else high, place + 1, length
        found.append(float((by_hand[place] if place < len(by_hand) else by_hand[-1]) if by_hand else turns))
    return found


def draw_kept(rng: Rng) -> Kept:
    """Return a buffer of 1 to 20 episodes of up to three sites, and up to a dozen new episodes."""
    sites = [int(k) for k in rng.integers(0, 3, int(rng.integers(1, 21)))]
    fresh = [(int(rng.integers(0, 3)), bool(rng.random() < 0.6), int(rng.integers(0, 4))) for _ in range(12)]
    return sites, fresh


def weigh(module: ModuleType, case: Kept) -> list[float]:
    """Return the chances of both samplers of TTI's code."""
    episodes = [episode_of([turn_of()], task=Task(id="t", environment=f"e{k}", seed=0)) for k in case[0]]
    found: list[float] = []
    for sampler in ("recent", "balanced"):
        weights: list[float] = module.weigh(episodes, sampler)
        found += [weight / sum(weights) for weight in weights]
    return found


def weigh_by_hand(case: Kept) -> list[float]:
    """Return the same: the k-th has k/(1 + … + n); beside it, one over how many its site has, scaled to 1."""
    sites = case[0]
    whole = sum(range(1, len(sites) + 1))
    ages = [k / whole for k in range(1, len(sites) + 1)]
    rare = [1 / sum(other == site for other in sites) for site in sites]
    return [*ages, *((age + own / sum(rare)) / 2 for age, own in zip(ages, rare, strict=True))]


def accept(module: ModuleType, case: Kept) -> list[float]:
    """Return of each new episode whether TTI's code keeps it."""
    episodes = [
        (group, episode_of([turn_of(), turn_of((2,), ENDS[end])], float(won), is_success=won, seed=place))
        for place, (group, won, end) in enumerate(case[1])
    ]
    groups = [
        Group(task=own[0].task, trajectories=own)
        for number in range(3)
        if (own := tuple(t for group, t in episodes if group == number))
    ]
    kept = module.accept(groups, ("N/A",))
    assert all(group.trajectories for group in kept), "no group is empty"
    seeds = {t.seed for t in flatten_scored(kept)}
    return [float(place in seeds) for place in range(len(episodes))]


def accept_by_hand(case: Kept) -> list[float]:
    """Return the same: what won and ends with an answer, the first way or the last."""
    return [float(won and end in (0, 3)) for _, won, end in case[1]]


Readings = list[list[tuple[float, list[list[tuple[int, int]]]]]]
"""[group][episode] reward, and of each conversation the tokens of prompts and completions of its turns"""


def draw_readings(rng: Rng) -> Readings:
    """Return up to four groups of one to five episodes of one to four conversations of one or two turns."""

    def tokens() -> tuple[int, int]:
        return int(rng.integers(1, 9)), int(rng.integers(1, 5))

    def conversation() -> list[tuple[int, int]]:
        return [tokens() for _ in range(int(rng.integers(1, 3)))]

    return [
        [
            (float(rng.integers(0, 3)) / 2, [conversation() for _ in range(int(rng.integers(1, 5)))])
            for _ in range(int(rng.integers(1, 6)))
        ]
        for _ in range(int(rng.integers(1, 5)))
    ]


def record_readings(case: Readings) -> list[Group]:
    """Return the episodes as they are recorded."""
    groups: list[Group] = []
    for number, own in enumerate(case):
        members = tuple(
            replace(
                episode_of(
                    [
                        replace(
                            turn_of(range(said), starts_segment=place == 0), prompt_ids=tuple(range(prompt))
                        )
                        for conversation in conversations
                        for place, (prompt, said) in enumerate(conversation)
                    ],
                    reward,
                    index=index,
                ),
                group=f"g{number}",
            )
            for index, (reward, conversations) in enumerate(own)
        )
        groups.append(Group(task=members[0].task, trajectories=members))
    return groups


def credit_readings(module: ModuleType, case: Readings) -> list[float]:
    """Return the advantages of all tokens as the code computes them, and those that are divided by a deviation."""
    groups = record_readings(case)
    return flatten([module.group_relative(groups, std=std).advantages for std in ("none", "unbiased")])


def credit_by_hand(case: Readings) -> list[float]:
    """Return the same: outcome less the mean over episodes, for every token of every turn of every conversation."""
    found: list[float] = []
    for is_divided in (False, True):
        for own in case:
            rewards = [reward for reward, _ in own]
            width = stdev(rewards) + 1e-6 if is_divided and len(own) > 1 else 1.0
            for reward, conversations in own:
                num = sum(said for conversation in conversations for _, said in conversation)
                found += [(reward - fmean(rewards)) / width if len(set(rewards)) > 1 else 0.0] * num
    return found


def measure_readings(module: ModuleType, case: Readings) -> list[float]:
    """Return what the code says of conversations, memories and the longest conversation."""
    found = module.measure_memory(record_readings(case), str)
    return [found[f"memory/{name}"] for name in ("conversations", "tokens", "peak")]


def measure_by_hand(case: Readings) -> list[float]:
    """Return the same; the last turn of an episode is no memory."""
    episodes = [conversations for own in case for _, conversations in own]
    said = [[n for conversation in each for _, n in conversation][:-1] for each in episodes]
    memories = [n for own in said for n in own]
    return [
        sum(map(len, episodes)) / len(episodes),
        sum(memories) / len(memories) if memories else 0.0,
        sum(max(sum(map(sum, conversation)) for conversation in each) for each in episodes) / len(episodes),
    ]


def memory_gradient(module: ModuleType) -> float:
    """Return the cosine of what the method's credit makes of all readings with the exact gradient of success.

    A page says one of three values; two memories and an answer follow, each seeing the one before alone. Chances are
    quarters, so that a group of 64 episodes has each reading as often as it is likely.
    """
    shifts = [np.roll(np.ones((3, 3)) + np.eye(3), shift, axis=1) for shift in (0, 1, 2)]
    chances = torch.as_tensor(np.concatenate(shifts) / 4)
    logits = chances.log().requires_grad_()
    first, second, third = logits.softmax(1).reshape(3, 3, 3)
    (exact,) = torch.autograd.grad((first @ second @ third).diagonal().mean(), logits)
    policy = TablePolicy(observed_world(9, ("0", "1", "2"), (), horizon=3), logits)
    groups: list[Group] = []
    for value in range(3):
        task = Task(id=f"page {value}", environment="relay", seed=value)
        members: list[Trajectory] = []
        for said in product(range(3), repeat=3):
            rows = [value, 3 + said[0], 6 + said[1]]
            turns = [_write(policy, row, column) for row, column in zip(rows, said, strict=True)]
            times = round(
                64 * float(np.prod([float(chances[row, k]) for row, k in zip(rows, said, strict=True)]))
            )
            is_right = said[-1] == value
            members += [
                replace(
                    episode_of(turns, float(is_right), task=task, is_success=is_right), group=task.id, index=k
                )
                for k in range(len(members), len(members) + times)
            ]
        groups.append(Group(task=task, trajectories=tuple(members)))
    update = Update(loss=clip_ratio(0.2, 0.2, dual=3.0), aggregation="token_mean")
    return cosine(loss_gradient(policy, module.group_relative(groups, std="none"), update), exact)


def _write(policy: TablePolicy, row: int, column: int) -> Turn:
    """Return the turn in which the table says `column` where it sees `row`, a conversation of its own."""
    logprob = float(policy.logs().detach()[row, column])
    said = Completion(token_ids=(9 + column,), logprobs=(logprob,), stop="stop")
    return replace(turn_of((9 + column,), starts_segment=True), prompt_ids=(row,), completion=said)


Answers = list[list[float | None]]
"""[episode][turn] what an answer was paid, none where it was no answer"""


def draw_answers(rng: Rng) -> Answers:
    """Return one to six episodes of one to six turns, a third of which answer, rightly or not."""

    def turn() -> float | None:
        return float(rng.integers(0, 3)) / 2 if rng.random() < 1 / 3 else None

    return [[turn() for _ in range(int(rng.integers(1, 7)))] for _ in range(int(rng.integers(1, 7)))]


def match(module: ModuleType, case: Answers) -> list[float]:
    """Return the rewards of all turns, and the outcome of each episode, as MEM1's code counts them; one broke."""
    episodes = [
        episode_of(
            [
                replace(
                    turn_of(),
                    reward=-0.1 if paid is None else paid,
                    reward_terms={} if paid is None else {"answer": paid},
                )
                for paid in own
            ],
            0.3,
        )
        for own in case
    ]
    broken = replace(episodes[0], outcome=Failure(owner="judge", kind="none", message="no grade"))
    (found,) = module.count_matches([Group(task=broken.task, trajectories=(*episodes, broken))])
    assert found.trajectories[-1] is broken, "what broke stays as it is"
    return [
        number
        for t in found.trajectories[:-1]
        for number in (*(turn.reward for turn in t.turns), t.outcome.value)
    ]


def match_by_hand(case: Answers) -> list[float]:
    """Return the same: one for each answer that was paid."""
    return [
        number
        for own in case
        for number in (
            *(float((paid or 0.0) > 0) for paid in own),
            float(sum((paid or 0.0) > 0 for paid in own)),
        )
    ]


def ask(module: ModuleType, case: Answers) -> list[float]:
    """Return what AGILE's code says of advice, where an answer that was paid was advised, for so much less."""
    episodes = [
        episode_of([turn_of(reward_terms={} if paid is None else {"advice": -paid}) for paid in own])
        for own in case
    ]
    found = module.measure_asks([Group(task=t.task, trajectories=(t,)) for t in episodes], str)
    return [found["advice/asked"], found["advice/paid"]]


def ask_by_hand(case: Answers) -> list[float]:
    """Return the same: means over episodes of how often, and of how much."""
    asked = [[paid for paid in own if paid is not None] for own in case]
    return [sum(map(len, asked)) / len(case), sum(map(sum, asked)) / len(case)]


Planned = tuple[list[str], list[tuple[str, list[tuple[str, bool]]]]]
"""steps of a plan that was given; and of each turn what is done, or "" and the steps of a plan with their ticks"""


def draw_planned(rng: Rng) -> Planned:
    """Return a given plan of up to four steps, and up to a dozen turns, of which some write a plan anew."""
    letters = "abcd"

    def steps() -> list[str]:
        return [letters[int(k)] for k in rng.integers(0, 4, int(rng.integers(0, 5)))]

    turns = [
        ("", [(step, bool(rng.random() < 0.3)) for step in (*steps(), "a")])
        if rng.random() < 0.25
        else (letters[int(rng.integers(0, 4))], [])
        for _ in range(int(rng.integers(1, 13)))
    ]
    return steps(), turns


def follow(module: ModuleType, case: Planned) -> list[float]:
    """Return what PilotRL's code counts: steps done in order, actions, and steps of all plans."""
    given, turns = case
    plan = Plan(tuple(Step(f"go({step})") for step in given))
    episode = episode_of(
        [
            turn_of((2,), Action(text=f"go {said}"))
            if said
            else replace(
                turn_of((2,), Action(text=Plan(tuple(Step(f"go({s})", tick) for s, tick in steps)).text)),
                seat="agent/plan",
            )
            for said, steps in turns
        ]
    )
    return [float(k) for k in module.follow_plan(episode, plan)]


def follow_by_hand(case: Planned) -> list[float]:
    """Return the same from lists of letters and ticks."""
    given, turns = case
    plan = [(step, False) for step in given]
    places = list(range(len(plan)))
    done = 0
    total = len(plan)
    for said, steps in turns:
        if said:
            if places and plan[places[0]][0] == said:
                done, places = done + 1, places[1:]
            continue
        known = [step for step, _ in plan]
        is_ticked = sum(tick for _, tick in steps) > 0
        plan = (steps if is_ticked else [pair for pair in plan if pair[1]] + steps)[-16:]
        total += len([step for step, _ in plan if step not in known])
        places = [place for place, (_, tick) in enumerate(plan) if not tick]
    return [float(done), float(sum(bool(said) for said, _ in turns)), float(total)]


def draw_paid(rng: Rng) -> tuple[Planned, int, bool]:
    """Return a case of `draw_planned`, a step of the default stages or about their ends, and whether it is solved."""
    return (
        draw_planned(rng),
        int(rng.choice([1, 20, 21, 40, 41, int(rng.integers(1, 60))])),
        bool(rng.random() < 0.5),
    )


def pay_plans(module: ModuleType, case: tuple[Planned, int, bool]) -> list[float]:
    """Return what PilotRL's code pays an episode at the default weights, every third action of which is unreadable."""
    planned, step, won = case
    given, turns = planned
    config = module.Config()
    plan = Plan(tuple(Step(f"go({s})") for s in given))
    episode = _make_planned(turns, won)
    stage = module.stage_at(config, step)
    (found,) = module.pay(
        [Group(task=episode.task, trajectories=(episode,))], config, stage, {episode.task.id: plan}
    )
    return [found.trajectories[0].outcome.value]


def _make_planned(turns: list[tuple[str, list[tuple[str, bool]]]], won: bool) -> Trajectory:
    """Return the episode of `turns`, whose last pays 1 if it is `won`."""
    made: list[Turn] = []
    for number, (said, steps) in enumerate(turns):
        text = f"go {said}" if said else Plan(tuple(Step(f"go({s})", tick) for s, tick in steps)).text
        error = "?" if said and number % 3 == 2 else None
        seat = "agent" if said else "agent/plan"
        paid = float(won and number + 1 == len(turns))
        made.append(replace(turn_of((2,), Action(text=text, error=error)), seat=seat, reward=paid))
    return episode_of(made, float(won))


def pay_plans_by_hand(case: tuple[Planned, int, bool]) -> list[float]:
    """Return the same from what is counted by hand."""
    (given, turns), step, won = case
    follows, acts = step < 21, [number for number, (said, _) in enumerate(turns) if said]
    done, _, _ = follow_by_hand((given, turns))
    own_done, num, steps = follow_by_hand(([], turns))
    form = sum(number % 3 != 2 for number in acts) / len(acts) if acts else 0.0
    if follows:
        return [won + 0.5 * (done / num if num else 0.0) + 0.1 * form]
    return [won + (0.5 * (own_done / steps if steps else 0.0) if step < 41 else 0.1 * form)]


def draw_roles(rng: Rng) -> list[list[tuple[bool, int, float]]]:
    """Return two episodes of one to five turns: whether each is a plan, its tokens, and its advantage."""
    return [
        [
            (bool(rng.random() < 0.5), int(rng.integers(1, 4)), float(rng.normal()))
            for _ in range(int(rng.integers(1, 6)))
        ]
        + [(True, 2, 1.0)]
        for _ in range(2)
    ]


def weigh_roles(module: ModuleType, case: list[list[tuple[bool, int, float]]]) -> list[float]:
    """Return the weights and advantages of all sampled tokens where plans alone are trained."""
    episodes = [
        episode_of(
            [
                replace(turn_of((2,) * num), seat="agent/plan" if is_plan else "agent", starts_segment=True)
                for is_plan, num, _ in own
            ]
        )
        for own in case
    ]
    credit = Credit(
        trajectories=tuple(episodes),
        advantages=tuple(tuple(np.full(num, a, np.float32) for _, num, a in own) for own in case),
    )
    samples = samples_from(module.train_role(credit, "plan"))
    batch = pack(samples)
    kept = batch.loss_weight > 0
    return [*batch.loss_weight[kept].tolist(), *batch.advantages[kept].tolist(), float(len(samples))]


def weigh_roles_by_hand(case: list[list[tuple[bool, int, float]]]) -> list[float]:
    """Return the same: one over the tokens of plans for each of them, and nothing of the others."""
    kept = [(num, np.float32(a)) for own in case for is_plan, num, a in own if is_plan]
    total = sum(num for num, _ in kept)
    weights = [float(np.float32(1 / total))] * total
    return [*weights, *(float(a) for num, a in kept for _ in range(num)), float(len(kept))]


Routed = list[tuple[list[int], bool]]
"""of each episode the steps of its plans, in order, and whether it solved its task"""


def draw_routed(rng: Rng) -> Routed:
    """Return one to six episodes of up to eight plans of up to nine steps; some of no line."""
    return [
        ([int(k) for k in rng.integers(0, 10, int(rng.integers(1, 9)))], bool(rng.random() < 0.5))
        for _ in range(int(rng.integers(1, 7)))
    ]


def _make_routed(case: Routed) -> list[Trajectory]:
    """Return the episodes of `case`."""
    return [
        episode_of(
            [
                turn_of((2,), Action(text="\n".join(f"{k}. anna: mug until done" for k in range(num))))
                for num in plans
            ],
            float(won),
            is_success=won,
        )
        for plans, won in case
    ]


def pay_routed(module: ModuleType, case: Routed) -> list[float]:
    """Return what the trained planner's code pays at its defaults and at ten times the price, turn by turn."""
    groups = [Group(task=t.task, trajectories=(t,)) for t in _make_routed(case)]
    return [
        turn.reward
        for cost in (0.02, 0.2)
        for group in module.pay(groups, module.Config(step_cost=cost))
        for turn in group.trajectories[0].turns
    ]


def pay_routed_by_hand(case: Routed) -> list[float]:
    """Return the same: each line costs, an empty plan as one of a line, until half a point is spent."""
    found: list[float] = []
    for cost in (0.02, 0.2):
        for plans, won in case:
            left = 0.5
            for number, steps in enumerate(plans, 1):
                paid = min(left, cost * (steps or 1))
                left -= paid
                found.append(float(won and number == len(plans)) - paid)
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("tti.horizon", "methods.horizon.tti", ("horizon",), draw_schedule, allow, allow_by_hand),
    Formula("tti.weights", "methods.horizon.tti", ("weigh",), draw_kept, weigh, weigh_by_hand),
    Formula("tti.accepted", "methods.horizon.tti", ("accept",), draw_kept, accept, accept_by_hand),
    Formula("mem_agent.episodes", "credit.group", ("group_relative",), draw_readings, credit_readings,
        credit_by_hand, exact=memory_gradient),
    Formula("mem_agent.measures", "methods.horizon.mem_agent", ("measure_memory",), draw_readings, measure_readings,
        measure_by_hand),
    Formula("agile.asks", "methods.horizon.agile", ("measure_asks",), draw_answers, ask, ask_by_hand),
    Formula("pilot_rl.followed", "methods.horizon.pilot_rl", ("follow_plan",), draw_planned, follow, follow_by_hand),
    Formula("pilot_rl.paid", "methods.horizon.pilot_rl", ("pay", "stage_at"), draw_paid, pay_plans, pay_plans_by_hand),
    Formula("credit.train_role", "credit.roles", ("train_role",), draw_roles, weigh_roles, weigh_roles_by_hand,
        aside=("_refuse_none",)),
    Formula("router.paid", "methods.horizon.router", ("pay", "count_steps"), draw_routed, pay_routed,
        pay_routed_by_hand),
    Formula("mem1.matches", "methods.horizon.mem1", ("count_matches",), draw_answers, match, match_by_hand),
)  # fmt: skip
