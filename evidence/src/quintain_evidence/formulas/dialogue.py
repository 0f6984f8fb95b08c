"""What a manager of experts and an adviser's adapter learn from, each beside a plain second version."""

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np

from quintain.credit.layout import Critic
from quintain.types import Group, Stop, Trajectory
from quintain_evidence.formulas.formula import Formula, Rng, flatten
from quintain_evidence.formulas.losses import Case, against
from quintain_evidence.formulas.preference import lived

TEMPERATURE, CONSERVATISM, DISCOUNT, LAMBDA = 0.3, 0.2, 0.9, 0.6
SEATS = ("asks", "decides")
Talks = list[tuple[int, list[float], list[float], float, bool]]
"""[talk of a seat] (who speaks, 0 the manager; what was paid, values before each turn, value at the end, was it cut)"""
WORDS = (
    "ask color",
    "ask size",
    "Which order?",
    "submit red, small",
    "find bob",
    "well, well",
    "",
    "Ask color",
)
HEARD = ("color: red.", "size: small. color: blue.", "Sorry?", "I want a lamp.")


def q_error(case: Case, logs: list[float], entropy: list[float], values: list[float]) -> float:
    """Return half the squared error of V + τ(Σ log π + Σ H), less ατ Σ log π, over trained tokens."""
    total = 0.0
    for t in case.trained:
        token = case.tokens[t]
        own = [
            k
            for k in case.trained
            if (case.tokens[k].stream, case.tokens[k].turn) == (token.stream, token.turn)
        ]
        chosen = TEMPERATURE * sum(logs[k] for k in own)
        q = values[t] + chosen + TEMPERATURE * sum(entropy[k] for k in own)
        total += token.weight * ((q - token.target) ** 2 / 2 - CONSERVATISM * chosen)
    return total


def draw_talks(rng: Rng) -> Talks:
    """Return two to six talks of one to five turns of a manager and two experts."""
    found: Talks = []
    for _ in range(int(rng.integers(2, 7))):
        num = int(rng.integers(1, 6))
        found.append(
            (
                int(rng.integers(0, 3)),
                (rng.integers(0, 3, num) / 2).tolist(),
                rng.normal(size=num).tolist(),
                float(rng.normal()),
                bool(rng.random() < 0.4),
            )
        )
    return found


def spoken(talks: Talks) -> list[Trajectory]:
    """Return the talks of seats, each turn a token."""
    names = ("manager", *SEATS)
    found: list[Trajectory] = []
    for number, (who, paid, _, _, is_cut) in enumerate(talks):
        bare = lived([1] * len(paid), sum(paid), number, Stop.CUT if is_cut else Stop.TERMINATED)
        turns = (replace(turn, seat=names[who], reward=r) for turn, r in zip(bare.turns, paid, strict=True))
        found.append(replace(bare, turns=tuple(turns)))
    return found


def _targets() -> Formula:
    """Return the targets of a manager's choices."""

    def ours(module: ModuleType, case: Talks) -> list[float]:
        talks = spoken(case)

        def values(asked: Sequence[Trajectory]) -> Critic:
            told = [case[t.index] for t in asked]
            return Critic(
                values=[[np.array([v]) for v in values] for _, _, values, _, _ in told],
                final=[last for *_, last, _ in told],
            )

        groups = [Group(task=t.task, trajectories=(t,)) for t in talks]
        found: list[float] = []
        for td_lambda in (0.0, LAMBDA, 1.0):
            credit = module.choice_targets(groups, values, discount=DISCOUNT, td_lambda=td_lambda)
            found += flatten([t.index for t in credit.trajectories])
            found += flatten([[float(x) for turn in own for x in turn] for own in credit.returns or ()])
        return found

    def reference(case: Talks) -> list[float]:
        own = [number for number, (who, *_) in enumerate(case) if who == 0]
        found: list[float] = []
        for share in (0.0, LAMBDA, 1.0):
            found += [float(k) for k in own]
            for _, paid, values, last, is_cut in (case[k] for k in own):
                following = last if is_cut else 0.0
                returns: list[float] = []
                for r, v in reversed([*zip(paid, [*values[1:], following], strict=True)]):
                    following = r + DISCOUNT * ((1 - share) * v + share * following)
                    returns.append(float(np.float32(following)))
                found += returns[::-1]
        return found

    return Formula("moe_dialogue.targets", "methods.critic.moe_dialogue", ("choice_targets",),
        draw_talks, ours, reference)  # fmt: skip


def _labels() -> Formula:
    """Return the advantages of candidates by their labels."""

    def ours(module: ModuleType, case: Talks) -> list[float]:
        talks = [t for t in spoken(case) if t.turns[0].seat != "manager"]
        return flatten(
            [[float(x) for turn in own for x in turn] for own in module.label_credit(talks).advantages]
        )

    def reference(case: Talks) -> list[float]:
        paid: dict[int, list[float]] = {}
        for who, own, *_ in case:
            paid[who] = paid.get(who, []) + own
        return [
            float(np.float32(each - sum(paid[who]) / len(paid[who])))
            for who, own, *_ in case
            if who
            for each in own
        ]

    return Formula(
        "moe_dialogue.labels", "methods.critic.moe_dialogue", ("label_credit",), draw_talks, ours, reference
    )


