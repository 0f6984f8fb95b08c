"""Which of BabyAI's levels does the package's own bot solve, played through our adapter?

    python speed/babyai_levels.py --episodes 5

prints a line per level as Markdown: success, mean turns, and how often the bot gave up.
"""

import argparse
from contextlib import closing

from quintain.adapters.babyai.environment import BabyAI
from quintain.adapters.babyai.level import level_ids
from quintain.environments.baselines import Episode, expert, play
from quintain.errors import EnvironmentFault


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--only", default="", help="comma-separated names of levels")
    arguments = parser.parse_args()
    levels = arguments.only.split(",") if arguments.only else sorted(level_ids())
    print("| level | bot | turns | gave up |\n|---|---|---|---|")
    num_solved = 0
    for level in levels:
        played: list[Episode] = []
        gave_up = 0
        with closing(BabyAI(level)) as world:
            for index in range(arguments.episodes):
                try:
                    played.append(play(world, world.task("eval", index), expert))
                except EnvironmentFault:
                    gave_up += 1
        wins = sum(episode.is_success for episode in played)
        turns = sum(len(episode.rewards) for episode in played) / max(1, len(played))
        num_solved += wins == arguments.episodes
        print(f"| {level} | {wins} of {arguments.episodes} | {turns:.0f} | {gave_up} |", flush=True)
    print(f"\n{num_solved} of {len(levels)} levels solved in all {arguments.episodes} episodes")


if __name__ == "__main__":
    main()
