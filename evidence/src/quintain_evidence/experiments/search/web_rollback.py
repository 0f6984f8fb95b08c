"""WebRollback: is a thing found sooner if the state that is gone back to is chosen, and not another one that was seen?

A site whose sections do not say what is in them: home, sections, sizes, things. A script opens the section and the size
that it likes and looks at the list of things: where the thing is not there the state is bad, which it sees no sooner.
Method: it goes back to the section if that is of the right kind, else home. Control: it goes back to another state on
offer, drawn, at the same moments. The rival goes one page back each time. A section whose sizes were all left is bad in
every arm. Each has 20 actions, and going back is one; beside it, what is found if every page gone back costs an action.
Printed: who never goes back, and best-first with the same critic, whose going back is free. In the null world there
are no sizes, so that one state alone is on offer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Literal, NamedTuple

from quintain.agents.rollback import BAD, CHOOSE, CRITICISE, GOOD, LEFT
from quintain.data.searched import split_head
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.rollout.request import Limits
from quintain.search.harness import Searched, SearchedWorld
from quintain.types import Action, Task, Trajectory, as_text, derive_seed, flatten_scored
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold

ACTIONS = 20
AGENT: Any = None
Choice = Literal["chosen", "other", "last", "never"]
ASKED = re.compile(r"<\|(?:user|assistant)\|>")
TASK = re.compile(r"Task: open ((?:small |large )?\w+ (\w+))\.")
PAGE = re.compile(r"\b(home|not found|(?:small |large )?[a-z]+s): (?:links: )?([^\n<]*)")
STATE = re.compile(r"^(\d+): (.*)$", re.MULTILINE)


class Seen(NamedTuple):
    """What the script reads: the thing it looks for, the page, its links, and what was left from there."""

    thing: str
    kind: str
    page: str
    links: tuple[str, ...]
    left: str

    @property
    def is_bad(self) -> bool:
        """Whether the thing is not on a list of things, or all sizes of a section were left."""
        lists_sizes = all(link.endswith("s") for link in self.links)
        if self.page == "home":
            return False
        return not self.untried if lists_sizes else self.thing not in self.links

    @property
    def untried(self) -> list[str]:
        """Links that lead on and were not left, what is looked for or of its size first."""
        open_ones = [
            link
            for link in self.links
            if f"click {link}" not in self.left and link != "sign up" and not link.startswith("best ")
        ]
        return sorted(
            open_ones, key=lambda link: (link != self.thing, link.split()[0] != self.thing.split()[0])
        )


def see(text: str, note: str = "") -> Seen | None:
    """Return what is read in `text`, whose last page is the one that counts; None where there is no task."""
    task, pages = TASK.search(text), PAGE.findall(text)
    if task is None or not pages:
        return None
    name, links = pages[-1]
    return Seen(task[1], task[2], name, tuple(links.split(", ")), note)


def say(how: Choice, prompt: str, draw: int) -> str:
    """Return a critique, the number of a state, or an action."""
    asked = [part.removesuffix("<|end|>").strip() for part in ASKED.split(prompt)]
    shown = next((part for part in reversed(asked) if PAGE.search(part) and CHOOSE not in part), "")
    task = TASK.search(prompt)
    page, _, note = shown.partition(LEFT)
    seen = None if task is None else see(f"{task[0]} {page}", note.partition("\n")[0])
    if seen is None:
        return "back"
    question = asked[-2]
    if CRITICISE in question:
        return BAD if seen.is_bad and how != "never" else GOOD
    if CHOOSE in question:
        return choose(how, seen, STATE.findall(question), Random(draw))
    ways = seen.untried or list(seen.links)
    first = [way for way in ways if not way.startswith("section ")]
    return f"click {first[0] if first else Random(draw).choice(ways)}"


def choose(how: Choice, seen: Seen, states: Sequence[tuple[str, str]], rng: Random) -> str:
    """Return the number of the state that is gone back to."""
    numbers = [number for number, _ in states]
    sections = [number for number, label in states if label.startswith(f"{seen.kind}s:")]
    chosen = sections[-1] if sections and seen.page != f"{seen.kind}s" else numbers[0]
    others = [number for number in numbers if number != chosen]
    if how == "other" and others:
        return rng.choice(others)
    return numbers[-1] if how == "last" else chosen


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return of each site whether each arm finds the thing in 20 actions."""
    world, count = str(options["world"]), int(options["seeds"])
    flat = world.replace("depth=3", "depth=2")
    require_blindfold(Mind(partial(say, "chosen")), world, seed=seed, agent="rollback+text", num=20)
    arms: Mapping[str, tuple[Choice, str]] = {
        "method": ("chosen", world), "control": ("other", world), "extra.back": ("last", world),
        "extra.never": ("never", world), "null_method": ("chosen", flat), "null_control": ("other", flat),
    }  # fmt: skip
    played = {name: play(*arm, seed, count) for name, arm in arms.items()}
    rows: list[Mapping[str, float]] = []
    for number in range(count):
        own = {name: found[number] for name, found in played.items()}
        row = {name: float(t.is_success) for name, t in own.items()}
        priced = {name: float(own[name].is_success and price_pages(own[name]) <= ACTIONS) for name in arms}
        row |= {
            "extra.priced": priced["method"],
            "extra.priced_lead": priced["method"] - priced["extra.back"],
            "extra.goes_back": float(any(is_back(t.action.text) for t in own["method"].turns)),
            "extra.best_first": float(search(world, own["method"].task)),
        }
        rows.append(row)
    return rows


def play(how: Choice, world: str, seed: int, count: int) -> Sequence[Trajectory]:
    """Return the episode of the script on each of `count` sites."""
    mind, limits = Mind(partial(say, how)), Limits(max_turns=ACTIONS)
    with play_mind(mind, world, seed=seed, agent="rollback+text", limits=limits) as probe:
        return flatten_scored(probe.play(probe.tasks(count, first=derive_seed("sites", seed) % 1_000_000)))


def is_back(action: str) -> bool:
    """Return whether an action goes back."""
    return action.startswith("goto ")


def price_pages(trajectory: Trajectory) -> int:
    """Return what `trajectory` costs if each page that is gone back costs an action."""
    price, offered = 0, list[int]()
    for turn in trajectory.turns:
        what, numbers, _ = split_head(turn.observation)
        offered = [*numbers[:-1]] if what == "back" else offered
        if not turn.is_internal:
            text = turn.action.text
            price += len(offered) - offered.index(int(text.split()[1].rstrip(":"))) if is_back(text) else 1
    return price


def search(world: str, task: Task) -> bool:
    """Return whether best-first with the same critic finds the thing in as many actions."""
    tree = SearchedWorld(
        find(world)(), Searched(AGENT, AGENT, by="best", score="model", size=3, steps=ACTIONS)
    )
    observation, tried = begin(tree, task), dict[tuple[int, ...], int]()
    words = as_text(split_head(observation)[2])
    while True:
        what, way, shown = split_head(observation)
        seen = see(f"{words.partition('.')[0]}. {as_text(shown).removeprefix(words.partition('.')[0])}")
        assert seen is not None, "every page says what it is"
        if what == "judge":
            said = "0" if seen.is_bad else "10" if seen.thing in seen.links else "5"
        else:
            number = tried[way] = tried.get(way, -1) + 1
            ways = seen.untried or list(seen.links)
            said = f"click {ways[number % len(ways)]}"
        result = advance(tree, Action(text=said))
        observation = result.observation
        if result.is_over:
            return bool(result.is_success)
