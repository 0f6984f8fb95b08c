"""OpenEnv's own package, in ``.venv-openenv``: our client at its server, its client at our server."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.environments.local_server import serving

from quintain.adapters.openenv.environment import OpenEnv
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.rollout.stepper import guard_call
from quintain.serve.listener import Listener
from quintain.serve.openenv import openenv_app
from quintain.types import Action, Failure
from quintain.worlds.keydoor.game import KeyDoor

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.timeout(
    900
)  # a busy machine takes long to import the package and to start processes
real = pytest.mark.real("openenv", beside=True)


@pytest.fixture
def address(python_beside: str) -> Iterator[str]:
    """The address of a real server."""
    program = str(FOLDER / "openenv_server.py")
    with serving(
        lambda port: [python_beside, program, "--port", str(port), "--sessions", "2"], patience=90
    ) as (port, _):
        yield f"127.0.0.1:{port}"


@real
def test_our_client_plays_a_real_server(address: str) -> None:
    with closing(OpenEnv(address)) as world:
        assert world.tools() == (), "an action with one text is spoken as it is"
        for index in range(3):
            first = str(begin(world, world.task("train", index)))
            number = first.removeprefix("say ")
            wrong, right = advance(world, Action(text="x")), advance(world, Action(text=number))
            assert [(each.observation, each.reward, each.is_terminated) for each in (wrong, right)] == [
                ("wrong", 0.0, False),
                ("right", 0.5, True),
            ]
        task = world.task("train", 0)
        assert begin(world, task) == begin(world, task)
        found = guard_call(lambda: advance(world, Action(text="crash")))
        assert isinstance(found, Failure) and found.owner == "environment"
        assert begin(world, task), "the next episode has a new connection"


@real
def test_clients_of_a_real_server_do_not_meet_and_one_too_many_is_told(address: str) -> None:
    with closing(OpenEnv(address)) as one, closing(OpenEnv(address)) as other:
        first = str(begin(one, one.task("train", 0)))
        begin(other, other.task("train", 1))
        advance(other, Action(text="x"))
        assert advance(one, Action(text=first.removeprefix("say "))).reward == 0.5
        with closing(OpenEnv(address)) as third:
            found = guard_call(lambda: begin(third, third.task("train", 0)))
        assert isinstance(found, Failure) and found.owner == "environment" and "capacity" in found.message


@real
def test_the_packages_client_plays_our_server(python_beside: str) -> None:
    home = KeyDoor()
    task = home.task("train", 0)
    begin(home, task)
    actions: list[str] = []
    while not actions or not advance(home, Action(text=actions[-1])).is_terminated:
        actions.append(home.expert_action().text)
    episode = play(home, task, expert)
    listener = Listener(openenv_app(find("keydoor"))).start()
    try:
        client = [python_beside, str(FOLDER / "openenv_client.py"), listener.url, *actions]
        done = subprocess.run(client, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        listener.close()
    found = json.loads(done.stdout)
    assert found["steps"] == len(actions)
    assert [row[1] for row in found["seen"]][1:] == list(episode.rewards) and found["seen"][-1][2] is True
    assert [row[0] for row in found["seen"]][1:] == [str(each) for each in episode.observations[1:]]