def draw_utterance(rng: Rng) -> tuple[list[str], str]:
    """Return a talk of both, the other first, and what is said after it."""
    num = int(rng.integers(1, 4))
    talk = [text for _ in range(num) for text in (str(rng.choice(HEARD)), str(rng.choice(WORDS)))]
    return [*talk, str(rng.choice(HEARD))], str(rng.choice(WORDS))


def _intents() -> Formula:
    """Return what a speaker is up to."""
    names = ("asks", "repeats", "looks", "decides", "talks")

    def ours(module: ModuleType, case: tuple[Sequence[str], str]) -> list[float]:
        return [float(names.index(module.intent_of(*case)))]

    def reference(case: tuple[Sequence[str], str]) -> list[float]:
        talk, text = case
        plain = text.lower()
        if plain.startswith("submit"):
            return [3.0]
        if plain.startswith("find"):
            return [2.0]
        if not plain.startswith("ask") and "?" not in plain:
            return [4.0]
        thing = "order" if "?" in plain else plain[4:]
        heard = " ".join(said.lower() for place, said in enumerate(talk) if place % 2 == 0)
        own = [said.lower() for place, said in enumerate(talk) if place % 2 == 1]
        return [1.0 if f"{thing}:" in heard or plain in own else 0.0]

    return Formula("dialogue.intents", "rewards.dialogue", ("intent_of",), draw_utterance, ours, reference)


FACTS = (
    *(
        "goal: table",
        "goal: wood pickaxe",
        "goal: iron sword",
        "done: nothing",
        "done: table",
        "done: table, stone",
    ),
    *("recipes: table: 2 wood", "wood pickaxe: 1 wood at table", "stone sword: 1 wood 2 stone at table"),
    *(
        "iron sword: 1 wood 1 iron at table and furnace",
        "hill: 2 wood",
        "have 1 wood",
        "table: any",
        "goal: fame",
    ),
)


def draw_message(rng: Rng) -> list[str]:
    """Return up to four facts."""
    return [str(rng.choice(FACTS)) for _ in range(int(rng.integers(0, 5)))]


def _advised() -> Formula:
    """Return what an adviser of `craft` says to a message."""
    names = ("nothing", "table", "wood pickaxe", "stone", "stone sword", "iron", "iron sword", "furnace")
    takes = {
        "wood pickaxe": ("table",),
        "stone sword": ("table", "stone"),
        "iron sword": ("table", "furnace", "iron"),
        "table": (),
    }
    deep = ("iron sword", "stone sword", "wood pickaxe", "table")

    def ours(module: ModuleType, case: list[str]) -> list[float]:
        return [float(names.index(module.read_advice("; ".join(case))))]

    def reference(case: list[str]) -> list[float]:
        read = case[:2]
        goals = [f[6:] for f in read if f.startswith("goal: ") and f != "goal: fame"]
        done = " ".join(f for f in read if f.startswith("done"))
        shown = [name for name in deep if any(f"{name}: {n} " in f"{f} " for f in read for n in (1, 2))]
        wanted = goals[-1] if goals else shown[0] if shown else "nothing"
        for _ in range(2):
            left = [each for each in takes.get(wanted, ()) if wanted in shown and each not in done]
            wanted = left[0] if left else wanted
        return [float(names.index(wanted))]

    return Formula("craft.advised", "worlds.craft.land", ("read_advice",), draw_message, ours, reference)


def draw_texts(rng: Rng) -> tuple[str, str]:
    """Return advice and what was done."""
    vocabulary = ("make", "table", "gather", "wood", "Wood,", "sword.")
    one, other = (
        " ".join(str(rng.choice(vocabulary)) for _ in range(int(rng.integers(0, 6)))) for _ in range(2)
    )
    return one, one if rng.random() < 0.2 else other


def _understanding() -> Formula:
    """Return the cosine of two texts."""

    def reference(case: tuple[str, str]) -> list[float]:
        bags = [[word.lower().strip(".,") for word in text.split()] for text in case]
        every = sorted({*bags[0], *bags[1]})
        left, right = (np.array([bag.count(word) for word in every], float) for bag in bags)
        norms = float(np.linalg.norm(left) * np.linalg.norm(right))
        return [float(left @ right) / norms if norms else 0.0]

    return Formula("rladapter.understanding", "agents.experience", ("likeness",), draw_texts,
        lambda module, case: [float(module.likeness(*case))], reference)  # fmt: skip


def _messages() -> Formula:
    """Return the weights of messages, the adapter's alone."""

    def ours(module: ModuleType, case: Talks) -> list[float]:
        episodes = [
            replace(t, turns=tuple(replace(turn, seat="adapter" if who else "agent") for turn in t.turns))
            for (who, *_), t in zip(case, spoken(case), strict=True)
        ]
        made = module.messages()([Group(task=t.task, trajectories=(t,)) for t in episodes]).examples
        return flatten([[float(e.trajectory.index), *(float(w[0]) for w in e.weights)] for e in made])

    def reference(case: Talks) -> list[float]:
        found: list[float] = []
        for number, (who, paid, *_) in enumerate(case):
            if who and sum(paid) > 0:
                found += [float(number), *paid]
        return found

    return Formula(
        "rladapter.messages", "methods.critic.rladapter", ("messages",), draw_talks, ours, reference
    )


FORMULAS: tuple[Formula, ...] = (
    against("own_q", "own_q", "own_q", lambda m: m.own_q(TEMPERATURE, CONSERVATISM), q_error),
    _targets(),
    _labels(),
    _intents(),
    _advised(),
    _understanding(),
    _messages(),
)  # fmt: skip
