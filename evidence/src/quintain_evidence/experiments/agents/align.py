"""ALIGN: does an interface that was mined from failures help a frozen agent more than one from failures dealt out anew?

Houses in which four verbs have no effect before a preparation was made, one set of rules for each seed
(`house?rules=4`), and nothing says which. A frozen script does the chore as the expert of a house without rules does;
after an action without effect it makes a preparation at random now and then. Where its prompt says "A needs B first."
it does B before A; it reads nothing else of the interface. The number is its success on new tasks behind the interface
that is kept after a few steps of the method at its defaults, without a model that writes. In the control it is dealt
out anew within each episode which actions had an effect, and the race is the same. The rival races as many interfaces,
with as many rules as there are, drawn at random: search without failures. In the null world the script reads nothing of
what the interface says. Beside it: the interface of another house, a second script that never tries anything by itself,
what of the rules is found, whether replayed episodes stay as they are, and interfaces that cheat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

from quintain.agents.interface import Interface, Step, load_interface
from quintain.environments.protocol import begin
from quintain.errors import UsageError
from quintain.methods.agents.align import (
    NUM_CHECKED,
    Config,
    Log,
    find_phrase,
    get_kept,
    mine_rules,
    try_sources,
    write_interface,
)
from quintain.types import Action, Task, as_text, derive_seed
from quintain.worlds.house.game import House
from quintain.worlds.house.plan import PREPARATIONS, RULED, draw_rules
from quintain.worlds.house.scene import expert_words

NEW, FIRST_NEW = 24, 500_000
"""New tasks of the end, and the number of the first."""
EXPLORES, STUBBORN = 0.3, 0.0
"""How often the first script, and the second, makes a preparation after an action without effect."""
TOLD = re.compile(r"(\w+) needs (\w+) first\.")
HEAD = 'def rules():\n    """Say."""\n    return ""\n\n\ndef wrap_step(env, action):\n    """Say."""\n'
CHEATS = (
    "import os\n" + HEAD + "    return env.step(action)",
    HEAD + "    return __import__('os').getcwd(), 0.0, False",
    HEAD + "    return str(env._house), 0.0, False",
    HEAD + "    return env.expert_action(), 0.0, False",
    HEAD + "    return str(().__class__.__mro__), 0.0, False",
    HEAD + "    return open('/etc/hostname').read(), 0.0, False",
    HEAD + "    open('/tmp/x', 'w').write('x')\n    return env.step(action)",
    HEAD + "    while True:\n        pass",
    HEAD + "    return env.step(action)[0], 1.0, env.step(action)[2]",
    HEAD + "    seen, reward, done = env.step(action)\n    return seen, 1.0, done",
    HEAD + "    seen, reward, done = env.step(action)\n    return seen, reward, True",
    HEAD + "    return 'Done.', 1.0, True",
    HEAD + "    env.step('knock')\n    return env.step(action)",
    HEAD + "    seen, reward, done = env.step(action)\n    return seen + str(reward), reward, done",
    HEAD + "    seen, reward, done = env.step(action)\n    return 'Well.', reward, done",
    HEAD + "    return wrap_step(env, action)",
)
"""Interfaces of which each is to be refused."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, a set of rules each."""
    steps, count = int(options["steps"]), int(options["rules"])
    sets = [derive_seed("align", seed, number) % 1_000_000 for number in range(int(options["seeds"]))]
    kept = [optimise("method", count, each, steps) for each in sets]
    rows: list[Mapping[str, float]] = []
    for number, each in enumerate(sets):
        house = House(rules=count, rule_set=each)
        found = {arm: optimise(arm, count, each, steps) for arm in ("control", "random")}
        raw, logs = run_new(house, "", EXPLORES)
        behind, later = run_new(house, kept[number], EXPLORES)
        planted = {f"{verb} needs {need} first." for verb, need in draw_rules(count, each).items()}
        rows.append(
            {
                "method": behind,
                "control": run_new(house, found["control"], EXPLORES)[0],
                "extra.random": run_new(house, found["random"], EXPLORES)[0],
                "extra.raw": raw,
                "extra.foreign": run_new(house, kept[number - 1], EXPLORES)[0] - raw,
                "extra.second": run_new(house, kept[number], STUBBORN)[0] - run_new(house, "", STUBBORN)[0],
                "extra.recall": fmean(rule in tell_rules(kept[number]) for rule in planted),
                "extra.moved": float(
                    sum(map(count_moved, [house] * 2 * NEW, new_tasks(house) * 2, [*logs, *later]))
                ),
                "extra.cheats": float(sum(passes(source, logs[0]) for source in CHEATS)),
                **{
                    f"null_{arm}": run_new(
                        house, optimise(arm, count, each, steps, is_read=False), EXPLORES, False
                    )[0]
                    for arm in ("method", "control")
                },
            }
        )
    return rows


