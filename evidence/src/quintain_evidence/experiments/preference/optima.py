"""Optima: is it the price of tokens that makes dialogues short, and the price of surprise that keeps them readable?

Two seats say three messages, each right or wrong in what it says, and short (2 tokens), padded (6) or cryptic (1): a
cryptic message does what a short one does, but the starting policy finds it surprising. Five rounds of generating,
ranking, selecting and imitating, as they ship. The number is the logarithm of the tokens of a dialogue at the end,
exactly. The control permutes the numbers of tokens among the dialogues of a task: the same prices, on others. In the
null world all messages have three tokens.

Beside it: success, the share of cryptic messages, and both where surprise is permuted instead of tokens, and with no
price of tokens at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit_lab.permute import permute
from quintain.methods.method import Collector
from quintain.methods.preference.optima import Config, Dialogues, rounds_of
from quintain.types import Group, Task, Trajectory, derive_seed
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.rounds import train_rounds
from quintain_evidence.labs.tabular import TablePolicy, actions_of

MESSAGES, CONTENTS = 3, 3
"""Messages of a dialogue; what each can say, of which the first is right."""
STYLES = ("short", "padded", "cryptic")
TOKENS, NATS = (2, 6, 1), (2.0, 2.0, 5.0)
"""Tokens of a message by style, and nats a token under the starting policy."""
SHARES, RIGHT = (0.35, 0.45, 0.2), 0.8
"""Of styles at the start, and of messages that say what is right."""
SAME = (3, 3, 3)
"""Tokens in the null world."""
CRYPTIC = STYLES.index("cryptic")
Moved = Callable[[Sequence[float], Sequence[int]], Sequence[float]]
"""(numbers of dialogues, their groups) → the same numbers of others"""


def talk() -> World:
    """Return the dialogue: a state for each message, an action for each content and style; all right is solved."""
    shape = (2 * MESSAGES, CONTENTS * len(STYLES))
    following, reward = np.full(shape, END), np.zeros(shape)
    is_right = np.arange(shape[1]) < len(STYLES)
    for state in range(shape[0]):
        number, is_lost = state % MESSAGES, state >= MESSAGES
        if number + 1 < MESSAGES:
            following[state] = np.where(is_right & (not is_lost), number + 1, MESSAGES + number + 1)
        else:
            reward[state] = is_right & (not is_lost)
    return World(
        tasks=(Task(id="talk/train/0", environment="talk", seed=0),),
        actions=tuple(
            f"{'right' if c == 0 else f'wrong {c}'} {style}" for c in range(CONTENTS) for style in STYLES
        ),
        horizon=MESSAGES,
        start=np.zeros(1, np.int64),
        next=following,
        reward=reward,
        is_legal=np.ones(shape, np.bool_),
        is_success=reward > 0,
        task_of=np.zeros(shape[0], np.int64),
        keys=tuple(f"{number} {lost}" for lost in (0, 1) for number in range(MESSAGES)),
        expert=np.zeros(shape[0], np.int64),
        distance=np.ones(shape[0]),
    )


def beginner(seed: int) -> TablePolicy:
    """Return a policy that is mostly right, and speaks in all styles."""
    world = talk()
    rng = np.random.default_rng(seed % (1 << 63))
    contents = np.array([RIGHT, *[(1 - RIGHT) / (CONTENTS - 1)] * (CONTENTS - 1)])
    logits = np.log(np.outer(contents, SHARES).ravel()) + 0.2 * rng.normal(size=world.is_legal.shape)
    return TablePolicy(world, torch.from_numpy(logits))


def by_style(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Return `numbers` of styles as those of actions."""
    return np.tile(np.array(numbers, np.float64), CONTENTS)


def expected(policy: TablePolicy, numbers: Sequence[float]) -> float:
    """Return the expected sum over a dialogue of `numbers`, which messages have by their styles, exactly."""
    paid = np.broadcast_to(by_style(numbers), policy.world.is_legal.shape).copy()
    return TablePolicy(replace(policy.world, reward=paid), policy.theta).objective()


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications."""
    return [replication(options, derive_seed(seed, number)) for number in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what becomes of one start."""
    start = beginner(seed)

    def others(numbers: Sequence[float], groups: Sequence[int]) -> Sequence[float]:
        return permute(list(numbers), list(groups), seed=seed, moves_all=False).values

    ends = {
        "method": trained(start, options, seed),
        "control": trained(start, options, seed, count=others),
        "surprise": trained(start, options, seed, surprise=others),
        "free": trained(start, {**options, "token_weight": 0.0}, seed),
        "null_method": trained(start, options, seed, tokens=SAME),
        "null_control": trained(start, options, seed, tokens=SAME, count=others),
    }
    cryptic = [float(style == CRYPTIC) / MESSAGES for style in range(len(STYLES))]
    length = {name: expected(end, TOKENS) for name, end in ends.items()}
    null = {name: math.log(expected(ends[name], SAME)) for name in ("null_method", "null_control")}
    before = expected(start, cryptic)
    return {
        "method": math.log(length["method"]),
        "control": math.log(length["control"]),
        **null,
        "extra.start_tokens": expected(start, TOKENS),
        "extra.tokens": length["method"],
        "extra.free_tokens": length["free"],
        "extra.start": start.objective(),
        "extra.kept": ends["method"].objective() / start.objective(),
        "extra.success": ends["method"].objective(),
        "extra.control_success": ends["control"].objective(),
        "extra.cryptic": expected(ends["method"], cryptic) - before,
        "extra.cryptic_unpriced": expected(ends["surprise"], cryptic) - before,
    }


def same(numbers: Sequence[float], _: Sequence[int]) -> Sequence[float]:
    """Return `numbers` as they are."""
    return numbers


def trained(
    start: TablePolicy,
    options: Mapping[str, Any],
    seed: int,
    *,
    tokens: Sequence[int] = TOKENS,
    count: Moved = same,
    surprise: Moved = same,
) -> TablePolicy:
    """Return what becomes of `start` in rounds of imitation.

    `count` and `surprise` exchange what dialogues of a task cost and how plain they are; `tokens` are those of styles.
    """
    world = start.world
    known: dict[int, tuple[Trajectory, int, float]] = {}

    def play(policy: TablePolicy, tasks: Sequence[Task], size: int, drawn: int) -> list[Group]:
        groups = policy.sample(size=size, seed=drawn, tasks=[0] * len(tasks))
        played = [each for group in groups for each in group.trajectories]
        of = [number for number, group in enumerate(groups) for _ in group.trajectories]
        said = [np.array(actions_of(each, world)) % len(STYLES) for each in played]
        lengths = count([float(sum(tokens[style] for style in own)) for own in said], of)
        nats = surprise([max(NATS[style] for style in own) for own in said], of)
        known.clear()
        known.update({id(t): (t, int(num), loss) for t, num, loss in zip(played, lengths, nats, strict=True)})
        return groups

    def surprises(_: Collector, dialogues: Sequence[Trajectory]) -> list[float]:
        return [known[id(each)][2] for each in dialogues]

    config = Config(
        learn="sft",
        tasks=int(options.get("tasks", 24)),
        group_size=int(options.get("group_size", 10)),
        token_weight=float(options.get("token_weight", 0.6)),
        loss_weight=float(options.get("loss_weight", 1.0)),
    )
    make = partial(Dialogues, config, count=lambda each: known[id(each)][1], surprise=surprises)
    return train_rounds(
        start,
        rounds_of(config, make),
        num_rounds=int(options.get("rounds", 5)),
        seed=seed,
        rate=float(options.get("rate", 0.1)),
        play=play,
    ).policy
