"""RExBench: an experiment with a real package's code and graphs is extended, run and judged, end to end.

The repository is networkx as it is installed, with a script that reports the modularity of greedy communities; the
extension is Louvain's communities, over twenty seeds. Ranges are measured by the package outside of the box. What the
task hides is another seed, and another of the package's graphs.
"""

import importlib
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quintain import api
from quintain.adapters.rexbench.judging import Verdict, gold_files, judge, predict_range
from quintain.adapters.rexbench.layout import read_extensions
from quintain_evidence.labs.extensions import write_diff
from quintain_evidence.layers.verdict import Check

MODEL = "networkx 3.6.1"
HIDDEN = {"les_miserables_graph": 12_345, "karate_club_graph": 54_321}
"""graph of a trial → its seed"""
NUM = 20
RUN = "python3 communities.py\n"
SCRIPT = """import random
import networkx as nx

graph = getattr(nx, open("graph.txt").read().strip())()
rng = random.Random(int(open("seed.txt").read()))
found = nx.community.greedy_modularity_communities(graph, weight="weight")
print("modularity:", nx.community.modularity(graph, found))
"""
GREEDY = 'found = nx.community.greedy_modularity_communities(graph, weight="weight")\n'
SEVERAL = """total = 0.0
for _ in range(20):
    found = nx.community.louvain_communities(graph, weight="weight", seed=rng.randrange(10**9))
    total += nx.community.modularity(graph, found) / 20
"""
ASKED = """Report the modularity of Louvain's communities in the place of greedy ones: the mean over twenty runs, each
with a seed of its own drawn from the seed in seed.txt. Weights count. It is printed behind "modularity:".

### Hints
The package has louvain_communities.

### More detailed hints
The last line prints the mean, total.
"""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Write the task, judge gold and what is wrong, and let the expert play."""
    folder = runs / "extensions"
    ranges = write_task(folder)
    (extension,) = read_extensions(folder)
    gold = gold_files(extension)
    script = gold["communities.py"]
    kinds: dict[str, Verdict] = {
        name: judge(extension, files)
        for name, files in {
            "gold": gold,
            "nothing": dict(extension.repository),
            "no weights": {
                **gold,
                "communities.py": script.replace('weight="weight", seed', "weight=None, seed"),
            },
            "printed": {**gold, "communities.py": f'print("modularity:", {sum(ranges[0]) / 2})\n'},
            "broken": {**gold, "communities.py": f"{script}raise SystemExit(1)\n"},
        }.items()
    }
    right, _ = api.evaluate("expert", f"rexbench/{folder}", episodes=1)
    passed = [name for name, verdict in kinds.items() if verdict.is_success]
    checks = [
        Check(
            name="a real repository is extended",
            has_passed=passed == ["gold"] and kinds["gold"].file_recall == 1.0,
            detail=f"{len(extension.repository)} files; of {', '.join(kinds)}: in range {', '.join(passed)}",
        ),
        Check(
            name="execution apart from success",
            has_passed=[name for name, verdict in kinds.items() if not verdict.has_executed] == ["broken"],
            detail=f"numbers of gold {kinds['gold'].numbers}, ranges {ranges}",
        ),
        Check(
            name="the expert plays", has_passed=right.success == 1.0, detail=f"resolved {right.success:.2f}"
        ),
    ]
    return checks, {"gold": kinds["gold"].numbers[0] or 0.0, "expert": right.success}


def write_task(folder: Path) -> list[tuple[float, float]]:
    """Write the task below `folder` and return the ranges of its trials."""
    networkx: Any = importlib.import_module("networkx")
    package = Path(networkx.__file__).parent
    ranges = [
        predict_range([mean_modularity(networkx, graph, seed) for seed in range(NUM)]) for graph in HIDDEN
    ]
    before = {
        "run_final.sh": RUN,
        "communities.py": SCRIPT,
        "graph.txt": "karate_club_graph\n",
        "seed.txt": "1\n",
    }
    after = {
        **before,
        "communities.py": SCRIPT.replace(GREEDY, SEVERAL).replace(
            "nx.community.modularity(graph, found))", "total)"
        ),
    }
    trials: list[dict[str, Any]] = []
    texts = {"instructions/louvain/instructions.md": ASKED, "gold/louvain.patch": write_diff(before, after)}
    for (graph, seed), (low, high) in zip(HIDDEN.items(), ranges, strict=True):
        texts |= {
            f"hidden/louvain/{graph}/graph.txt": f"{graph}\n",
            f"hidden/louvain/{graph}/seed.txt": f"{seed}\n",
        }
        files = {name: f"{graph}/{name}" for name in ("graph.txt", "seed.txt")}
        trials.append({"files": files, "targets": [{"label": "modularity:", "low": low, "high": high}]})
    texts["targets/louvain.json"] = json.dumps({"trials": trials, "seconds": 120})
    texts |= {f"tasks/louvain/{name}": text for name, text in before.items()}
    for file in sorted(package.rglob("*.py")):
        if "tests" not in file.relative_to(package).parts:
            texts[f"tasks/louvain/networkx/{file.relative_to(package)}"] = file.read_text("utf-8")
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return ranges


def mean_modularity(networkx: Any, graph: str, seed: int) -> float:
    """Return what the extension is to report, by the package itself."""
    made, rng = getattr(networkx, graph)(), random.Random(seed)
    return statistics.fmean(
        networkx.community.modularity(
            made, networkx.community.louvain_communities(made, weight="weight", seed=rng.randrange(10**9))
        )
        for _ in range(NUM)
    )
