"""Going back: which states are offered, what it costs and leaves, and that without a critique nothing changes."""

from collections.abc import Iterator
from random import Random

import pytest

from quintain.agents.catalog import build
from quintain.agents.rollback import ACT, CHOOSE, CRITICISE, LEFT, RollbackWorld, is_bad
from quintain.data.searched import follow_found, split_head
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, advance, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Score, StepResult, Task, Trajectory
from quintain.worlds.web.game import Web

TASK = Task(id="stairs/eval/0", environment="stairs", seed=0, split="eval")


class Stairs(Environment):
    """Go to c3. Act: a letter, which leads one step on; a seal cannot be undone."""

    name = "stairs"
    max_turns = 9

    def __init__(self) -> None:
        self.at, self.is_sealed = "", False

    def reset(self, task: Task) -> str:
        self.at, self.is_sealed = "", False
        return "at the door"

    def step(self, action: Action) -> StepResult:
        self.is_sealed = action.text == "seal"
        if action.text == "?":
            return StepResult(observation="nothing", is_valid=False)
        self.at += action.text[0]
        is_done = self.at == "abc"
        return StepResult(
            observation=f"at {self.at}",
            reward=0.5 if action.text == "b" else 0.0,
            is_terminated=is_done,
            is_success=is_done,
        )

    def can_go_back(self) -> bool:
        return not self.is_sealed

    def snapshot(self) -> str:
        return self.at

    def restore(self, state: str) -> None:
        self.at = state


def play(world: RollbackWorld, actions: str, task: Task = TASK) -> list[tuple[tuple[int, ...], str, float]]:
    """Return for each state that was come to what is on offer with itself last, what is seen and what was paid."""
    observation, reward = begin(world, task), 0.0
    found: list[tuple[tuple[int, ...], str, float]] = []
    for action in [*actions.split(" / "), ""]:
        what, numbers, shown = split_head(observation)
        assert (what == "back") == bool(found), "what is seen first has no head: it is the task's"
        found.append((numbers or (0,), str(shown), reward))
        if action:
            result = advance(world, Action(text=action))
            observation, reward = result.observation, result.reward
    return found


def test_any_state_on_the_way_is_gone_back_to_and_what_it_paid_is_taken_back() -> None:
    found = play(RollbackWorld(Stairs()), "a / b / x / goto 1: a wall / c / goto 0: lost / a")
    assert [numbers for numbers, _, _ in found] == [
        (0,),
        (0, 1),
        (0, 1, 2),
        (0, 1, 2, 3),
        (0, 1),
        (0, 1, 4),
        (0,),
        (0, 5),
    ]
    assert found[4][1] == f"at a\n\n{LEFT}b > x: a wall" and found[4][2] == -0.5
    assert found[5][1] == "at ac"
    assert found[6][1] == f"at the door\n\n{LEFT}a > c: lost"
    assert sum(reward for *_, reward in found) == 0.0
    assert found[7][1] == "at a", "another visit of the same place is another state"


def test_notes_add_up_and_stay_with_what_is_seen() -> None:
    found = play(RollbackWorld(Stairs()), "x / goto 0: one / y / goto 0: two / ?")
    assert found[4][1] == f"at the door\n\n{LEFT}x: one; y: two"
    assert found[5] == ((0,), f"nothing\n\n{LEFT}x: one; y: two", 0.0), "what cannot be done leads nowhere"


def test_what_is_not_offered_is_an_error_and_counts() -> None:
    world = RollbackWorld(Stairs())
    found = play(world, "a / goto 1: here / goto 7")
    assert [seen for _, seen, _ in found[2:]] == [
        "at a\n\nError: goto 1: there are 0.",
        "at a\n\nError: goto 7: there are 0.",
    ]
    result = advance(world, Action(text="goto 9"))
    assert not result.is_valid and result.is_success is False


def test_states_before_what_cannot_be_undone_are_offered_no_more() -> None:
    found = play(RollbackWorld(Stairs()), "a / b / seal / x")
    assert [numbers for numbers, _, _ in found] == [(0,), (0, 1), (0, 1, 2), (3,), (3, 4)]


def open_site(seed: int = 3, **options: object) -> tuple[Web, Task]:
    site = Web(labels="vague", depth=3, kinds=3, goal="open", popups=0, **options)  # pyright: ignore[reportArgumentType]
    return site, site.task("train", seed)


