"""Agent-R: must a failure be cut after its first bad step, or does any later one teach the way back as well?

A site three clicks deep as a table. A row of logits belongs to what a page is to the goal (its place on the route, a
list of other things, another thing, not found), and a column to what a link or a way back is, so that what is learned
holds on other sites. The start finds the goal in some of its episodes, and seldom goes back from a wrong page. Its
episodes are the trees; which of them stand side by side, what each step is worth, where a failure is cut and what of it
is imitated is what ships. In tasks that are held out a wrong click is forced at a share `slips` of the turns, wherever
there is one, and the number is the exact probability of success within as many turns as the expert needs and `slack`
more. The control has the same failures, cut behind a later turn of the same wrong way, drawn: as many actions are
imitated. In the null world every wrong way is one step long, into a dead end, and both are the same.

Beside it: the start, good episodes alone, a cut behind any turn after the parting, drawn, and how often each finds the
goal behind one, two or three wrong clicks, evenly.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.data.pack import pack
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.losses.imitation import imitation
from quintain.methods.preference.agent_r import (
    Revision,
    example_of,
    first_bad,
    num_common,
    partners,
    shortest,
    verdicts,
)
from quintain.testing.pupil import tasks_from
from quintain.types import Action, Example, Text, Trajectory, derive_seed
from quintain.worlds.web.site import GONE, SIGN_UP
from quintain_evidence.experiments.preference.blocks import Blocks
from quintain_evidence.labs.exact import END, World, enumerate_world, exact_values
from quintain_evidence.labs.tabular import states_of

DEEP, FLAT = "web?goal=open&depth=3&popups=0&dead_ends=3", "web?goal=open&depth=1&popups=0&dead_ends=3"
HORIZON = 12
FORCED = (1, 2, 3)
"""Wrong clicks that are forced, one after the other."""
WRONG = ("other", "promise", "sign up")


@dataclass(frozen=True, eq=False)
class Site:
    """Enumerated sites with what they share: ``sites(DEEP, 64, 0)``."""

    table: Blocks
    views: tuple[str, ...]
    """[S] what the page is to the goal"""
    kinds: tuple[tuple[str, ...], ...]
    """[S][A] what the action is, empty where it is not legal"""
    distance: NDArray[np.float64]
    """[S] actions to the goal, inf where there is no way"""

    @property
    def world(self) -> World:
        """The table of states."""
        return self.table.world


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with trees and a start of its own."""
    num = int(options.get("tasks", 32))
    first = derive_seed("agent_r", seed) % 1_000_000
    deep, flat = sites(DEEP, 2 * num, first), sites(FLAT, 2 * num, first)
    return [
        {
            **replication(deep, num, options, derive_seed(seed, number)),
            **{
                f"null_{name}": value
                for name, value in replication(
                    flat, num, options, derive_seed(seed, number), only_dead_ends=True
                ).items()
                if name in ("method", "control")
            },
        }
        for number in range(int(options["seeds"]))
    ]


def replication(
    made: Site, num: int, options: Mapping[str, Any], seed: int, *, only_dead_ends: bool = False
) -> dict[str, float]:
    """Return what one start comes to by each choice of cuts."""
    rng = random.Random(seed)
    start = start_of(made, rng.uniform(0.5, 0.7), float(options.get("back", 0.02)), only_dead_ends)
    policy = made.table.policy(start)
    tries = int(options.get("tries", 16))
    trees = [
        group.trajectories
        for group in policy.sample(size=tries, seed=derive_seed(seed, "trees"), tasks=range(num))
    ]
    good = [as_example(t) for tree in trees for t in shortest(tree, 0.5, 2)]
    arms: dict[str, list[Example]] = {"method": [], "control": [], "extra.random": []}
    lengths: list[int] = []
    for tree in trees:
        for failed, better in partners(tree, good=0.5, gap=0.2):
            parted = num_common(failed, better)
            until = first_bad(verdicts(tree, failed, 0.5), parted)
            if until is None or until >= len(failed.turns):
                continue
            later = wrong_way(made, failed, better, parted, until)
            cuts = {
                "method": until,
                "control": rng.choice(later) if later else until,
                "extra.random": rng.choice([*range(parted + 1, until + 1), *later]),
            }
            own = {name: revised(made, failed, better, parted, cut) for name, cut in cuts.items()}
            if any(each is None for each in own.values()):
                continue
            lengths.append(len(later) + 1)
            for name, each in own.items():
                if each is not None:
                    arms[name].append(each)
    updates = {name: learned(made, start, [*good, *own], options) for name, own in arms.items()}
    updates |= {"extra.start": start, "extra.good": learned(made, start, good, options)}
    slack, slips = int(options.get("slack", 4)), float(options.get("slips", 0.3))
    begun = made.world.start[num:].tolist()
    chances = {name: made.table.policy(shared).probabilities().numpy() for name, shared in updates.items()}
    found = {name: within(made, slipping(made, own, slips), begun, slack) for name, own in chances.items()}
    forced = mistaken(made, range(num, 2 * num), rng)
    even = {name: within(made, own, forced, slack) for name, own in chances.items()}
    return {
        **found,
        "extra.revised": float(len(arms["method"])),
        "extra.way": float(np.mean(lengths)) if lengths else 0.0,
        "extra.gain": found["method"] - found["extra.good"],
        "extra.even": even["method"] - even["control"],
        "extra.clean": within(made, chances["method"], begun, HORIZON)
        - within(made, chances["extra.good"], begun, HORIZON),
    }


