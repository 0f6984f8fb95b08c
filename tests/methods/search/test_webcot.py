"""WebCoT: what a search becomes, what carries no loss, and that a thought says nothing that was not seen."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.methods.imitation.conftest import train

from quintain.agents.catalog import build
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.errors import ConfigError, DataError, UsageError
from quintain.methods.search import webcot
from quintain.methods.search.webcot import (
    Config,
    SearchStep,
    find_leaks,
    record_step,
    retrace_search,
    write_thoughts,
)
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Trajectory, as_text

__all__ = ["train"]
POPPING = "web?labels=vague&depth=2&kinds=4&goal=open&popups=0.5"
WORLD = "web?labels=vague&depth=2&kinds=4&goal=open&popups=0"


@pytest.fixture(scope="module")
def chat() -> Chat:
    from quintain.text.tokenizer import train_tokenizer

    return Chat(
        train_tokenizer(["<|system|>Go.<|user|>home: links: section 1<|assistant|>Action: back<|end|>"], 300)
    )


def search(chat: Chat, count: int = 12, world: str = WORLD) -> list[Trajectory]:
    """Return the expert's searches."""
    make = find(world)
    engine = Scripted(lambda request, stream: (), chat.tokenizer)
    rollout = Rollout(build("rollback+react", chat, make()), make, engine)
    groups = rollout.demonstrations([make().task("train", k) for k in range(count)], noisy(0.0), seed=0)
    rollout.close()
    return [group.trajectories[0] for group in groups]


def test_a_search_is_an_episode_with_the_environment_s_own_way_back(chat: Chat) -> None:
    went = Counter[int]()
    for trajectory in search(chat):
        steps = retrace_search(trajectory, find(WORLD))
        acts = [step.action.text for step in steps]
        backs = [k for k, text in enumerate(acts) if text == "back"]
        went[len(backs)] += 1
        assert acts[-1].startswith("click ") and not any(text.startswith("goto") for text in acts)
        sections = [text for text in acts if "section" in text]
        assert [step.is_kept for step in steps if "section" in step.action.text] == [False] * len(backs) + [
            True
        ]
        assert all(steps[k].is_kept and steps[k].target == "home" for k in backs)
        for number, k in enumerate(backs):
            assert steps[k].tried == "; ".join(f"{text}: bad" for text in sections[: number + 1])
            assert (
                steps[k].thought
                == f"This state is bad. I go back to home, from where I tried {steps[k].tried}."
            )
            assert steps[k + 1].thought == f"I tried {steps[k].tried}."
        assert steps[0].thought == "", "nothing was tried, nothing was said"
    assert len(went) > 2, "some search long, some not at all"


def test_what_was_left_behind_a_pop_up_is_left_too(chat: Chat) -> None:
    told = [(t, retrace_search(t, find(POPPING))) for t in search(chat, 20, POPPING)]
    behind = 0
    for _, steps in told:
        for k in range(1, len(steps) - 1):
            if steps[k].action.text == "close" and steps[k + 1].action.text == "back":
                behind += 1
                assert not steps[k].is_kept and not steps[k - 1].is_kept, (
                    "the pop-up, and the click that opened it"
                )
    assert behind > 0


def test_a_thought_has_no_word_of_what_comes_later(chat: Chat) -> None:
    for trajectory in search(chat, 20):
        steps = retrace_search(trajectory, find(WORLD))
        every = frozenset[str]().union(*(step.seen for step in steps))
        assert not any(find_leaks(step.thought, step.seen, every) for step in steps)
        later = " ".join(step.thought for step in steps[1:])
        assert len(steps) < 5 or find_leaks(later, steps[0].seen, every), "and what is thought later would"
    assert find_leaks("The lamp is red", frozenset({"lamp"}), frozenset({"lamp", "red"})) == ["red"]


def test_skills_are_said_and_counted() -> None:
    step = SearchStep(action=Action(text="click b"), critique="good: a list", tried="click a: bad: a wall")
    assert step.thought == "I tried click a: bad: a wall. This state is good: a list."
    assert step.skills == ["reflection", "branching"]
    back = SearchStep(
        action=Action(text="back 2"), critique="bad", tried="click a > click c: bad", target="home"
    )
    assert back.skills == ["reflection", "branching", "rollback"]
    assert SearchStep(action=Action(text="x"), critique="Good").skills == []
    said = record_step(back, "So.").message
    assert said is not None and as_text(said.content) == "Thought: So.\nAction: back 2"


