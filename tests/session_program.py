"""Cells of a notebook, run as IPython does: from no file, with lines that tracebacks can show."""

import linecache
import sys
from code import InteractiveInterpreter
from typing import Any

OWN = (
    """import quintain
from quintain.errors import UsageError
""",
    """class Guess(quintain.Environment):
    "Find the hidden number between 1 and 8."

    def reset(self, task):
        self.secret = task.rng.randint(1, 8)
        return "Find the hidden number between 1 and 8."

    @quintain.tool
    def guess(self, number: int) -> str:
        "Guess the hidden number."
        if number == self.secret:
            return self.finish("correct", reward=1.0)
        return "higher" if self.secret > number else "lower"
""",
    """assert quintain.check(Guess, episodes=2).has_passed
run = quintain.train(
    "grpo", environment=Guess, model="micro", run="numbers", steps=2, eval_every=1, tasks=2, group_size=2,
    demonstrations=8, eval_episodes=4, max_turn_tokens=32,
)
""",
    """assert [row["step"] for row in run.metrics] == [0, 1, 2]
assert len(run.episodes(step=1, phase="eval")) == 4 < len(run.episodes(step=1))
assert run.best in (0, 1, 2)
assert run.model().model.num_parameters() == run.model("best").model.num_parameters()
""",
    """found, played = quintain.evaluate(run, episodes=4)
assert found.num == len(played) == 4
assert len(quintain.collect(Guess, "random", episodes=3)[0]) == 3
assert quintain.resume(run) == run and isinstance(quintain.resume(run), quintain.TrainedRun)
assert [row.name for row in quintain.compare(f"{run}@0", run).rows] == ["runs/numbers@0", "runs/numbers"]
""",
    """import json, urllib.request

with quintain.serving(run) as served:
    asked = urllib.request.Request(
        f"{served.base_url()}/chat/completions",
        json.dumps({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}).encode(),
        {"Authorization": f"Bearer {served.api_key}", "Content-Type": "application/json"},
    )
    answer = json.load(urllib.request.urlopen(asked, timeout=60))
assert answer["choices"][0]["message"]["role"] == "assistant"
print("all cells ran")
""",
)


class Session(InteractiveInterpreter):
    """One that ends where a cell fails: what is handled when it would be shown is raised on."""

    def showtraceback(self) -> None:
        raise


space: dict[str, Any] = vars(sys.modules["__main__"])
session = Session(space)
for number, cell in enumerate(OWN):
    name = f"<ipython-input-{number}>"
    lines: list[str] = [*cell.splitlines(keepends=True)]
    linecache.cache[name] = (len(cell), None, lines, name)
    session.runsource(cell, name, "exec")
