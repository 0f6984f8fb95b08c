"""Plans are data that any text edits somehow; the executor is told the plan and nothing else of the planner."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.conftest import Talk

from quintain.agents.catalog import build
from quintain.agents.deliberation import TASK
from quintain.agents.harness import Choice, PlainText
from quintain.agents.plan import (
    MAX_STEPS,
    PLANNER,
    Plan,
    PlanAndAct,
    PlanSession,
    Step,
    edit,
    verbs,
    whole_plan,
)
from quintain.agents.protocol import Brief
from quintain.agents.rci import ACCEPTED, CRITICISE, IMPROVE
from quintain.environments.baselines import foreseen
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Completion, ToolCall, flatten_scored
from quintain.warm_start.start import make_start
from quintain.worlds.house.game import House

Briefs = Callable[..., Brief]
KEY, DOOR, FLAG = Step("take the key"), Step("open the door"), Step("reach the flag")


def test_a_plan_as_text_and_back() -> None:
    plan = Plan((Step("take the key", True), DOOR))
    assert plan.text == "1. [x] take the key\n2. open the door"
    assert edit(Plan(), "Well:\n 1. take the key\n2) open the door\n") == Plan((KEY, DOOR))
    assert edit(plan, "3. reach the flag") == Plan((Step("take the key", True), FLAG))


def test_single_steps_are_edited_by_their_numbers() -> None:
    plan = Plan((KEY, DOOR, FLAG))
    assert edit(plan, "done 1\ndrop 2") == Plan((Step("take the key", True), FLAG))
    assert edit(plan, "Change 3: wait\nadd: rest") == Plan((KEY, DOOR, Step("wait"), Step("rest")))
    assert edit(plan, "drop 9\nadd:\nchange 1:\ndrop") == plan
    assert edit(plan, "keep") == edit(plan, "") == plan
    assert edit(plan, "drop 1\ndrop 2\ndrop 3") == Plan()
    assert edit(Plan(), "\n just go \n on") == Plan((Step("just go"),))


def test_a_plan_written_anew_with_its_ticks_is_that_plan() -> None:
    plan = Plan((Step("take the key", True), DOOR))
    assert edit(plan, plan.text) == edit(edit(plan, plan.text), plan.text) == plan
    ticked = "1. [x] take the key\n2. [x] open the door\n3. [ ] reach the flag"
    assert edit(plan, ticked) == Plan((Step("take the key", True), Step("open the door", True), FLAG))
    assert edit(plan, "1. [X] open the door") == Plan((Step("open the door", True),))
    assert edit(plan, "1. take the key\n2. reach the flag") == Plan((Step("take the key", True), KEY, FLAG))


STEPS = st.builds(Step, st.text("abx[] .1", min_size=1).map(str.strip).filter(bool), st.booleans())


@given(st.lists(STEPS, max_size=MAX_STEPS).map(tuple).map(Plan), st.text("abx[] .1:\n", max_size=40))
def test_any_plan_is_itself_when_it_is_written_anew(plan: Plan, text: str) -> None:
    plan = edit(plan, text)  # as models write plans: no step begins with a box of its own
    plan = edit(Plan(), plan.text)
    assert edit(plan, plan.text) == plan


@given(
    st.text()
    | st.lists(st.sampled_from(["done", "drop", "1", ".", ":", "\n", "add", " x", "99"])).map("".join)
)
def test_any_text_edits_a_plan(text: str) -> None:
    plan = edit(Plan((KEY, DOOR)), text)
    assert len(plan.steps) <= MAX_STEPS
    assert all(step.text and "\n" not in step.text for step in plan.steps)


def test_golden_prompts_of_planner_and_executor(small_chat: Chat, brief_of: Briefs) -> None:
    agent = PlanAndAct(PlainText(small_chat), small_chat, replan_every=1, max_tokens=64)
    session = agent.open(brief_of())
    talk = Talk(small_chat, session)
    prompt = session.observe("A wall.")
    assert (prompt.role, prompt.sampling.max_tokens) == ("plan", 64)
    assert talk.text(prompt) == f"<|system|>Go.\n\n{PLANNER}<|user|>A wall.\n\nWrite the plan.<|assistant|>"
    assert talk.writes(Action(text="left")) == "1. left"
    plan = "1. left\n2. right"
    assert talk.says(plan) == f"<|system|>Go.\n\nPlan:\n{plan}<|user|>A wall.<|assistant|>"
    assert talk.writes(Action(text="left")) == "left"
    assert talk.says("left") is None
    assert talk.action == Action(text="left")
    assert talk.sees("A door.") == (
        f"<|system|>Go.\n\n{TASK}\nA wall.\n\n{PLANNER}<|user|>A door.\n\nDone so far: left\nPlan so far:\n{plan}\n"
        "Write the plan.<|assistant|>"
    )
    told = f"<|system|>Go.\n\nPlan:\n1. [x] left\n2. right\n\n{TASK}\nA wall.<|user|>A door.<|assistant|>"
    assert talk.says("done 1") == told


def test_a_plan_stays_unless_it_is_to_be_revised(small_chat: Chat, brief_of: Briefs) -> None:
    session = PlanAndAct(Choice(small_chat), small_chat).open(brief_of(legal=("left", "right")))
    talk = Talk(small_chat, session)
    talk.sees("A wall.")
    assert talk.says("1. right") is not None
    assert talk.says("left") is None
    assert talk.sees("A door.") == "...<|user|>A door.<|assistant|>"
    talk.says("right")
    assert isinstance(session, PlanSession)
    session.plan = Plan()  # a plan that was taken away from outside is made anew
    assert "Done so far: left; right" in talk.sees("A door.")


def test_an_edited_plan_changes_what_comes_next_and_an_untouched_one_nothing(
    small_chat: Chat, brief_of: Briefs
) -> None:
    agent = PlanAndAct(PlainText(small_chat), small_chat)
    sessions = [agent.open(brief_of()) for _ in range(3)]
    talks = [Talk(small_chat, session) for session in sessions]
    for talk in talks:
        talk.sees("A wall.")
        assert talk.says("1. left") == "<|system|>Go.\n\nPlan:\n1. left<|user|>A wall.<|assistant|>"
        talk.says("left")
    for session, plan in zip(sessions[:2], (Plan((Step("wait"),)), Plan((Step("left"),))), strict=True):
        assert isinstance(session, PlanSession)
        if session.plan != plan:
            session.plan = plan
    edited, equal, untouched = (talk.sees("A door.") for talk in talks)
    assert edited == f"<|system|>Go.\n\nPlan:\n1. wait\n\n{TASK}\nA wall.<|user|>A door.<|assistant|>"
    assert equal == untouched == "...<|user|>A door.<|assistant|>"


def test_a_plan_that_is_edited_as_soon_as_it_is_written_is_the_one_that_is_told(
    small_chat: Chat, brief_of: Briefs
) -> None:
    session = PlanAndAct(PlainText(small_chat), small_chat).open(brief_of())
    assert isinstance(session, PlanSession)
    session.observe("A wall.")
    session.read(Completion(token_ids=small_chat.write("1. left"), logprobs=(), stop="stop"))
    session.plan = Plan((Step("wait"),))
    prompt = session.more()
    assert prompt is not None and "1. wait" in small_chat.text(prompt.token_ids)
    assert session.more() is None


def test_a_plan_is_revised_so_many_times_at_most(small_chat: Chat, brief_of: Briefs) -> None:
    agent = PlanAndAct(PlainText(small_chat), small_chat, replan_every=1, max_replans=1, max_tokens=64)
    talk = Talk(small_chat, agent.open(brief_of()))
    asked: list[bool] = []
    for _ in range(4):
        asked.append("Write the plan." in talk.sees("A wall."))
        if asked[-1]:
            talk.says("1. left")
        talk.says("left")
    assert asked == [True, True, False, False]


def test_a_whole_plan_says_calls_or_verbs() -> None:
    did = [Action(text="go to fridge"), Action(text="go to sink"), Action(text="clean"), Action(text="clean")]
    plan = whole_plan(did, names=True)
    assert plan.text == "1. go(to fridge)\n2. go(to sink)\n3. clean()"
    assert whole_plan(did, names=False).text == "1. go\n2. clean"
    assert verbs(plan) == {"go", "clean"} == verbs(edit(Plan(), "1. go home\n2. clean"))
    call = Action(text="…", tool_calls=(ToolCall(name="buy", arguments={"item": "tea", "number": 2}),))
    assert whole_plan([call], names=True).text == "1. buy(tea, 2)"
    assert len(whole_plan([Action(text=f"go {k}") for k in range(40)], names=True).steps) == MAX_STEPS


@pytest.mark.parametrize(
    ("said", "first"), [("next", "1. go to fridge"), ("calls", "1. go(to fridge)\n"), ("verbs", "1. go\n2. ")]
)
def test_a_demonstrated_plan_says_what_the_expert_will_do(said: str, first: str) -> None:
    make = find("house?things=0&kind=put")
    _, tokenizer = make_start("micro", make, seed=0)
    chat = Chat(tokenizer)
    agent = build(f"plan?demonstrates={said}", chat, make(), max_tokens=64)
    rollout = Rollout(agent, make, None)
    try:
        groups = rollout.demonstrations([make().task("train", k) for k in range(3)], noisy(0.0), seed=1)
    finally:
        rollout.close()
    for episode in flatten_scored(groups):
        assert episode.is_success and [turn.is_internal for turn in episode.turns[:2]] == [True, False]
        assert episode.turns[0].action.text.startswith(first)
        acted = [turn.action for turn in episode.turns[1:]]
        if said == "calls":
            assert episode.turns[0].action.text == whole_plan(acted, names=True).text
        if said == "verbs":
            assert not any(word in episode.turns[0].action.text for word in ("fridge", "sink", "table"))


def test_what_an_expert_will_do_changes_nothing_and_needs_snapshots() -> None:
    house = House(things=0, kind="put")
    begin(house, house.task("train", 0))
    before = house.state_key()
    found = foreseen(house)
    assert house.state_key() == before and found[0] == house.expert_action() and found[-1].text == "put"
    with pytest.raises(UsageError, match="lacks an expert or snapshots"):
        foreseen(find(f"{__file__}:Mute")())


class Mute(Environment):
    """Says nothing."""


def test_an_executor_that_does_not_see_the_task_sees_the_plan(small_chat: Chat, brief_of: Briefs) -> None:
    session = PlanAndAct(PlainText(small_chat), small_chat, sees_task=False, max_tokens=64).open(brief_of())
    talk = Talk(small_chat, session)
    assert "A wall." in talk.sees("A wall.")
    assert talk.says("1. left") == "<|system|>Go.\n\nPlan:\n1. left<|user|>Begin.<|assistant|>"
    talk.says("left")
    assert talk.sees("A door.") == "...<|user|>A door.<|assistant|>"


def test_a_plan_is_criticised_before_anyone_acts_on_it(small_chat: Chat, brief_of: Briefs) -> None:
    agent = PlanAndAct(PlainText(small_chat), small_chat, critiques=2, replan_every=1)
    session = agent.open(brief_of())
    assert isinstance(session, PlanSession)
    talk = Talk(small_chat, session)
    talk.sees("A wall.")
    critique = talk.prompt_after("1. left")
    assert critique is not None
    assert (critique.role, critique.shows, critique.starts_segment) == ("critique", CRITICISE, False)
    assert talk.text(critique) == f"...<|user|>{CRITICISE}<|assistant|>"
    assert session.plan == Plan(), "what is criticised is no plan yet"
    assert talk.writes(Action(text="left")) == ACCEPTED
    better = talk.prompt_after("There is a wall.")
    assert better is not None and (better.role, better.shows) == ("plan", IMPROVE)
    assert talk.says("1. right") == f"...<|user|>{CRITICISE}<|assistant|>", (
        "the better one is criticised, too"
    )
    told = talk.says(f"{ACCEPTED}.")
    assert told is not None and "Plan:\n1. right" in told and session.plan == Plan((Step("right"),))
    assert talk.says("right") is None
    assert "Plan so far:\n1. right" in talk.sees("A door.")
    assert talk.says("1. on") is not None and talk.says("Hm.") is not None and talk.says("1. on") is not None
    assert talk.says("Hm.") is not None
    last = talk.says("1. back")
    assert last is not None and "Plan:\n1. back" in last, (
        "of two critiques none is left: the last draft is the plan"
    )


@pytest.mark.parametrize("options", [{"critiques": -1}, {"critiques": 1, "actor": "scripted"}])
def test_a_plan_that_is_none_is_not_criticised(small_chat: Chat, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="critiques="):
        PlanAndAct(PlainText(small_chat), small_chat, **options)
