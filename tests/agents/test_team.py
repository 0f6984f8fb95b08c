"""Teams as data: who hears whom, who speaks when, what ends a talk, and what is refused."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from quintain.agents.catalog import build as build_agent
from quintain.agents.team import Role, Team, TeamWorld, Together, UnshownTeamWorld, read_team
from quintain.config import build
from quintain.environments.baselines import expert, noop, play
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, Expert, Snapshot, begin
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import GroupConfig
from quintain.rollout.collect import Rollout
from quintain.runs.context import check_run
from quintain.text.chat import Chat
from quintain.types import ANSWER, Action, Split, StepResult, Task, as_text
from quintain.warm_start.start import new_tokenizer

CRAFT = "craft?depth=2&places=2"


class Deal(Environment):
    """A price is to be found between what the seller and the buyer know."""

    def reset(self, task: Task) -> str:
        """Begin."""
        return "Find a price."

    def snapshot(self) -> None:
        """Return nothing: it has no state."""

    def restore(self, state: None) -> None:
        """Go on."""

    def step(self, action: Action) -> StepResult:
        """Take the price."""
        is_price = action.text.isdigit()
        return StepResult(
            observation=f"You said {action.text}.", reward=float(is_price), is_terminated=is_price
        )


def say(world: TeamWorld, text: str) -> str:
    return as_text(world.step(Action(text=text)).observation)


@pytest.mark.parametrize("name", ["debate", "planner"])
def test_experts_in_every_role_solve_what_the_expert_solves(name: str) -> None:
    inner = find(CRAFT)
    for index in range(4):
        world = TeamWorld(inner(), read_team(name))
        task = world.task("train", index)
        assert play(world, task, expert).is_success and not play(world, task, noop).is_success


def test_a_planner_says_all_that_is_to_come_and_the_worker_knows_no_more() -> None:
    world = TeamWorld(find(CRAFT)(), read_team("planner"))
    first = as_text(begin(world, world.task("train", 0)))
    assert world.seat() == "planner" and "Goal" in first and first.endswith("\nWrite the plan.")
    plan = world.expert_action().text
    assert plan.startswith("1. ")
    assert say(world, plan) == f"planner: {plan}" and world.seat() == "worker"
    shown = say(world, world.expert_action().text)
    assert world.seat() == "planner" and shown.startswith(first.removesuffix("\nWrite the plan."))


ROLES = ("a", "b", "c", "d")


@pytest.mark.parametrize(("teller", "hearer"), [(x, y) for x, y in product(ROLES, ROLES) if x != y])
@pytest.mark.parametrize("hears", [True, False])
def test_a_word_reaches_who_sees_its_role_and_nobody_else(teller: str, hearer: str, hears: bool) -> None:
    others = tuple(name for name in ROLES if name != hearer and (name != teller or hears))
    roles = {
        name: Role(
            sees=others if name == hearer else tuple(each for each in ROLES if each != name),
            asks=f"You are {name}.",
            acts=name == "d",
        )
        for name in ROLES
    }
    world = TeamWorld(find(CRAFT)(), Team(roles=roles, order=ROLES, rounds=2))
    shown, observation = list[str](), begin(world, world.task("train", 0))
    for _ in range(2 * (2 * 3 + 1)):
        seat = world.seat()
        shown += [as_text(observation)] if seat == hearer else []
        observation = world.step(Action(text="canary" if seat == teller else "word")).observation
    assert len(shown) >= 2 and any("canary" in text for text in shown) is hears
    assert all(f"You are {hearer}." in text for text in shown)


def test_what_the_data_says_to_one_is_not_shown_to_another() -> None:
    world = UnshownTeamWorld(Deal(), read_team("negotiation"))
    assert not isinstance(world, Expert)
    task = replace(world.task("train", 0), data={"seller": "at least 3", "buyer": "at most 7"})
    assert as_text(begin(world, task)) == "Find a price.\nseller: at least 3\nName a price."
    assert say(world, "5") == "Find a price.\nbuyer: at most 7\nseller: 5" and world.seat() == "buyer"
    assert isinstance(world, Snapshot)
    other = UnshownTeamWorld(Deal(), read_team("negotiation"))
    other.restore(world.snapshot())
    other.step(Action(text="no price"))
    assert say(other, "4") == "Find a price.\nbuyer: at most 7\nseller: 4\nYou said no price."
    with pytest.raises(UsageError, match=r"got 'data.seller' to be seen of task .*, whose data has nothing"):
        begin(world, world.task("train", 0))


def test_a_word_may_end_the_talk_or_the_episode() -> None:
    roles = {
        "solver": Role(sees=("task", "critic"), asks="Say what to do."),
        "critic": Role(sees=("solver",), asks="Is it right?", ends={"yes": "act", "give up": "stop"}),
        "actor": Role(sees=("solver",), acts=True),
    }
    world = TeamWorld(find(CRAFT)(), Team(roles=roles, order=("solver", "critic", "actor"), rounds=3))
    begin(world, world.task("train", 0))
    say(world, "go hill")
    assert world.expert_action().text == "yes"
    say(world, "no")
    assert world.seat() == "solver"
    say(world, "eat")
    assert say(world, "yes") == "solver: eat" and world.seat() == "actor"
    say(world, "eat")
    say(world, "go hill")
    over = world.step(Action(text="give up"))
    assert over.is_terminated and over.is_success is False
    assert world.max_turns == world.inner.max_turns * 7


def test_a_snapshot_holds_what_was_said() -> None:
    world = TeamWorld(find(CRAFT)(), read_team("debate"))
    begin(world, world.task("train", 0))
    say(world, "go hill")
    assert isinstance(world, Snapshot)
    saved, key = world.snapshot(), world.state_key()
    told = say(world, "eat")
    assert say(world, "go") != told and world.state_key() != key
    world.restore(saved)
    assert world.state_key() == key and world.seat() == "second" and say(world, "eat") == told


def test_an_environment_with_tools_is_refused() -> None:
    with pytest.raises(UsageError, match="a team: got calc, which has tools; take an environment of words"):
        TeamWorld(find("calc")(), read_team("debate"))


ACTS = "[roles.x]\nacts = true\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("order = [", "which is no TOML"),
        ("order = ['x']", "without roles; write"),
        (f"order = ['y', 'x']\n{ACTS}", "order of a team: got 'y'"),
        (f"order = ['x']\n[roles.y]\n{ACTS}", "got one without y, which then never speaks"),
        (
            f"order = ['x']\nrounds = 0\n{ACTS}",
            "rounds of a team: got 0; give 1 to 100, which bounds the talk",
        ),
        (f"order = ['x']\nrounds = 101\n{ACTS}", "rounds of a team: got 101; give 1 to 100"),
        (f"order = ['y', 'x']\n[roles.y]\nsees = ['y']\n{ACTS}", "got y, whom nobody sees that acts"),
        (
            f"order = ['y', 'z', 'x']\n[roles.y]\nsees = ['z']\n[roles.z]\nsees = ['y']\n{ACTS}",
            "got y, whom nobody sees that acts, ends the talk, or is heard by one who does",
        ),
        ("order = ['x']\n[roles.x]", r"got 0 with acts = true \(none\)"),
        (f"order = ['x', 'y']\n[roles.y]\nacts = true\n{ACTS}", "let one act, once and last"),
        (f"order = ['x', 'y', 'x']\n[roles.y]\n{ACTS}", "let one act, once and last"),
        (f"order = ['y', 'x']\n[roles.y]\n{ACTS}", "got y, whom nobody sees"),
        ("order = ['x']\n[roles.x]\nacts = true\nsees = ['tusk']", "sees of x: got 'tusk'.*task"),
        ("order = ['x']\n[roles.x]\nacts = true\nends = {no = 'act'}", "ends of x: got some"),
        ("order = ['x']\n[roles.x]\nacts = true\nends = {no = 'leave'}", "leave"),
        ("order = ['x']\n[roles.x]\nacts = true\nspeaks = 'no'", "speaks"),
        ("order = ['x']\n[roles.x]\nacts = 'yes'", "acts"),
        ('order = ["x/y"]\n[roles."x/y"]\nacts = true', "got 'x/y'; use letters, digits and _"),
    ],
)
def test_a_file_that_is_no_team_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_team(str(tmp_path / "mine.toml"))


def test_a_team_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"team: got 'debat'; did you mean 'debate'\?"):
        read_team("debat")
    with pytest.raises(UsageError, match="team: got "):
        read_team(str(tmp_path / "none.toml"))


def test_a_file_is_named_as_the_option_of_the_harness(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("order = ['x']\n[roles.x]\nacts = true")
    chat = Chat(new_tokenizer(find(CRAFT), seed=0))
    assert build_agent(f"team?of={file}", chat, find(CRAFT)()) == Together(chat, of=str(file))


def test_the_harness_puts_the_team_around_what_it_acts_in() -> None:
    chat = Chat(new_tokenizer(find(CRAFT), seed=0))
    assert isinstance(Together(chat, of="planner").equip(find(CRAFT)()), TeamWorld)
    assert isinstance(Together(chat, of="negotiation").equip(Deal()), UnshownTeamWorld)
    with pytest.raises(UsageError, match="team: got 'nobody'"):
        Together(chat, of="nobody")


def test_a_world_with_seats_of_its_own_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"a team: got twocards, which has seats of its own \(A, B\), each with .*--seats"
    ):
        TeamWorld(find("twocards")(), read_team("debate"))
    assert TeamWorld(find("twocards?partner=scripted")(), read_team("debate")).seats() == (
        "first",
        "second",
        "judge",
    )


class Secrets(Environment):
    """Each role is told something of its own; the last word ends it."""

    def task(self, split: Split, index: int) -> Task:
        """Return a task whose data tells each role a canary."""
        return replace(
            super().task(split, index), data={f"of_{name}": f"canary {name}{name}" for name in ROLES}
        )

    def reset(self, task: Task) -> str:
        """Begin."""
        return "Say a word."

    def step(self, action: Action) -> StepResult:
        """Take it."""
        return StepResult(observation="Heard.", is_terminated=True, is_success=True, reward=1.0)

    def expert_action(self) -> Action:
        """Return a word."""
        return Action(text="word")


def test_what_each_alone_knows_stands_in_nobody_elses_prompt(tmp_path: Path) -> None:
    """A canary for each pair of seats, over prompts as a policy reads them, with everybody hearing everybody."""
    lines = [f"order = {list(ROLES)}", "rounds = 3"]
    for name in ROLES:
        sees = ["task", "world", f"data.of_{name}", *(each for each in ROLES if each != name)]
        lines += [f"[roles.{name}]", f"sees = {sees}", "acts = true" if name == "d" else ""]
    (tmp_path / "secrets.toml").write_text("\n".join(lines))
    chat = Chat(new_tokenizer(Secrets, seed=0))
    rollout = Rollout(Together(chat, of=str(tmp_path / "secrets.toml")), Secrets, None)
    try:
        groups = rollout.demonstrations(
            [Secrets().task("train", index) for index in range(3)], noisy(0.0), seed=0
        )
    finally:
        rollout.close()
    prompts = [
        (turn.speaker, chat.text(turn.prompt_ids)) for g in groups for t in g.scored for turn in t.turns
    ]
    assert len(prompts) == 3 * (3 * 3 + 1)
    for owner, reader in product(ROLES, ROLES):
        shown = [f"canary {owner}{owner}" in text for speaker, text in prompts if speaker == reader]
        assert shown and all(shown) is (owner == reader) and any(shown) is (owner == reader), (owner, reader)


@pytest.mark.parametrize("name", ["debate", "planner", "verified"])
def test_partners_that_never_answer_end_with_the_turns(name: str) -> None:
    world = TeamWorld(find(CRAFT)(), read_team(name))
    begin(world, world.task("train", 0))
    results = [world.step(Action(text="")) for _ in range(world.max_turns)]
    assert not any(result.is_valid or result.is_terminated or result.is_success for result in results)
    assert [result.is_truncated for result in results] == [False] * (world.max_turns - 1) + [True]


@pytest.mark.parametrize(
    ("seats", "says"),
    [
        (
            {"planner": "nobody"},
            r"seats.planner: got 'nobody', which is no policy of this run; give one of policy",
        ),
        ({"planer": "policy"}, r"seats: got 'planer' in environment craft.*; its seats are planner, worker"),
    ],
)
def test_a_seat_without_a_policy_is_refused(seats: dict[str, str], says: str) -> None:
    told = {"environment": CRAFT, "agent": "team?of=planner", "model": "micro", "seats": seats}
    with pytest.raises(ConfigError, match=says):
        check_run(build(GroupConfig, told, "test"), {})


def test_answers_are_tried_and_taken_back() -> None:
    world = TeamWorld(find("sums?revisions=0&digits=1&slips=0")(), read_team("panel"))
    begin(world, world.task("train", 0))
    right = world.expert_action()
    assert isinstance(world, Snapshot)
    for text, worth in (("no number", 0.0), (right.text, 1.0)):
        seat = world.seat()
        result = world.step(Action(text=text))
        assert (dict(result.reward_terms), result.reward) == ({ANSWER: worth}, 0.0), seat
    for _ in range(2):
        world.step(right)
    assert world.seat() == "judge" and world.step(right).reward_terms == {ANSWER: 1.0}
    with pytest.raises(UsageError, match=r"a team whose roles answer: got .*, which cannot go back"):
        TeamWorld(Secrets(), read_team("panel"))
