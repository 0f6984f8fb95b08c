"""Plans are data that any text edits somehow; the executor is told the plan and nothing else of the planner."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from tests.agents.conftest import Talk

from quintain.agents.harness import Choice, PlainText
from quintain.agents.plan import MOST_STEPS, PLANNER, Plan, PlanAndAct, PlanSession, Step, edit
from quintain.agents.protocol import Brief
from quintain.text.chat import Chat
from quintain.types import Action

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


@given(
    st.text()
    | st.lists(st.sampled_from(["done", "drop", "1", ".", ":", "\n", "add", " x", "99"])).map("".join)
)
def test_any_text_edits_a_plan(text: str) -> None:
    plan = edit(Plan((KEY, DOOR)), text)
    assert len(plan.steps) <= MOST_STEPS
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
        f"<|system|>Go.\n\n{PLANNER}<|user|>A door.\n\nDone so far: left\nPlan so far:\n{plan}\n"
        "Write the plan.<|assistant|>"
    )
    assert talk.says("done 1") == "<|system|>Go.\n\nPlan:\n1. [x] left\n2. right<|user|>A door.<|assistant|>"


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
