import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.methods.test_training import rows

from quintain import api
from quintain.adapters.miniwob import chromium
from quintain.adapters.miniwob.environment import COMMANDS, MiniWoB
from quintain.adapters.miniwob.experts import EXPERTS
from quintain.adapters.miniwob.page import Page, page_of
from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.probes import PROBES, Subject
from quintain.environments.protocol import Expert, Legal, advance, begin
from quintain.errors import EnvironmentFault, MissingExtra, UsageError
from quintain.store.run import Run
from quintain.types import Action, Image, Text

CHECKED = ("builds", "tasks", "random play", "nonsense", "determinism", "no leak", "legal actions", "closing")
real = pytest.mark.real("miniwob", program="chromium")


def node(tag: str, *children: object, ref: int = 1, **facts: object) -> dict[str, object]:
    """Return a node as the package's getDOMInfo does."""
    place = {"left": 10, "top": 20, "width": 4, "height": 6}
    return {"tag": tag, "ref": ref, "children": list(children), "id": "", "classes": "", **place, **facts}


@pytest.fixture(scope="module", autouse=True)
def browser() -> Iterator[None]:
    """Tests share a browser, which is closed after them."""
    yield
    chromium.close_browsers()


def test_a_page_as_text() -> None:
    login = node("BUTTON", ref=11, id="subbtn", text="Log  in")
    name = node("INPUT_text", ref=7, id="username", value="", text="")
    box = node("INPUT_checkbox", ref=8, id="ch0", value=True)
    tree = node("BODY", node("P", node("t", ref=-1, text="Name"), name), box, login)
    page = page_of("Do it.", tree)
    assert page.text == "Do it.\n- Name\n7 input_text username\n8 input_checkbox checked\n11 button Log in"
    assert page.after("Name", "input").ref == 7 and page.first("button").centre == (12, 23)
    with pytest.raises(LookupError, match="no td"):
        page.after("Name", "td")
    with pytest.raises(LookupError, match="no select"):
        page.first("select")


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("click 3", {"click": "3"}),
        ("type 3 a b", {"type": "3", "text": "a b"}),
        ("press Enter", {"press": "Enter"}),
        ("click at 4 50", {"x": "4", "y": "50"}),
        ("drag 3 to 5", {"from": "3", "to": "5"}),
    ],
)
def test_commands_by_value(command: str, parts: dict[str, str]) -> None:
    read = COMMANDS.fullmatch(command)
    assert read is not None
    assert {name: said for name, said in read.groupdict().items() if said is not None} == parts
    assert COMMANDS.fullmatch("click") is None and COMMANDS.fullmatch("type 3 ") is None


def test_an_expert_that_finds_nothing_raises() -> None:
    for task, find in EXPERTS.items():
        with pytest.raises((LookupError, ValueError)):
            find(Page(utterance="", elements=()))
            pytest.fail(f"{task} acts on an empty page")


def test_what_is_missing_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "miniwob", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[miniwob\]"'):
        MiniWoB()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtra, match=r"needs the program chromium: .*apt-get install chromium"):
        chromium.Browser()


@real
def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'login-usr'; did you mean 'login-user'"):
        MiniWoB("login-usr")
    with pytest.raises(UsageError, match="max_turns=0"):
        MiniWoB(max_turns=0)


@real
@pytest.mark.parametrize("probe", CHECKED)
def test_keeps_the_contract(probe: str) -> None:
    with closing(Subject(make=lambda: MiniWoB("click-checkboxes", listed=True), num_episodes=2)) as subject:
        assert PROBES[probe](subject)


@real
@pytest.mark.parametrize("task", EXPERTS)
def test_the_expert_wins(task: str) -> None:
    with closing(MiniWoB(task)) as world:
        assert isinstance(world, Expert)
        for split in ("train", "eval"):
            episode = play(world, world.task(split, 0), expert)
            assert episode.is_success and episode.total == 1.0, episode.observations


@real
def test_the_reward_is_the_pages_and_does_not_fall_with_time() -> None:
    with closing(MiniWoB("login-user", reward="raw")) as world:
        begin(world, world.task("train", 0))
        # As if nine of the ten seconds that the page allows had passed.
        assert world._tab is not None  # pyright: ignore[reportPrivateUsage]
        world._tab.run("core.ept0 -= 9000")  # pyright: ignore[reportPrivateUsage]
        result = None
        while result is None or not result.is_terminated:
            result = advance(world, world.expert_action())  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
        assert (result.reward, result.is_success) == (1.0, True)
        begin(world, world.task("train", 0))
        login = world._page.first("button")  # pyright: ignore[reportPrivateUsage]
        result = advance(world, Action(text=f"click {login.ref}"))
        assert (result.reward, result.is_terminated, result.is_success) == (-1.0, True, False)