def test_a_site_goes_back_by_itself_as_many_pages_as_one_action() -> None:
    inner, task = open_site()
    world = RollbackWorld(inner)
    found = play(world, "click section 1", task)
    onward = str(found[-1][1]).partition("links: ")[2].split(", ")[0]
    found = play(world, f"click section 1 / click {onward} / goto 0: no / click section 2 / back", task)
    assert [numbers for numbers, *_ in found] == [(0,), (0, 1), (0, 1, 2), (0,), (0, 3), (0,)]
    assert found[3][1].startswith("home:") and f"{LEFT}click section 1 > click {onward}: no" in found[3][1]
    assert f"click {onward}: no; click section 2" in found[5][1], "its own back leaves a branch, too"
    assert world.snapshot()[0][-1][1] == 5, "two clicks, back, a click, back: five actions"


def test_behind_a_pop_up_the_page_is_gone_back_to_and_not_the_pop_up() -> None:
    inner = Web(depth=3, kinds=2, goal="open", popups=0.99, dead_ends=0)
    world, task = RollbackWorld(inner), inner.task("train", 1)
    begin(world, task)
    offers = dict[str, list[str]]()
    page = ""
    while not page.startswith(("small", "large")):
        result = advance(world, inner.expert_action())
        page = str(split_head(result.observation)[2]).split(":")[0]
        offers[page] = [str(each.observation).split(":")[0] for each in world.list_offered()]
    assert offers["pop-up"] == [], "while a pop-up is open nothing is on offer"
    assert offers[page] == ["Task", page.split()[-1]], "home as it was first seen, and the list of kinds"
    advance(world, Action(text=f"goto {world.list_offered()[-1].number}"))
    assert inner.snapshot()[1] == ("home", page.split()[-1]), "one page back"


def test_the_index_is_always_of_a_visited_state() -> None:
    rng, told = Random(0), 0
    for seed in range(40):
        inner, task = open_site(seed)
        world, visited = RollbackWorld(inner), {0}
        observation = begin(world, task)
        for _ in range(25):
            _, heads, _ = split_head(observation)
            numbers = heads or (0,)
            assert set(numbers[:-1]) <= visited and numbers[-1] == max(numbers)
            visited.add(numbers[-1])
            keys = {each.number: str(each.observation) for each in world.list_offered()}
            goes = bool(keys) and rng.random() < 0.3
            chosen = rng.choice([*keys]) if goes else 0
            action = (
                f"goto {chosen}"
                if goes
                else rng.choice([a for a in inner.possible() if a != inner.expert_action().text])
            )
            result = advance(world, Action(text=action))
            observation = result.observation
            if result.is_over:
                break
            if goes:
                told += 1
                assert str(split_head(observation)[2]).startswith(keys[chosen].rpartition(". ")[2]), (
                    "it is where it said"
                )
    assert told > 100


def test_an_expert_s_way_back_is_a_choice_of_a_state() -> None:
    inner, task = open_site()
    world = RollbackWorld(inner)
    begin(world, task)
    gone = list[str]()
    is_success: bool | None = None
    while is_success is None or len(gone) < 30:
        action = world.expert_action()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        gone.append(str(action.text))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        result = advance(world, Action(text=gone[-1]))
        is_success = result.is_success
        if result.is_over:
            break
    assert is_success and not any(action.startswith("back") for action in gone)
    assert any(action.startswith("goto ") for action in gone)


def test_places_where_nobody_can_go_back_are_refused() -> None:
    class Plain(Environment):
        """Nothing."""

        def reset(self, task: Task) -> str:
            return ""

        def step(self, action: Action) -> StepResult:
            return StepResult(observation="", is_terminated=True)

    with pytest.raises(UsageError, match=r"cannot go back; give it snapshot\(\) and restore"):
        RollbackWorld(Plain())
    with pytest.raises(UsageError, match="several seats; take another agent"):
        RollbackWorld(find("twocards")())


def collect(chat: Chat, spec: str, said: Iterator[str]) -> Trajectory:
    engine = Scripted(lambda request, stream: chat.write(next(said)), chat.tokenizer)
    rollout = Rollout(build(spec, chat, Stairs()), Stairs, engine)
    (group,) = rollout.groups([TASK], size=1, seed=0)
    rollout.close()
    return group.trajectories[0]


