"""A workflow is read or refused with a reason, and a harness goes through it block by block."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief, Prompt
from quintain.agents.workflow import Follow, Workflow, follow_workflow, read_workflow
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Completion, Task

SHOP = """\
Ask ::: process ::: Ask for the name. ::: next: Check

Check ::: Decision ::: Is it theirs? ::: yes: do; no: REFUSE
Do ::: process ::: Do it. ::: next: Ask
Refuse ::: terminal ::: Refuse, and say why. :::"""


def test_lines_become_blocks_whatever_their_case() -> None:
    flow = read_workflow(SHOP)
    assert list(flow.blocks) == ["ask", "check", "do", "refuse"] and flow.first.says == "Ask for the name."
    assert flow.blocks["check"].ways == {"yes": "do", "no": "refuse"}
    assert read_workflow(flow.text) == flow
    check = flow.blocks["check"]
    assert flow.pass_on(flow.first).name == "check"
    assert flow.pass_on(check, "Yes, it is.").name == "do" and flow.pass_on(check, "no").name == "refuse"
    assert flow.pass_on(check, "nobody knows").name == "refuse", "what names no key takes the last way"
    assert flow.pass_on(flow.blocks["refuse"], "yes").name == "refuse", "a terminal stays"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "0 blocks"),
        ("A ::: process ::: x", "a, a process with 0 ways on; give it one way on"),
        ("A ::: process ::: x ::: next: A; other: A", "a process with 2 ways"),
        ("A ::: decision ::: x ::: yes: B\nB ::: terminal ::: y", "a decision with 1 ways"),
        ("A ::: terminal ::: x ::: next: A", "a terminal with 1 ways"),
        ("A ::: terminal ::: x\na ::: terminal ::: y", "a twice"),
        ("A ::: process ::: x ::: next: B", "a, which goes on to 'b'"),
        ("A ::: terminal ::: x\nB ::: terminal ::: y", "b, which is never reached"),
        ("A ::: process ::: x ::: next: A", "a, from which no terminal is reached"),
        (
            "A ::: decision ::: x ::: y: A; n: B\nB ::: terminal ::: z",
            "a, a decision that comes back without an action",
        ),
        ("A ::: loop ::: x ::: next: A", "a of type 'loop'"),
        ("A -> B", "line 1 with 1 parts"),
        ("A ::: decision ::: x ::: y: B; y: B\nB ::: terminal ::: z", "a with the way 'y: B'"),
        ("A ::: terminal ::: ", "line 1 with no text"),
    ],
)
def test_what_is_no_workflow_is_refused(text: str, fault: str) -> None:
    with pytest.raises(UsageError) as found:
        read_workflow(text)
    assert fault in str(found.value)


def is_sound(kinds: Mapping[str, str], ways: Mapping[str, list[str]]) -> bool:
    """A plain second version: paths of every length are tried one by one."""
    counts = {"process": lambda n: n == 1, "decision": lambda n: n > 1, "terminal": lambda n: n == 0}
    if any(not counts[kinds[name]](len(ways[name])) for name in kinds):
        return False
    if any(to not in kinds for own in ways.values() for to in own):
        return False

    def after(name: str, only: str) -> set[str]:
        ends = {name}
        seen = set[str]()
        for _ in range(len(kinds) + 1):
            ends = {to for end in ends if only in ("", kinds[end]) for to in ways[end]}
            seen |= ends
        return seen

    first = next(iter(kinds))
    if {first} | after(first, "") != set(kinds):
        return False
    if any(all(kinds[each] != "terminal" for each in {name} | after(name, "")) for name in kinds):
        return False
    return not any(kinds[name] == "decision" and name in after(name, "decision") for name in kinds)


def test_5000_drawn_graphs_are_accepted_or_refused_as_they_should() -> None:
    rng, num_sound = Random(0), 0
    for _ in range(5000):
        names = [f"b{k}" for k in range(rng.randint(1, 4))]
        kinds = {name: rng.choice(("process", "decision", "terminal")) for name in names}
        wanted = {"process": 1, "decision": 2, "terminal": 0}
        ends = [*names, "b9"] if rng.random() < 0.1 else names
        counts = {name: wanted[kind] if rng.random() < 0.95 else 1 for name, kind in kinds.items()}
        ways = {name: [rng.choice(ends) for _ in range(count)] for name, count in counts.items()}
        lines = [
            f"{name} ::: {kinds[name]} ::: do {name} ::: "
            + "; ".join(f"k{n}: {to}" for n, to in enumerate(ways[name]))
            for name in names
        ]
        try:
            flow: Workflow | None = read_workflow("\n".join(lines))
        except UsageError:
            flow = None
        assert (flow is not None) == is_sound(kinds, ways), lines
        num_sound += flow is not None
        if (
            flow is not None
        ):  # whoever answers what: an action comes at least once in as many turns as there are blocks
            block, waits = flow.first, 0
            for _ in range(40):
                waits = waits + 1 if block.kind == "decision" else 0
                assert waits <= len(names)
                block = flow.pass_on(block, rng.choice(("k0", "k1", "?")))
    assert 300 < num_sound < 4000


def read_prompt(chat: Chat, prompt: Prompt | None) -> str:
    assert prompt is not None
    return chat.text(prompt.token_ids)


def answer(chat: Chat, text: str) -> Completion:
    return Completion(token_ids=chat.write(text), logprobs=(), stop="stop")


def test_a_session_acts_at_processes_and_answers_at_decisions(tmp_path: Path, small_chat: Chat) -> None:
    file = tmp_path / "flow.txt"
    file.write_text(SHOP)
    agent = Follow(PlainText(small_chat), small_chat, file=str(file))
    session = agent.open(Brief(task=Task(id="t", environment="e", seed=0), instructions="Help."))
    first = session.observe("Hello.")
    assert "Hello.\n\nStep: Ask for the name." in read_prompt(small_chat, first) and first.role == ""
    assert session.read(answer(small_chat, "say name")).text == "say name" and session.more() is None
    second = session.observe("I am Kim.")
    assert second.role == "decision" and second.sampling.max_tokens == 8
    assert "Decide: Is it theirs? Answer with one word: yes, no." in read_prompt(small_chat, second)
    session.read(answer(small_chat, "no"))
    third = session.more()
    assert third is not None and third.role == ""
    assert "Step: Refuse, and say why." in read_prompt(small_chat, third)
    assert session.read(answer(small_chat, "refuse")).text == "refuse" and session.more() is None
    again = session.observe("I see.")
    assert "Step: Refuse, and say why." in read_prompt(small_chat, again), "a terminal holds until the end"
    assert follow_workflow(PlainText(small_chat), small_chat, read_workflow(SHOP)).flow == agent.flow


def test_without_a_workflow_nothing_is_added_and_no_file_is_an_error(small_chat: Chat) -> None:
    brief = Brief(task=Task(id="t", environment="e", seed=0), instructions="Help.")
    plain, around = (PlainText(small_chat), Follow(PlainText(small_chat), small_chat))
    assert around.open(brief).observe("Hello.").token_ids == plain.open(brief).observe("Hello.").token_ids
    with pytest.raises(UsageError, match="which is no file"):
        Follow(plain, small_chat, file="nowhere.txt")
