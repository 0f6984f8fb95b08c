"""Does an agent that is asked to check again before it stops succeed more often, at an equal budget?

    python evidence/studies/again.py [--seeds 0 1 2] [--runs FOLDER]

Interaction is scaled without training, as TTI's authors first tried it (arXiv 2506.07976). A tiny model has imitated,
not to the end, readers who check once before they answer (``again?times=1``), and samples at temperature 1 with each
number of times. Told are success with its 95 % interval (Wilson, over the tasks of all seeds) and the tokens sampled in
an episode; and beside it, at as many sampled tokens, the answer that most of several independent episodes without a
check agree on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from quintain.curriculum.streams import draw_held_out
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.eval.statistics import wilson
from quintain.learning.saved import MODEL
from quintain.models.load import load
from quintain.rollout.collect import Rollout
from quintain.types import Group
from quintain.warm_start.start import build_agent
from quintain_evidence.world_trials import World, imitate

ENVIRONMENT = "stream?facts=1&pages=4"
TIMES = (0, 1, 2, 4)
TASKS = 256
SETTINGS = {
    "agent": "again?times=1+text",
    "model": "micro?tokens=words",
    "steps": 200,
    "demonstrations": 800,
    "batch_size": 32,
}


def play(folder: Path, times: int, size: int, seed: int) -> list[Group]:
    """Return `size` episodes of each held-out task of the model in `folder`, asked to check so many `times`."""
    make = find(ENVIRONMENT)
    tasks = draw_held_out(tasks_of(make), TASKS)
    loaded = load(str(folder))
    agent = build_agent(loaded.tokenizer, make, temperature=1.0, agent=f"again?times={times}+text")
    engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    with closing(Rollout(agent, make, engine)) as rollout:
        return list(rollout.groups(tasks, size=size, seed=seed))


def count_tokens(groups: Sequence[Group]) -> float:
    """Return the sampled tokens of an episode."""
    lengths = [t.num_sampled for group in groups for t in group.trajectories]
    return sum(lengths) / len(lengths)


def vote(group: Group, num: int) -> bool:
    """Return whether the last action that most of the first `num` episodes agree on is right; of equals the first."""
    ends = [(t.turns[-1].action.text.strip(), t.is_success) for t in group.trajectories[:num]]
    (text, _), *_ = Counter(text for text, _ in ends).most_common(1)
    return next(is_right for said, is_right in ends if said == text)


def describe(wins: int, num: int) -> str:
    """Return a share in percent with its interval."""
    low, high = wilson(wins, num)
    return f"{100 * wins / num:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=None)
    arguments = parser.parse_args()
    root = arguments.runs or Path(tempfile.mkdtemp(prefix="again-"))
    wins, votes = Counter[int](), Counter[int]()
    tokens, sizes = Counter[int](), Counter[int]()
    for seed in arguments.seeds:
        run = Path(imitate(World(name="again", environment=ENVIRONMENT, settings=SETTINGS), seed, root).run)
        played = {times: play(run / MODEL, times, 1, seed) for times in TIMES}
        used = {times: count_tokens(groups) for times, groups in played.items()}
        sizes_here = {times: max(1, round(used[times] / used[0])) for times in TIMES}
        beside = play(run / MODEL, 0, max(sizes_here.values()), seed + 1000)
        for times, groups in played.items():
            wins[times] += sum(t.is_success for group in groups for t in group.trajectories)
            votes[times] += sum(vote(group, sizes_here[times]) for group in beside)
            tokens[times] += round(used[times])
            sizes[times] += sizes_here[times]
    num, seeds = TASKS * len(arguments.seeds), len(arguments.seeds)
    print(
        "| times | success [95 %] | tokens sampled | episodes of a vote | the vote [95 %] |\n|---|---|---|---|---|"
    )
    for times in TIMES:
        print(
            f"| {times} | {describe(wins[times], num)} | {tokens[times] / seeds:.0f} | {sizes[times] / seeds:.1f} | "
            f"{describe(votes[times], num)} |"
        )


if __name__ == "__main__":
    main()
