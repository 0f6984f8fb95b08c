"""What the interfaces do that ALIGN's authors published, over the episodes that they published.

``python evidence/studies/published_interfaces.py FOLDER`` takes a checkout of THUNLP-MT/ALIGN (arXiv 2505.21055), reads
the interface of each world and agent, and plays it in the sandbox over recorded episodes without an interface:
``env.step`` gives back what was recorded. It counts the steps at which the interface does something else than to carry
the action out once and hand on what came of it, and says what `quintain.agents.interface` refuses it for. Then the
miner reads the same episodes.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quintain.agents.interface import Step, check_source
from quintain.errors import UsageError
from quintain.methods.agents.align import mine_rules
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess

WORLDS = ("alfworld", "scienceworld", "webshop", "m3tool")
AGENTS = ("vanilla", "react", "refine", "sc", "planning")
EPISODES = 40
FAILED = re.compile(
    r"Nothing happens\.|No known action matches|Its not clear how|Invalid action|Failed to execute"
)
"""What these worlds say after an action without effect."""
TURN = re.compile(
    r"^INFO - Agent Action: (.*?)\nINFO - Observation: (.*?)\nINFO - (?:Reward|Score): (\S+)\nINFO - Done: (\w+)$",
    re.DOTALL | re.MULTILINE,
)
DRIVER = '''
import json, logging

class Recorded:
    def __init__(self, world, before):
        self.__dict__.update(name="task")
        world_of[id(self)] = [world, before, None, []]

    def step(self, action):
        world, before, turn, asked = world_of[id(self)]
        one = action[0] if isinstance(action, list) else action
        asked.append(one)
        seen, paid, done = turn[1:] if one == turn[0] else (before, 0.0, False)
        if world == "alfworld":
            return [seen], [paid], [done], {"won": [bool(paid)]}
        return (seen, paid, done, {"score": paid}) if world == "scienceworld" else (seen, paid, done)

world_of = {}

def play(world, first, task, turns):
    """Return of each turn what the interface carried out, and what it returned."""
    env, found = Recorded(world, first), []
    for turn in turns:
        world_of[id(env)][2:] = [turn, []]
        given = (env, task, task) if world == "m3tool" else (env, first, task)
        try:
            said = WrapStep(*given, turn[0], logging.getLogger("quiet"))
            seen, *rest = said
            paid, done = reversed(rest) if world == "scienceworld" else rest
        except Exception as error:
            seen, paid, done = None, repr(error), False
        found.append([world_of[id(env)][3], seen, paid, done])
        world_of[id(env)][1] = turn[1]
    print(json.dumps(found, default=repr))
'''


def read_episode(file: Path) -> tuple[str, list[Step]]:
    """Return what an episode began with, and its steps."""
    text = file.read_text(encoding="utf-8", errors="replace")
    begun = text.partition("INFO - Task: ")[2].partition("\nINFO - ")[0]
    steps = [
        Step(action, seen, {"True": 1.0, "False": 0.0}.get(paid) or float(paid == "True" or _number(paid)),
             done == "True", FAILED.search(seen) is None)
        for action, seen, paid, done in TURN.findall(text)
    ]  # fmt: skip
    return begun, steps


def _number(text: str) -> float:
    """Return the number that `text` is; 0 where it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def count_faults(source: str, world: str, episodes: Sequence[tuple[str, list[Step]]]) -> Counter[str]:
    """Return what an interface did at the steps of recorded `episodes`, and at how many of them."""
    found = Counter[str]()
    with PythonProcess(Limits(seconds=60.0, output_bytes=8 << 20), setup=f"{source}\n{DRIVER}") as python:
        for begun, steps in episodes:
            task = begun.rpartition("Your task is to: ")[2].rpartition("Instruction:")[2].strip()
            turns = [[s.action, s.observation, s.reward, s.is_done] for s in steps]
            cell = python.run(f"play({world!r}, {begun!r}, {task!r}, {turns!r})")
            replies: list[Any] = (
                json.loads(cell.output.splitlines()[-1]) if not cell.error and not cell.was_killed else []
            )
            found["steps"] += len(replies)
            found["unplayed episodes"] += not replies
            for step, (asked, seen, paid, done) in zip(steps, replies, strict=False):
                found["honest"] += asked == [step.action] and (paid, done) == (step.reward, step.is_done)
                found["answers without the environment"] += not asked
                found["carries out other actions too"] += any(each != step.action for each in asked)
                found["carries the action out twice"] += asked.count(step.action) > 1
                if seen is None:
                    found["raises"] += 1
                elif asked == [step.action]:
                    found["changes the reward"] += paid != step.reward
                    found["changes the end"] += done != step.is_done
                    found["leaves out what was seen"] += step.observation not in str(seen)
                    found["adds text"] += step.observation in str(seen) and step.observation != seen
    return +found


def name_refusal(source: str) -> str:
    """Return why the source is refused as it is read."""
    try:
        check_source(source)
    except UsageError as error:
        return str(error)
    return ""


def list_attributes(source: str) -> list[str]:
    """Return what of its environment an interface reads or sets besides ``step``."""
    return sorted({
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "env"
        and node.attr != "step"
    })  # fmt: skip


def main(folder: Path) -> None:
    """Look at every published interface, print what it does, and keep it."""
    rows: list[dict[str, Any]] = []
    for world in WORLDS:
        for agent in AGENTS:
            source = (folder / world / f"interface_{agent}.py").read_text(encoding="utf-8")
            files = sorted((folder / world / "logs" / f"baseline_{agent}").glob("*.log"))[:EPISODES]
            episodes = [read_episode(file) for file in files]
            counts = count_faults(source, world, episodes)
            rules = (
                mine_rules([steps for _, steps in episodes]) if world in ("alfworld", "scienceworld") else {}
            )
            rows.append(
                {
                    "world": world,
                    "agent": agent,
                    "lines": len(source.splitlines()),
                    "refused": name_refusal(source),
                    "reads of env": list_attributes(source),
                    **counts,
                    "mined": rules,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    file = Path(__file__).parent / "results" / "published_interfaces.json"
    file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="a checkout of THUNLP-MT/ALIGN")
    main(parser.parse_args().folder)
