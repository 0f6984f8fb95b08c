"""A generated interface adds text, and whatever cheats is refused with one line, or stopped by the sandbox."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.conftest import Talk

from quintain.agents import interface as module
from quintain.agents.harness import PlainText
from quintain.agents.interface import (
    Interface,
    Interfaced,
    Step,
    check_source,
    check_steps,
    load_interface,
    put_interface,
)
from quintain.agents.protocol import Brief
from quintain.errors import UsageError
from quintain.safety.isolation import find_fault
from quintain.text.chat import Chat
from quintain.types import Task, Text

isolated = pytest.mark.skipif(bool(find_fault()), reason=find_fault())
HONEST = '''
KNOWN = {"open": "knock"}


def rules():
    """Say what holds."""
    return "open needs knock first."


def wrap_step(env, action):
    """Say what was lacking."""
    observation, reward, done = env.step(action)
    for verb, need in sorted(KNOWN.items()):
        if action.startswith(verb) and observation.startswith("Nothing"):
            observation += f" {verb} needs {need} first."
    return observation, reward, done
'''
RULES = 'def rules():\n    """Say."""\n    return ""\n\n\ndef wrap_step(env, action):\n    """Say."""\n'
STEP = "    observation, reward, done = env.step(action)\n"
END = "    return observation, reward, done\n"


def cheat(body: str, before: str = "") -> str:
    """An interface whose `wrap_step` is `body`, a line or more."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{before}{RULES}{lines}"


READ = {
    "imports": ("return env.step(action)", "import os\n", "got an import in line 1"),
    "imports within": ("import os\nreturn env.step(action)", "", "got an import in line 8"),
    "imports by name": (
        "__import__('os').system('id')\nreturn env.step(action)",
        "",
        "the name '__import__'",
    ),
    "reads the house": ("return env._house, 0.0, False", "", "the hidden attribute '_house' in line 8"),
    "reads the answer": ("return env.answer, 0.0, False", "", "the hidden attribute 'answer'"),
    "reads what is inside": ("return env.inner.expert_action(), 0.0, False", "", "the hidden attribute '"),
    "reads by name": ("return getattr(env, 'answer'), 0.0, False", "", "the name 'getattr'"),
    "reads all": ("return str(vars(env)), 0.0, False", "", "the name 'vars'"),
    "reads by a class": ("return str(().__class__.__mro__), 0.0, False", "", "the hidden attribute '__"),
    "reads by a format": ("return '{0.answer}'.format(env), 0.0, False", "", "the hidden attribute 'format'"),
    "reads frames": ("return wrap_step.__globals__, 0.0, False", "", "the hidden attribute '__globals__'"),
    "reads a file": ("return open('/etc/passwd').read(), 0.0, False", "", "the name 'open'"),
    "writes a file": ("open('/tmp/x', 'w').write('x')\nreturn env.step(action)", "", "the name 'open'"),
    "runs text": ("exec('import os')\nreturn env.step(action)", "", "the name 'exec'"),
    "loops for ever": ("while True:\n    pass", "", "got a loop that may not end in line 8"),
    "sets the reward": ("env.reward = 1\nreturn env.step(action)", "", "the hidden attribute 'reward'"),
    "replaces the step": ("env.step = len\nreturn env.step(action)", "", "the hidden attribute 'step'"),
    "remembers": (
        "global seen\nseen = action\nreturn env.step(action)",
        "",
        "a variable that outlives a step",
    ),
    "computes outside": ("return env.step(action)", "X = [1] * 10\n", "got line 1 outside of a function"),
    "hides in a class": ("return env.step(action)", "class A:\n    pass\n", "got a class in line 1"),
    "hides in a default": (
        "return env.step(action)",
        "def f(x=[]):\n    'F.'\n",
        "f with more than plain arguments",
    ),
    "says nothing of itself": (
        "return env.step(action)",
        "def f(x):\n    return x\n",
        "f without a docstring",
    ),
    "is too long": (
        "return env.step(action)",
        "#" * 121 + "\n",
        "got a line of 121 characters; write 120 at most",
    ),
    "is longer still": ("return env.step(action)", "#\n" * 2000, " characters; write 4000 at most"),
    "is no Python": ("return env.step(", "", "no Python"),
}
"""how it cheats → (its `wrap_step`, what stands before it, what the reason says): refused as it is read"""
PLAYED = {
    "pays itself": (STEP + "    return observation, 1.0, done", "a reward of 1.0 where the environment paid 0.5"),
    "pays now and then": (
        STEP + "    return observation, reward + action.startswith('take'), done",
        "a reward of 1.0 where the environment paid 0",
    ),
    "caps the reward": (
        STEP + "    return observation, min(reward, 1.0), done",
        "a reward of 1.0 where the environment paid 1.5",
    ),
    "ends the episode": (STEP + "    return observation, reward, True", "an end (True)"),
    "never ends": (STEP + "    return observation, reward, False", "an end (False)"),
    "answers itself": ("    return 'Done.', 0.5, False", "carried out nothing, and an answer without the environment"),
    "does more": ("    env.step('look')\n" + STEP + END, "of which it carried out 'look', 'look'"),
    "acts itself": (STEP.replace("action", "'take mug'") + END, "carried out 'take mug'"),
    "mends the action": (STEP.replace("action", "action.upper()") + END, "carried out 'LOOK'"),
    "hides what was seen": (STEP + "    return 'Try again.', reward, done", "without what was seen after 'look'"),
    "tells the reward": (STEP + "    return f'{observation} {reward}', reward, done", "that tells reward or end"),
    "says too much": (STEP + "    return observation + 'x' * 601, reward, done", "601 characters more"),
    "says no text": (STEP + "    return 7", "the answer 7 in the place of"),
    "says text alone": (STEP + "    return observation", "in the place of observation, reward and end"),
    "raises": ("    return [][1]", "a call that raised IndexError"),
    "calls itself": ("    return wrap_step(env, action)", "a call that raised RecursionError"),
    "takes its time": ("    for n in range(10 ** 12):\n        pass\n    return n", "a call that was ended (time)"),
}  # fmt: skip
"""how it cheats → (its `wrap_step`, what the reason says): refused as it is played"""