def test_what_a_model_says_of_later_is_the_template_s(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        SearchStep(action=Action(text="click a"), critique="good: a list", seen=frozenset({"a", "list"})),
        SearchStep(
            action=Action(text="click b"), critique="good: b is here", seen=frozenset({"a", "list", "b"})
        ),
        SearchStep(action=Action(text="click c"), seen=frozenset({"a", "list", "b", "c"})),
    ]
    asked: list[Any] = []

    class Writer:
        def __init__(self, spec: str, *, asked: str) -> None:
            pass

        def thoughts(self, materials: Any) -> list[str]:
            asked.extend(materials)
            return ["Later there is b.", "There  is b."]

    monkeypatch.setattr(webcot, "Rationalist", Writer)
    counts = Counter[str]()
    assert write_thoughts(steps, "Find b.", "http://127.0.0.1/v1?model=m", counts) == [
        "This state is good: a list.", "There is b.", "",
    ]  # fmt: skip
    assert counts["leaks"] == 1 and [each["right action"] for each in asked] == ["click a", "click b"]
    assert asked[1]["so far"] == ["click a"]


def test_what_was_left_carries_no_loss_and_thoughts_do(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = webcot.explain_searches
    monkeypatch.setattr(webcot, "explain_searches", lambda *given: seen.append(real(*given)) or seen[-1])
    rows = train("webcot", environment=WORLD, max_turn_tokens=96, eval_start=False)
    (made,) = seen
    assert (
        rows[-1]["webcot/rollback"] > 0 and rows[-1]["webcot/left"] > 0 and rows[-1]["webcot/branching"] > 0
    )
    assert rows[-1]["webcot/leaks"] == rows[-1]["webcot/unrepeatable"] == 0
    weighed = [
        (turn, float(weights.sum()))
        for e in made.examples
        for turn, weights in zip(e.trajectory.turns, e.weights, strict=True)
    ]
    backs = [weight for turn, weight in weighed if turn.action.text.startswith("back")]
    assert backs and all(weight > 0 for weight in backs)
    assert any(weight == 0 for _, weight in weighed)
    for example in made.examples:
        acts = [turn.action.text for turn in example.trajectory.turns]
        for k, (text, weights) in enumerate(zip(acts, example.weights, strict=True)):
            assert (weights == 0).all() == (
                acts[k + 1 : k + 2] == ["back"] and re.match("click section", text) is not None
            )
        assert example.trajectory.is_success


def test_a_search_that_never_branches_is_flat_data(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    flat: list[list[Trajectory]] = []
    real = webcot.explain_searches

    def note(config: Config, collector: Any, counts: Counter[str]) -> Any:
        made = real(config, collector, counts)
        flat.append(collector.demonstrations())
        flat.append([example.trajectory for example in made.examples])
        return made

    monkeypatch.setattr(webcot, "explain_searches", note)
    train("webcot", environment="web?depth=2&goal=open&popups=0", max_turn_tokens=96, eval_start=False)
    plain, own = (
        [[(t.prompt_ids, t.completion.token_ids) for t in each.turns] for each in side] for side in flat
    )
    assert plain == own


def test_what_is_no_search_or_cannot_go_back_is_refused(chat: Chat) -> None:
    with pytest.raises(ConfigError, match="search: got 'window', which says of no state"):
        Config(search="window").check()
    with pytest.raises(ConfigError, match="demonstrations: got 0"):
        Config(demonstrations=0).check()
    with pytest.raises(UsageError, match="by"):
        Config(by="nobody").check()
    trajectory = next(t for t in search(chat) if any(turn.action.text == "goto 0: bad" for turn in t.turns))
    (back, *_) = [turn for turn in trajectory.turns if turn.action.text == "goto 0: bad"]
    house = find("keydoor")
    step = replace(back, action=Action(text="left"))
    other = replace(trajectory, task=house().task("train", 0), turns=(step, step, back))
    with pytest.raises(DataError, match="no legal action that does"):
        retrace_search(other, house)
    assert retrace_search(replace(trajectory, turns=trajectory.turns[:-1]), find(WORLD)) == [], (
        "it ends unsolved"
    )