@real
def test_what_is_written_is_typed_and_keys_are_pressed() -> None:
    with closing(MiniWoB("enter-text")) as world:
        begin(world, world.task("train", 0))
        field = world._page.first("input_text").ref  # pyright: ignore[reportPrivateUsage]
        seen = advance(world, Action(text=f"type {field} Ab, c!"))
        assert f"{field} input_text tt 'Ab, c!'" in str(seen.observation)
        seen = advance(world, Action(text="press Backspace"))
        assert "'Ab, c'" in str(seen.observation)
        advance(world, Action(text="press Ctrl+a"))
        seen = advance(world, Action(text=f"type {field} x"))
        assert seen.is_valid
        for text in ("fly", "click 99", "press Fly", "type 99 x", "drag 1 to 99"):
            seen = advance(world, Action(text=text))
            assert not seen.is_valid and str(seen.observation).startswith("Error: ")


@real
def test_a_screenshot_on_request() -> None:
    with closing(MiniWoB("click-test", screenshot=True)) as world:
        parts = begin(world, world.task("train", 0))
        assert len(parts) == 2 and isinstance(parts[0], Text) and isinstance(parts[1], Image)
        assert parts[1].data.startswith(b"\x89PNG") and parts[1].media_type == "image/png"


@real
def test_equal_content_is_in_one_split() -> None:
    with closing(MiniWoB("enter-text")) as world:
        seen = {
            split: {str(begin(world, world.task(split, index))) for index in range(6)}
            for split in ("train", "eval")
        }
        assert not seen["train"] & seen["eval"] and len(seen["train"]) > 3


@real
def test_actions_are_listed_on_request() -> None:
    assert not isinstance(MiniWoB("enter-text"), Legal)
    with closing(MiniWoB("enter-text", listed=True)) as world:
        assert isinstance(world, Legal) and isinstance(world, Expert)
        begin(world, world.task("train", 0))
        clicks = [text for text in world.legal_actions() if text.startswith("click")]
        assert len(clicks) == 2 and len(world.legal_actions()) == 3
        assert world.expert_action().text in world.legal_actions()
        assert any(play(world, world.task("train", i), random_policy(i)).is_success for i in range(20))


@real
@pytest.mark.parametrize("task", ["click-tab", "tic-tac-toe"])
def test_the_agent_is_told_the_commands_whatever_the_task_has_besides(task: str) -> None:
    for listed in (False, True):
        told = MiniWoB(task, listed=listed).instructions()
        assert told.startswith("Do what the first line asks") and "type NUMBER TEXT" in told


@real
def test_a_task_without_an_expert_has_none() -> None:
    assert not isinstance(MiniWoB("tic-tac-toe"), Expert)


@real
def test_a_browser_that_dies_is_a_fault_and_the_next_episode_has_a_new_one() -> None:
    with closing(MiniWoB()) as world:
        begin(world, world.task("train", 0))
        assert world._tab is not None  # pyright: ignore[reportPrivateUsage]
        world._tab.browser.process.kill()  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(EnvironmentFault, match="Chromium, asked for"):
            advance(world, Action(text="click 4"))
        assert str(begin(world, world.task("train", 0))).startswith("Click button ONE.")


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("world_of_bits", {"episodes": 4, "max_turns": 3}),
        (
            "digi_rl",
            {
                "tasks": 4,
                "offline_tasks": 4,
                "offline_steps": 1,
                "keep_fraction": 0.5,
                "critic_size": "micro",
            },
        ),
    ],
)
def test_a_method_learns_from_demonstrations_and_then_from_the_page(
    method: str, settings: Mapping[str, Any], tmp_path: Path
) -> None:
    folder = api.train(
        method,
        environment="mix:miniwob/click-test-2?max_turns=3&listed=true,miniwob/enter-text?max_turns=3&listed=true",
        model="micro?tokens=words",
        demonstrations=8,
        imitation_epochs=16,
        imitation_lr=3e-3,
        steps=2,
        eval_every=2,
        eval_episodes=4,
        run=method,
        root=tmp_path,
        **settings,
    )
    with Run.open(folder, writable=False) as run:
        for step in (1, 2):
            episodes = list(run.trajectories(step=step, phase="train"))
            assert {episode.task.environment for episode in episodes} == {
                "miniwob/click-test-2",
                "miniwob/enter-text",
            }
        shown = list(run.trajectories(phase="demonstrations"))
        assert [episode.is_success for episode in shown] == [True] * 8
    assert [row["step"] for row in rows(folder)] == [0, 1, 2]
