"""DynaSaur on real input: functions of Python's own modules are kept whole, and SmolLM2 writes code beside a library.

What people wrote is nobody's test data: each function that is kept of a module is defined again in a fresh process,
with nothing but what it stands on. Then a run of two steps, resumed between them, whose harness has a few functions.
"""

import importlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain.agents.library import ActionLibrary, load_library
from quintain.learning.saved import load_policy
from quintain.memory.bank import Bank
from quintain.methods.agents.dynasaur import FILE
from quintain.models.fingerprint import fingerprint
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess
from quintain.store.run import Run
from quintain.types import Task
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import perform_in_two

MODEL = "smollm2"
WORLD = "calc?steps=1&names=2&digits=1&checks=0&calculator=false"
MODULES = (
    "bisect",
    "calendar",
    "colorsys",
    "fnmatch",
    "genericpath",
    "heapq",
    "posixpath",
    "statistics",
    "textwrap",
)
KNOWN = '''
def price_of(name):
    """Look up the number of a name, to compute with it."""
    return int(lookup(name).split()[-1])
def look_up_all(names):
    """Look up the numbers of several names."""
    return [price_of(name) for name in names]
'''
STEPS, TASKS, SECONDS = 2, 4, 900.0


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Keep functions of real modules, and let a model write code beside some."""
    found, broken = keep_modules()
    folder, known = runs / "dynasaur", runs / "known.jsonl"
    library = ActionLibrary()
    library.learn(Task(id="known/train/0", environment="known", seed=0), [KNOWN], {"lookup", "answer"})
    library.bank.save(known)
    failed = perform_in_two(
        folder,
        ["dynasaur", "--model", MODEL, "--environment", WORLD, "--agent", f"code?library={known}",
         "--demonstrations", "0", "--tasks", str(TASKS), "--eval-every", "1", "--eval-episodes", "2",
         "--eval-start", "false", "--max-turn-tokens", "48"],
        steps=STEPS, seconds=SECONDS,
    )  # fmt: skip
    if failed:
        return [Check(name="runs", has_passed=False, detail=failed)], {}
    policy = load_policy(MODEL)
    with Run.open(folder, writable=False) as run:
        weights, played = run.weights(), [*run.trajectories()]
    told = [str(policy.tokenizer.decode(list(t.turns[0].prompt_ids))) for t in played]
    grown = load_library(folder / FILE)
    names = {f.name for f in library.functions}
    checks = [
        Check(
            name="keeps",
            has_passed=found > 30 and not broken,
            detail=f"{found} functions of {len(MODULES)} modules of Python, {len(broken)} not defined in a fresh "
            f"process {', '.join(broken[:3])}".strip(),
        ),
        Check(
            name="weights",
            has_passed=set(weights.values()) <= {fingerprint(policy.model)},
            detail=f"{len(set(weights.values()))} fingerprint after {len(weights)} steps, that of the model as it came",
        ),
        Check(
            name="told",
            has_passed=all("price_of(name)" in text and "find_functions(" in text for text in told),
            detail=f"{len(told)} episodes were told the functions that fit, evaluations among them",
        ),
        Check(
            name="library",
            has_passed=names <= {f.name for f in grown.functions} and len(played) > STEPS * TASKS,
            detail=f"{len(grown.functions)} functions after {STEPS} steps, {len(names)} of them from before",
        ),
    ]  # fmt: skip
    train = [t for t in played if not t.task.is_held_out]
    return checks, {
        "solved": float(sum(t.is_success for t in train)),
        "functions": float(len(grown.functions)),
        "kept of modules": float(found),
    }


def keep_modules() -> tuple[int, list[str]]:
    """Return how many functions of `MODULES` are kept, and the names of those that cannot be defined again."""
    num, broken = 0, list[str]()
    for name in MODULES:
        library = ActionLibrary(Bank(length=20_000))
        source = inspect.getsource(importlib.import_module(name))
        library.learn(Task(id=f"{name}/train/0", environment=name, seed=0), [source], ())
        for function in library.functions:
            num += 1
            with PythonProcess(Limits(seconds=30.0), setup=library.code([function.name])) as python:
                cell = python.run(f"print(callable({function.name}))")
            if cell.output != "True\n" or cell.error:
                broken.append(f"{name}.{function.name}")
    return num, broken