def sites(spec: str, num_tasks: int, first: int) -> Site:
    """Return the sites of `num_tasks` tasks from number `first` on."""
    world = enumerate_world(find(spec), tasks_from(spec, num_tasks, first=first), horizon=HORIZON)
    routes = [route_of(spec, task) for task in world.tasks]
    known: dict[tuple[str, str], int] = {}
    cells = np.zeros(world.is_legal.shape, np.int64)
    views: list[str] = []
    kinds: list[tuple[str, ...]] = []
    for state, key in enumerate(world.keys):
        stack: tuple[str, ...] = _stack(key)
        route = routes[int(world.task_of[state])]
        view = view_of(stack, route)
        own = [""] * len(world.actions)
        for action in np.flatnonzero(world.is_legal[state]).tolist():
            own[action] = kind_of(world, state, action, route)
            cells[state, action] = known.setdefault((view, own[action]), len(known))
        views.append(view)
        kinds.append(tuple(own))
    return Site(Blocks(world, cells, len(known)), tuple(views), tuple(kinds), distances(world))


def route_of(spec: str, task: Any) -> tuple[str, ...]:
    """Return the pages on the expert's way in `task`."""
    environment = find(spec)()
    try:
        begin(environment, task)
        route: tuple[str, ...] = environment.snapshot()[0].route  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        environment.close()
    return route


def _stack(key: str) -> tuple[str, ...]:
    """Return the pages of a state's name."""
    return tuple(
        part.strip(" '") for part in key.partition(")")[0].lstrip("(").split(",") if part.strip(" '")
    )


def view_of(stack: Sequence[str], route: Sequence[str]) -> str:
    """Return what the last page of `stack` is to who is looking for the end of `route`."""
    page = stack[-1]
    if list(stack) == list(route[: len(stack)]):
        return f"route {len(stack)}"
    if page in (GONE, SIGN_UP) or page.startswith("order "):
        return page.partition(" ")[0]
    return "other list" if page.endswith("s") else "other thing"


def kind_of(world: World, state: int, action: int, route: Sequence[str]) -> str:
    """Return what `action` is: right, a promise that leads nowhere, another link, or how far it goes back."""
    words = world.actions[action]
    if not words.startswith("click "):
        return words
    stack = _stack(world.keys[state])
    label = words.removeprefix("click ")
    if label.startswith("best "):
        return "promise"
    is_on_route = list(stack) == list(route[: len(stack)])
    return "right" if is_on_route and label in route else "sign up" if label == SIGN_UP else "other"


def distances(world: World) -> NDArray[np.float64]:
    """Return the fewest actions [S] from each state to a solved task."""
    found = np.where(world.is_success.any(1), 1.0, np.inf)
    for _ in range(HORIZON):
        after = np.where(world.is_legal & (world.next != END), found[np.maximum(world.next, 0)], np.inf)
        found = np.minimum(found, 1 + after.min(1))
    return found


def start_of(made: Site, right: float, back: float, only_dead_ends: bool) -> Tensor:
    """Return shared logits: `right` on the route, `back` in all from a wrong page, and evenly what else there is."""
    logits = np.full(made.table.num_cells, -30.0)
    for state, view in enumerate(made.views):
        legal = np.flatnonzero(made.world.is_legal[state]).tolist()
        kinds = [made.kinds[state][action] for action in legal]
        backs = [k for k in kinds if k.startswith("back")]
        on_route = view.startswith("route")
        others = [
            k for k in kinds if k != "right" and not k.startswith("back") and k != "submit"
            and (not only_dead_ends or k == "promise")
        ]  # fmt: skip
        for action, kind in zip(legal, kinds, strict=True):
            if kind == "right":
                chance = right
            elif kind.startswith("back"):
                chance = (0.0 if on_route else back if others else 1.0) / max(len(backs), 1)
            else:
                chance = ((1 - right) if on_route else 1 - back) / max(len(others), 1) * (kind in others)
            cell = made.table.cells[state, action]
            logits[cell] = max(logits[cell], float(np.log(max(chance, 1e-6))))
    return torch.from_numpy(logits)