def brief() -> Brief:
    return Brief(task=Task(id="t/train/0", environment="t", seed=0), instructions="Act.")


@pytest.fixture(scope="module")
def honest() -> Iterator[Interface]:
    made = load_interface(HONEST)
    yield made
    made.close()


@pytest.mark.parametrize("way", READ)
def test_what_reaches_for_more_is_refused_as_it_is_read(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, before, reason = READ[way]
    monkeypatch.setattr(module, "Interface", None)
    source = cheat(body, before)
    with pytest.raises(UsageError) as refused:
        load_interface(source)
    said = str(refused.value)
    assert said.startswith("interface: got ") and reason in said and "\n" not in said and ";" in said


@pytest.mark.parametrize("name", ["rules()", "wrap_step(env, action)"])
def test_both_functions_are_there_with_their_arguments(name: str) -> None:
    for other in (name.replace(")", ", more)"), name.replace("(", "_too(")):
        with pytest.raises(UsageError, match=f"got no function {re.escape(name)}; define it"):
            check_source(HONEST.replace(f"def {name}", f"def {other}".replace("(, ", "(")))


@isolated
@pytest.mark.parametrize("way", PLAYED)
def test_what_changes_an_episode_is_refused_as_it_is_played(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, reason = PLAYED[way]
    monkeypatch.setattr(Interface.__init__, "__kwdefaults__", {"seconds": 0.3 if "time" in way else 60.0})
    source = cheat("") + body + "\n"
    with pytest.raises(UsageError) as refused:
        load_interface(source)
    said = str(refused.value)
    assert said.startswith("interface: got ") and reason in said and "\n" not in said


@isolated
def test_recorded_steps_find_who_cheats_on_them_alone() -> None:
    source = cheat(STEP.strip() + "\nreturn observation, reward + action.count('egg'), done")
    load_interface(source).close()
    with pytest.raises(UsageError, match="a reward of 2"):
        load_interface(source, [Step("take egg", "An egg.", 1.0)])


@isolated
def test_the_sandbox_holds_who_was_not_read(tmp_path: Path) -> None:
    """Without the reading: no names, no files, no environment, and nothing that stays from call to call."""
    target = tmp_path / "written"
    for body, reason in (
        (f"open({str(target)!r}, 'w').write('x')\nreturn env.step(action)", "NameError"),
        ("import os\nreturn env.step(action)", "ImportError"),
        (f"[c for c in ().__class__.__base__.__subclasses__() if 'FileIO' in c.__name__][0]({str(target)!r}, 'w')\n"
         "return env.step(action)", "raised"),
        ("return env.answer, 0.5, False", "AttributeError"),
    ):  # fmt: skip
        made = Interface(cheat(body))
        with pytest.raises(UsageError, match=reason):
            check_steps(made, [])
        made.close()
    assert not target.exists()
    counting = Interface(
        cheat("N.append(1)\n" + STEP.strip() + "\nreturn observation + str(len(N)), reward, done", "N = []\n")
    )
    assert [counting.play(Step("a", "b")).text for _ in range(3)] == ["1", "1", "1"]
    counting.close()


@isolated
def test_an_honest_interface_by_value(honest: Interface) -> None:
    check_source(HONEST)
    assert honest.read_rules() == ("open needs knock first.", "")
    assert honest.explain("open", "Nothing happens. A box.") == "open needs knock first."
    assert honest.explain("look", "Nothing happens.") == "" == honest.explain("open", "An open box.")
    assert honest.play(Step("open 'it'\n", "Nothing; “x”", 0.25, is_done=True)) == (
        "open needs knock first.",
        "",
    )
    check_steps(honest, [Step("open", "Nothing happens.", 0.25), Step("x", "", 1.0, is_done=True)])
    assert not honest.faults


@isolated
def test_where_it_fails_in_an_episode_nothing_is_added_and_it_counts() -> None:
    source = cheat(
        STEP.strip()
        + "\nif action == 'egg':\n    return '', 0.0, done\nreturn observation + '!', reward, done"
    )
    made = load_interface(source)
    assert [made.explain(action, "An egg.") for action in ("look", "egg", "egg")] == ["!", "", ""]
    assert made.faults == {"an observation without what was seen after 'egg'": 2}
    made.close()
    slow = Interface(cheat("for n in range(10 ** 12):\n    pass"), seconds=0.3)
    assert [slow.explain(action, "") for action in ("a", "b")] == ["", ""]
    assert list(slow.faults) == ["a call that was ended (time)", "another call after one that was ended"]


@isolated
def test_a_session_sees_the_added_text_and_acts_as_it_is(small_chat: Chat, honest: Interface) -> None:
    agent = put_interface(PlainText(small_chat), honest)
    talk, plain = Talk(small_chat, agent.open(brief())), Talk(small_chat, PlainText(small_chat).open(brief()))
    assert "A wall.\n\nopen needs knock first." in talk.sees("A wall.") and "needs" not in plain.sees(
        "A wall."
    )
    for said in ("open", "left"):
        assert talk.says(said) is plain.says(said) is None
        assert talk.action == plain.action and talk.action.text == said
        seen = talk.sees("Nothing happens.")
        assert ("Nothing happens.\n\nopen needs knock first." in seen) == (said == "open")
        plain.sees("Nothing happens.")
    picture = agent.open(brief()).observe((Text(text="A wall."),))
    assert small_chat.text(picture.token_ids).count("open needs knock first.") == 1


@isolated
def test_a_file_is_loaded_or_refused(tmp_path: Path, small_chat: Chat) -> None:
    inner = PlainText(small_chat)
    file = tmp_path / "interface.txt"
    file.write_text(HONEST)
    loaded = Interfaced(inner, file=str(file)).interface
    assert loaded is not None and loaded.source == HONEST
    file.write_text(cheat("") + PLAYED["pays itself"][0])
    with pytest.raises(UsageError, match=r"a reward of 1\.0"):
        Interfaced(inner, file=str(file))
    with pytest.raises(UsageError, match="which is no file"):
        Interfaced(inner, file=str(tmp_path / "nowhere.txt"))
    bare = Interfaced(inner).open(brief()).observe("A wall.")
    assert bare.token_ids == inner.open(brief()).observe("A wall.").token_ids
