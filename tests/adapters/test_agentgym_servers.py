"""AgentGym's own TextCraft server, from a checkout of its repository: it is on no package registry.

It needs fastapi and uvicorn, its client requests and openai, too: ``pytest -m real FILE --agentgym FOLDER``.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.environments.local_server import serving

from quintain.adapters.agentgym.environment import AgentGym
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.probes import PROBES, Subject
from quintain.environments.protocol import advance, begin
from quintain.rollout.stepper import guard_call
from quintain.serve.agentgym import agentgym_app
from quintain.serve.listener import Listener
from quintain.types import Action, Failure
from quintain.worlds.keydoor.game import KeyDoor

pytestmark = [pytest.mark.timeout(900), pytest.mark.real("fastapi"), pytest.mark.real("uvicorn")]
SERVE = "import sys, uvicorn; sys.path.insert(0, '.'); from agentenv_textcraft import app; "
CLIENT = """
import json, sys
folder, url, index, *actions = sys.argv[1:]
sys.path.insert(0, folder)
from agentenv.envs.textcraft import TextCraftEnvClient
client = TextCraftEnvClient(env_server_base=url, data_len=9, timeout=60)
client.reset(int(index))
seen = [client.step(f"Action: {action}") for action in actions]
print(json.dumps([[each.state, each.reward, each.done] for each in seen]))
"""
RECIPE = re.compile(r"craft (\d+) (.+) using (.+)")
CHECKED = ("builds", "tasks", "random play", "nonsense", "determinism", "no leak", "closing")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The address of the server, and its process."""
    folder = request.config.getoption("--agentgym", default=None)
    if not folder:
        pytest.skip("no checkout of AgentGym: give --agentgym FOLDER")
    run = f"{SERVE}uvicorn.run(app, host='127.0.0.1', port=int(sys.argv[1]), log_level='warning')"
    with serving(
        lambda port: [sys.executable, "-c", run, str(port)],
        patience=300,
        cwd=Path(str(folder)) / "agentenv-textcraft",
        stdout=subprocess.DEVNULL,
    ) as (port, process):
        yield f"127.0.0.1:{port}", process


def plan(told: str) -> list[str]:
    """Return commands that reach the goal: what a recipe makes is made, everything else is taken."""
    recipes: dict[str, tuple[int, list[tuple[int, str]], str]] = {}
    for line in map(str.strip, told.splitlines()):
        if read := RECIPE.fullmatch(line):
            parts = [part.split(" ", 1) for part in read[3].split(", ")]
            recipes.setdefault(read[2], (int(read[1]), [(int(number), name) for number, name in parts], line))
    goal = re.search(r"Goal: craft (.+)\.", told)
    assert goal is not None, told
    have: Counter[str] = Counter()
    commands: list[str] = []

    def provide(item: str, count: int) -> None:
        """Have `count` of `item`."""
        while item in recipes and have[item] < count:
            made, parts, line = recipes[item]
            for number, part in parts:
                provide(part, number)
            have.subtract({part: number for number, part in parts})
            commands.append(line)
            have[item] += made
        if have[item] < count:
            commands.append(f"get {count - have[item]} {item}")
            have[item] = count

    provide(goal[1], 1)
    return commands


def test_a_plan_by_value() -> None:
    told = "Crafting commands:\ncraft 4 stick using 2 planks\ncraft 1 ladder using 7 stick\n\nGoal: craft ladder."
    planks = ["get 2 planks", "craft 4 stick using 2 planks"]
    assert plan(told) == [*planks, *planks, "craft 1 ladder using 7 stick"]


@pytest.mark.parametrize("probe", CHECKED)
def test_keeps_the_contract(server: tuple[str, object], probe: str) -> None:
    with closing(Subject(make=find(f"agentgym/{server[0]}"), num_episodes=3)) as subject:
        assert PROBES[probe](subject)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_what_is_planned_from_its_texts_wins(server: tuple[str, object], split: str) -> None:
    with closing(AgentGym(server[0], max_turns=40)) as world:
        for index in range(10):
            told = str(begin(world, world.task(split, index)))  # pyright: ignore[reportArgumentType]
            results = [advance(world, Action(text=command)) for command in plan(told)]
            assert sum(result.reward for result in results) == 1.0, told
            assert [result.is_terminated for result in results] == [False] * (len(results) - 1) + [True]


@pytest.mark.real("requests")
@pytest.mark.real("openai")
def test_its_own_client_plays_our_server(server: tuple[str, object], request: pytest.FixtureRequest) -> None:
    home = KeyDoor()
    episode = play(home, home.task("train", 2), expert)
    begin(home, home.task("train", 2))
    actions: list[str] = []
    while len(actions) < len(episode.rewards):
        actions.append(home.expert_action().text)
        advance(home, Action(text=actions[-1]))
    listener = Listener(agentgym_app(find("keydoor"))).start()
    try:
        folder = Path(str(request.config.getoption("--agentgym"))).resolve() / "agentenv"
        client = [sys.executable, "-c", CLIENT, str(folder), listener.url, "4", *actions]
        done = subprocess.run(client, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        listener.close()
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [str(seen), reward, end[0]]
        for seen, reward, end in zip(episode.observations[1:], episode.rewards, episode.ends, strict=True)
    ]


def test_a_server_that_is_killed_is_a_failure_of_the_environment(
    server: "tuple[str, subprocess.Popen[bytes]]",
) -> None:
    with closing(AgentGym(server[0])) as world:
        begin(world, world.task("train", 0))
        server[1].kill()
        server[1].wait()
        found = guard_call(lambda: advance(world, Action(text="inventory")))
        assert isinstance(found, Failure) and found.owner == "environment"
