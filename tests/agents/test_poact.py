"""A plan, a thought and code take turns; code is shown functions that fit, and is reviewed before it runs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.agents.conftest import Talk

from quintain.agents.code import CodeAct
from quintain.agents.code_world import InCode
from quintain.agents.harness import PlainText
from quintain.agents.library import ActionLibrary
from quintain.agents.poact import QUESTIONS, STAGES, PoAct, PoActSession, choose_functions, choose_policy
from quintain.agents.protocol import Brief, equip
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import begin
from quintain.errors import UsageError
from quintain.memory.bank import Entry
from quintain.rollout.collect import Rollout
from quintain.safety.isolation import find_fault
from quintain.text.chat import Chat
from quintain.types import Action, Score, Task, ToolSpec
from quintain.worlds.calc.game import Calc
from quintain.worlds.guess.game import Guess

Briefs = Callable[..., Brief]
TOOLS = (
    ToolSpec(
        name="open_door", description="Open a door.", parameters={"properties": {"door": {"type": "string"}}}
    ),
    ToolSpec(name="add", description="Add two numbers.", parameters={}),
    ToolSpec(name="walk", description="Walk somewhere.", parameters={}),
)
DOOR, ADD, WALK = (
    "open_door(door: string = ...): Open a door.",
    "add(): Add two numbers.",
    "walk(): Walk somewhere.",
)


def talk_of(chat: Chat, brief: Brief, **options: Any) -> Talk:
    return Talk(chat, PoAct(CodeAct(chat), chat, **options).open(brief))


def user(*lines: str) -> str:
    return "...<|user|>" + "\n".join(lines) + "<|assistant|>"


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def ask(*lines: str) -> str:
    return user(QUESTIONS["code"], *lines)


def test_policies_by_value() -> None:
    assert choose_policy(None, 0, 2) == "plan"
    assert [choose_policy("plan", n, 2) for n in (0, 2)] == ["thought", "thought"]
    assert [choose_policy("thought", n, 2) for n in (0, 2)] == ["code", "code"]
    assert [choose_policy("code", n, 2) for n in range(5)] == [
        "thought",
        "thought",
        "plan",
        "thought",
        "plan",
    ]
    assert [choose_policy("code", n, 1) for n in range(3)] == ["thought", "plan", "plan"]


def test_functions_by_value() -> None:
    entries = [Entry(id=t.name, key=f"{t.name} {t.description}", text="") for t in TOOLS]
    assert [e.id for e in choose_functions("walk to the door", entries, 2)] == ["open_door", "walk"]
    assert [e.id for e in choose_functions("numbers", entries, 3)] == ["add", "open_door", "walk"], "in order"
    assert choose_functions("nothing", entries, 1) == (entries[0],)


def test_a_plan_then_a_thought_then_code_with_the_functions_that_fit(
    small_chat: Chat, brief_of: Briefs
) -> None:
    talk = talk_of(small_chat, brief_of(TOOLS), functions=1, max_tokens=7)
    first = talk.session.observe("A wall.")
    assert (first.role, first.shows, first.sampling.max_tokens) == ("plan", None, 7)
    text = talk.text(first)
    assert text.startswith(f"<|system|>Go.\n\n{STAGES}\n\nWrite Python:")
    assert text.endswith(f"<|user|>A wall.\n\n{QUESTIONS['plan']}<|assistant|>") and "Open a door" not in text
    assert talk.writes(Action(text="left")) == "left", "a demonstration plans its next action"
    thought = talk.prompt_after("I walk.")
    assert thought is not None and talk.action == Action(text="I walk.")
    assert (thought.role, thought.shows, talk.text(thought)) == (
        "thought", QUESTIONS["thought"], user(QUESTIONS["thought"]),
    )  # fmt: skip
    code = talk.prompt_after("A door is to be open.")
    assert code is not None and (code.role, code.sampling.max_tokens) == ("code", 512)
    assert talk.text(code) == ask(DOOR), "door is rarer than what was planned: in the order of the tools"
    assert talk.writes(Action(text="walk()")) == block("walk()")
    assert talk.says(block("walk()")) is None and talk.action == Action(text="walk()"), (
        "not listed, and known"
    )
    assert talk.sees("Far.") == user("Far.", "", QUESTIONS["thought"])
    assert talk.says("Now add, no longer a ...") == ask(ADD), "what was said before counts no more"


def test_a_draft_that_would_fail_is_asked_for_again_with_what_it_meant(
    small_chat: Chat, brief_of: Briefs
) -> None:
    talk = talk_of(small_chat, brief_of(TOOLS), functions=1, reviews=2)
    talk.sees("A door.")
    talk.says("?")
    assert talk.says("?") == ask(DOOR)
    told = "Code: refused before it ran, for line 1: open_door takes 1 arguments: got 2."
    assert talk.says(block("open_door(1, 2)")) == user(told), "the list is the same"
    assert talk.says("no code") == user(
        "Code: refused before it ran, for there is no code: got 'no code'; write ```python CODE ```."
    )
    assert talk.says(block("ad()")) is None, "the third is carried out"
    assert talk.action == Action(text="ad()")
    talk.sees("A door.")
    talk.says("?")
    assert talk.says(block("def ad(): return walk()\nad()")) is None
    talk.sees("Far.")
    talk.says("?")
    assert talk.says(block("ad()")) is None, "what code has bound is known"
    none = talk_of(small_chat, brief_of(TOOLS), reviews=0)
    none.sees("A door.")
    none.says("?")
    none.says("?")
    assert none.says(block("ad()")) is None


def test_a_refused_draft_finds_the_function_that_it_names(small_chat: Chat, brief_of: Briefs) -> None:
    talk = talk_of(small_chat, brief_of(TOOLS), functions=1)
    talk.sees("x")
    talk.says("x")
    assert talk.says("x") == ask(DOOR), "nothing fits: the first"
    assert talk.says(block("walk(1)")) == user(
        "Code: refused before it ran, for line 1: walk takes 0 arguments: got 1.", "Functions:", WALK
    )


def test_failures_in_a_row_lead_to_a_new_plan(small_chat: Chat, brief_of: Briefs) -> None:
    talk = talk_of(small_chat, brief_of(TOOLS), functions=3)
    talk.sees("Error: of what comes before anything is done is no failure.")
    seen: list[str] = []
    for told in (
        "Traceback (most recent call last)\n  ...",
        "fine\nThe code was stopped: it took too long. Its variables are lost.",
        "a line\nError: not readable",
        "an Error: within a line",
        "This is not the answer.",
    ):
        while talk.prompt_after("```python\nwalk()\n```") is not None:
            pass
        seen.append(talk.sees(told).removesuffix("<|assistant|>").rpartition("\n\n")[2])
    plan, thought = QUESTIONS["plan"], QUESTIONS["thought"]
    assert seen == [thought, plan, thought, thought, thought]


def test_kept_functions_are_listed_and_known(small_chat: Chat, brief_of: Briefs) -> None:
    agent = CodeAct(small_chat)
    library = ActionLibrary()
    library.learn(
        Task(id="t/train/0", environment="t", seed=0), ["def turn(n):\n    'Turn round.'\n    return n"], ()
    )
    object.__setattr__(agent, "shelf", library)
    talk = Talk(small_chat, PoAct(agent, small_chat, functions=1).open(brief_of(TOOLS)))
    talk.sees("x")
    talk.says("x")
    assert talk.says("turn around") == ask("turn(n): Turn round.")
    assert talk.says(block("turn(1)")) is None


def test_one_policy_alone_is_the_harness_of_code(small_chat: Chat, brief_of: Briefs) -> None:
    class Always(PoActSession):
        def next_policy(self) -> Any:
            return "code"

    brief = brief_of(TOOLS)
    talk = Talk(small_chat, Always(PoAct(CodeAct(small_chat), small_chat), brief))
    plain = Talk(small_chat, CodeAct(small_chat).open(replace(brief, instructions=f"Go.\n\n{STAGES}")))
    listed = "\n".join((QUESTIONS["code"], DOOR, ADD, WALK))
    for seen in ("A wall.", "A door."):
        assert talk.sees(seen) == plain.sees(f"{seen}\n\n{listed}")
        assert talk.says(block("walk()")) is None and plain.says(block("walk()")) is None
        assert talk.action == plain.action


@pytest.mark.parametrize(
    ("options", "fault"),
    [({"functions": 0}, "functions=0"), ({"patience": 0}, "patience=0"), ({"reviews": -1}, "reviews=-1")],
)
def test_options_that_make_no_sense(small_chat: Chat, options: dict[str, int], fault: str) -> None:
    with pytest.raises(UsageError, match=f"poact: got .*{fault}"):
        PoAct(CodeAct(small_chat), small_chat, **options)
    with pytest.raises(UsageError, match="got PlainText inside, which is no agent that writes code"):
        PoAct(PlainText(small_chat), small_chat)


@pytest.mark.skipif(bool(find_fault()), reason=find_fault())
def test_a_refused_draft_is_no_step_and_functions_are_listed_once(small_chat: Chat) -> None:
    said = iter(["Look.", "Number it.", block("guess(17, 3)"), block("for n in range(1, 33): guess(n)")])
    seen: list[str] = []

    def script(_request: Any, stream: tuple[int, ...]) -> tuple[int, ...]:
        seen.append(small_chat.encoder.decode(stream))
        return small_chat.write(next(said))

    agent = PoAct(CodeAct(small_chat, seconds=30.0), small_chat)
    world = equip(agent, Guess())
    assert isinstance(world, InCode) and not world.lists_functions
    begin(world, world.task("train", 0))
    assert world.instructions() == world.inner.instructions()
    world.close()
    rollout = Rollout(agent, Guess, Scripted(script))
    (group,) = rollout.groups([Guess().task("train", 0)], size=1, seed=0)
    rollout.close()
    (episode,) = group.trajectories
    assert episode.outcome == Score(value=1.0, is_success=True)
    assert [turn.is_internal for turn in episode.turns] == [True, True, True, False]
    assert "guess(number: integer)" not in seen[1] and seen[2].count("guess(number: integer)") == 1
    assert seen[3].endswith("refused before it ran, for line 1: guess takes 1 arguments: got 2.<|assistant|>")


@pytest.mark.skipif(bool(find_fault()), reason=find_fault())
def test_of_many_tools_few_are_listed(small_chat: Chat) -> None:
    world = equip(PoAct(CodeAct(small_chat), small_chat), Calc(phases=2, distractor_tools=100))
    assert len(world.tools()) == 106
    begin(world, world.task("train", 0))
    assert "weight_of_metal" not in world.instructions()
    world.close()