def optimise(arm: str, count: int, rule_set: int, steps: int, *, is_read: bool = True) -> str:
    """Return the interface that `arm` keeps after `steps` at the method's defaults; empty: none.

    Where it is not read, the script does what it would do without one.
    """
    config, house, kept = Config(), House(rules=count, rule_set=rule_set), ""
    logs: list[Log] = []
    for step in range(steps):
        rng = Random(derive_seed("align", rule_set, arm, step))
        first = (derive_seed("tasks", rule_set) % 10_000 + step) * 2 * config.tasks
        tasks = [house.task("train", first + k) for k in range(2 * config.tasks)]
        with_kept = load_interface(kept) if kept else None
        played = [
            play(house, task, with_kept if is_read else None, EXPLORES)[1] for task in tasks[: config.tasks]
        ]
        logs += [deal_effects(log, rng) for log in played] if arm == "control" else played
        if arm == "random":
            needs = dict(zip(rng.sample(RULED, count), rng.sample(PREPARATIONS, count), strict=True))
        else:
            needs = mine_rules(logs)
        sources = [write_interface(needs, find_phrase(played))] if needs else []
        checked = [each for log in played for each in log[-3:]][-NUM_CHECKED:]

        def race(
            made: Sequence[Interface | None], tasks: Sequence[Task] = tasks[config.tasks :]
        ) -> list[float]:
            read = [each if is_read else None for each in made]
            return [fmean(play(house, task, each, EXPLORES)[0] for task in tasks) for each in read]

        kept = get_kept(try_sources(sources, kept, checked, race))
        if with_kept is not None:
            with_kept.close()
    return kept


def deal_effects(log: Log, rng: Random) -> Log:
    """Return an episode in which other actions had an effect, as many."""
    effects = [step.has_worked for step in log]
    rng.shuffle(effects)
    return [step._replace(has_worked=each) for step, each in zip(log, effects, strict=True)]


def new_tasks(house: House) -> list[Task]:
    """Return the tasks of the end."""
    return [house.task("train", FIRST_NEW + k) for k in range(NEW)]


def run_new(house: House, source: str, explores: float, is_read: bool = True) -> tuple[float, list[Log]]:
    """Return the success on new tasks behind the interface `source`, and what was done."""
    made = load_interface(source) if source and is_read else None
    found = [play(house, task, made, explores) for task in new_tasks(house)]
    if made is not None:
        made.close()
    return fmean(score for score, _ in found), [log for _, log in found]


def play(house: House, task: Task, interface: Interface | None, explores: float) -> tuple[float, Log]:
    """Return whether the script does `task`, and what it did; it knows the house, but not its rules."""
    rng = Random(derive_seed("script", task.seed))
    begin(house, task)
    told = {} if interface is None else dict(TOLD.findall(interface.read_rules().text))
    prepared, has_failed, log = set[str](), False, list[Step]()
    for _ in range(house.max_turns):
        plan, scene, _ = house.snapshot()
        words = expert_words(plan, scene, is_irreversible=False)
        need = told.get(words.partition(" ")[0], "")
        if need and need not in prepared:
            words = need
        elif has_failed and rng.random() < explores:
            words = rng.choice(PREPARATIONS)
        prepared.add(words)
        result = house.step(Action(text=words))
        seen, has_failed = as_text(result.observation), not result.is_valid
        log.append(Step(words, seen, result.reward, result.is_terminated, result.is_valid))
        if result.is_terminated:
            return float(bool(result.is_success)), log
        if interface is not None:
            told |= dict(TOLD.findall(interface.explain(words, seen)))
    return 0.0, log


def tell_rules(source: str) -> str:
    """Return what the interface `source` says of the environment."""
    if not source:
        return ""
    made = load_interface(source)
    text = made.read_rules().text
    made.close()
    return text


def count_moved(house: House, task: Task, log: Log) -> int:
    """Return how many steps of an episode come to something else when its actions are carried out by themselves."""
    begin(house, task)
    results = [house.step(Action(text=step.action)) for step in log]
    again = [
        Step(step.action, as_text(r.observation), r.reward, r.is_terminated, r.is_valid)
        for step, r in zip(log, results, strict=True)
    ]
    return sum(one != other for one, other in zip(log, again, strict=True))


def passes(source: str, log: Log) -> bool:
    """Whether an interface that cheats is let through."""
    try:
        load_interface(source, log).close()
    except UsageError:
        return False
    return True