def test_a_state_is_criticised_then_left_for_the_one_that_is_named(
    small_chat: Chat,
) -> None:
    chat = small_chat
    said = ["x", "bad: a wall", "0", "a", "good so far", "b", "Bad.", "none", "c"]
    found = collect(chat, "rollback+text", iter(said))
    assert isinstance(found.outcome, Score) and found.is_success and found.outcome.value == 0.5
    turns = [(turn.seat.partition("/")[2], turn.action.text) for turn in found.turns]
    assert turns == [
        ("", "x"), ("critique", "bad: a wall"), ("", "goto 0: bad: a wall"), ("", "a"), ("critique", "good so far"),
        ("", "b"), ("critique", "Bad."), ("choice", "none"), ("", "c"),
    ]  # fmt: skip
    prompts = [str(chat.tokenizer.decode(list(turn.prompt_ids))) for turn in found.turns]
    assert CRITICISE in prompts[1] and CRITICISE not in prompts[0]
    assert CHOOSE in prompts[2] and "0: at the door" in prompts[2]
    assert f"{LEFT}x: bad: a wall" in prompts[3] and ACT in prompts[5] and ACT in prompts[8]
    assert "0: at the door" in prompts[7] and "2: at a" in prompts[7]
    assert not any("[search" in prompt for prompt in prompts)
    assert not any("[search" in str(turn.observation) for turn in follow_found(found).turns)


def test_where_nothing_is_bad_actions_are_those_of_the_harness_inside(
    small_chat: Chat,
) -> None:
    chat = small_chat
    found = collect(chat, "rollback+text", iter(["a", "good", "b", "good", "c"]))
    plain = collect(chat, "text", iter("abc"))
    acts = [turn for turn in found.turns if not turn.is_internal]
    assert [t.completion.token_ids for t in acts] == [t.completion.token_ids for t in plain.turns]
    assert found.outcome == plain.outcome


def test_a_state_that_is_not_on_offer_is_none(small_chat: Chat) -> None:
    found = collect(small_chat, "rollback+text", iter(["a", "bad", "7", "b", "bad", "the door", "c"]))
    assert [turn.action.text for turn in found.turns if not turn.is_internal] == ["a", "b", "c"]


def test_an_expert_criticises_chooses_and_goes_back(small_chat: Chat) -> None:
    make = find("web?labels=vague&depth=2&kinds=3&goal=open&popups=0")
    engine = Scripted(lambda request, stream: (), small_chat.tokenizer)
    rollout = Rollout(build("rollback+text", small_chat, make()), make, engine)
    groups = rollout.demonstrations([make().task("train", k) for k in range(4)], noisy(0.0), seed=0)
    rollout.close()
    went = 0
    for found in (group.trajectories[0] for group in groups):
        assert found.is_success
        said = [(turn.seat.partition("/")[2], turn.action.text) for turn in found.turns]
        critiques = [text for role, text in said if role == "critique"]
        goes = [number for number, (_, text) in enumerate(said) if text.startswith("goto")]
        assert [said[k] for k in goes] == [("", "goto 0: bad")] * len(goes), (
            "the only page there is to go back to"
        )
        assert [said[k - 1] for k in goes] == [("critique", "bad")] * len(goes) and critiques.count(
            "bad"
        ) == len(goes)
        went += len(goes)
    assert went > 2


def test_a_demonstration_stays_with_what_it_said_of_a_state(small_chat: Chat) -> None:
    """Who errs now and then is asked for each turn anew, and may not say good and go back, or bad and go on."""
    make = find("web?labels=vague&depth=2&kinds=3&goal=open&popups=0")
    engine = Scripted(lambda request, stream: (), small_chat.tokenizer)
    rollout = Rollout(build("rollback+choice", small_chat, make()), make, engine)
    groups = rollout.demonstrations([make().task("train", k) for k in range(6)], noisy(0.5), seed=0)
    rollout.close()
    for found in (group.trajectories[0] for group in groups):
        said = [(turn.seat.partition("/")[2], turn.action.text) for turn in found.turns]
        before = [said[k - 1] for k, (_, text) in enumerate(said) if text.startswith("goto")]
        assert before == [("critique", "bad")] * len(before)
        assert [("critique", "bad")] * len(before) == [each for each in said if each == ("critique", "bad")]


@pytest.mark.parametrize(
    ("text", "bad"), [(" Bad: x", True), ("badly", True), ("good, not bad", False), ("", False)]
)
def test_critiques_are_read(text: str, bad: bool) -> None:
    assert is_bad(text) == bad