def wrong_way(made: Site, failed: Trajectory, good: Trajectory, parted: int, until: int) -> list[int]:
    """Return the later cuts: turns after `until` before `failed` comes back to a state of the common beginning."""
    states = states_of(failed)
    known = set(states_of(good)[: parted + 1])
    found: list[int] = []
    for turn in range(until, len(states) - 1):
        if states[turn] in known or states[turn + 1] in known:
            break
        found.append(turn + 1)
    return found


def revised(made: Site, failed: Trajectory, good: Trajectory, parted: int, until: int) -> Example | None:
    """Return `failed` up to turn `until`, one action back to where both parted, and the rest of `good`."""
    world = made.world
    here, there = states_of(failed)[until], states_of(good)[parted]
    ways = [a for a in np.flatnonzero(world.is_legal[here]).tolist() if world.next[here, a] == there]
    if not ways:
        return None
    back = Action(text=world.actions[ways[0]])
    completion = failed.turns[0].completion
    turn = replace(
        failed.turns[0],
        observation=(Text(text=world.keys[here]),),
        prompt_ids=(here,),
        completion=replace(completion, token_ids=(world.num_states + ways[0],), logprobs=()),
        action=back,
        starts_segment=False,
    )
    tail = [replace(each, starts_segment=False) for each in good.turns[parted:]]
    whole = replace(failed, turns=(*failed.turns[:until], turn, *tail), outcome=good.outcome)
    each = Revision(failed=failed, until=until, good=good, begin=parted, back=(back,))
    return example_of(each, whole)


def learned(made: Site, start: Tensor, examples: Sequence[Example], options: Mapping[str, Any]) -> Tensor:
    """Return the shared logits after updates on all of `examples` at a time."""
    shared = start.clone()
    batch = pack(example_samples(examples))
    say, loss = made.table.speaker(batch), imitation()
    shared.requires_grad_()
    optimizer = torch.optim.Adam([shared], lr=float(options.get("rate", 0.1)))
    for _ in range(int(options.get("updates", 40))):
        optimizer.zero_grad()
        loss(say(shared), batch).loss.backward()
        optimizer.step()
    return shared.detach()


def mistaken(made: Site, tasks: Sequence[int], rng: random.Random) -> list[int]:
    """Return the states of each of `tasks` after one, two and three wrong clicks from a page of the route, drawn."""
    found: list[int] = []
    for task in tasks:
        first = int(made.world.start[task])
        routes = [s for s in _own(made, task) if made.views[s].startswith("route")]
        assert first in routes, "an episode begins on the route"
        for count in FORCED:
            ends = [end for state in routes for end in _clicked(made, state, count)]
            found += [rng.choice(ends)] if ends else []
    return found


def _own(made: Site, task: int) -> list[int]:
    return np.flatnonzero(made.world.task_of == task).tolist()


def _clicked(made: Site, state: int, count: int) -> list[int]:
    """Return where `count` wrong clicks from `state` lead."""
    if not count:
        return [state]
    kinds, following = made.kinds[state], made.world.next[state]
    wrong = [a for a, kind in enumerate(kinds) if kind in WRONG[:2] and following[a] != END]
    return [end for a in wrong for end in _clicked(made, int(following[a]), count - 1)]


def slipping(made: Site, chances: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return probabilities [S, A] of who takes a wrong link, any, at a `share` of the turns where there is one."""
    found = chances.copy()
    for state, kinds in enumerate(made.kinds):
        wrong = [a for a, k in enumerate(kinds) if k in WRONG and made.world.next[state, a] != END]
        if wrong:
            found[state] *= 1 - share
            found[state, wrong] += share / len(wrong)
    return found


def within(made: Site, chances: NDArray[np.float64], states: Sequence[int], slack: int) -> float:
    """Return the mean probability of success from `states` within the fewest turns there are and `slack` more."""
    values = exact_values(made.world, torch.from_numpy(chances), outcome="success").v.numpy()
    turns = [min(int(made.distance[state]) + slack, HORIZON) for state in states]
    return float(np.mean([values[left, state] for left, state in zip(turns, states, strict=True)]))
