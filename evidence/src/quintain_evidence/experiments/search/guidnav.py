"""GuidNav: do the scores of a process reward model choose better than chance, and better than what is drafted most?

An order to be placed on a small site. A guided agent (`guided?size=4`) whose model is a script: it drafts the right
action, or any other legal one. The process reward model is learned by the code that ships from the script's own play
of training sites, each episode judged by its outcome, and sees no page that an action leads to. What the script drafts
in a state is the same in every arm. In the control the scores of the drafts are dealt out anew among the different
ones. The rival does what was drafted most, the nearest that drafts alone say. Printed beside: the first draft, and the
drift that is found on other sites, and on sites that call things otherwise than in training (another layout). In the
null world the script drafts nothing wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from quintain.environments.protocol import advance, begin
from quintain.search.guided import Draft, Guided, GuidedWorld
from quintain.search.step_scores import StepScores, drift_of
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Split, Task, Trajectory, as_content, derive_seed
from quintain.worlds.web.game import Web

RIGHT = 0.5
"""How often the script drafts the right action."""
SIZE = 4
Choose = Callable[[Sequence[Draft]], Draft]


class Chosen(GuidedWorld):
    """The same, with another choice."""

    choice: Choose | None = None

    def _choose(self, drafts: list[Draft]) -> Draft:
        """See `GuidedWorld`."""
        return super()._choose(drafts) if self.choice is None else self.choice(drafts)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return of each task whether the arms solved it; the drift is one number for all."""
    shown, more, moved = (
        [
            play_alone(task)
            for task in draw_tasks("train", int(options["episodes"]), derive_seed(seed, number), layout)
        ]
        for number, layout in enumerate((0, 0, int(options["layout"])))
    )
    rate = StepScores.learn(shown)
    drifts = {"extra.steady": drift_of(rate.known, more), "extra.drift": drift_of(rate.known, moved)}
    arms: Mapping[str, Choose | None] = {
        "method": None, "control": deal, "extra.most": most_drafted, "extra.first": lambda drafts: drafts[0],
    }  # fmt: skip
    rows: list[Mapping[str, float]] = []
    for task in draw_tasks("eval", int(options["tasks"]), seed, 0):
        row = {name: play(task, rate, choice, RIGHT) for name, choice in arms.items()}
        null = {f"null_{name}": play(task, rate, arms[name], 1.0) for name in ("method", "control")}
        rows.append({**row, **null, **drifts})
    return rows


def draw_tasks(split: Split, count: int, seed: int, layout: int) -> list[Task]:
    """Return `count` tasks of `split`, whose sites call things as `layout` does."""
    return [
        Task(
            id=f"web/{split}/{k}", environment="web", seed=derive_seed(seed, split, k), split=split,
            data={"layout": layout},
        )
        for k in range(count)
    ]  # fmt: skip


def make_world() -> Web:
    """Return the world."""
    return Web(goal="order", irreversible=False, popups=0.0)


def draft(inner: Web, rng: Random, right: float) -> str:
    """Return what the script drafts."""
    wanted = inner.expert_action().text
    others = [action for action in inner.legal_actions() if action != wanted]
    return wanted if rng.random() < right or not others else rng.choice(others)


def play_alone(task: Task) -> Trajectory:
    """Return the script's own episode on `task`."""
    inner, turns = make_world(), list[Any]()
    seen, rng = begin(inner, task), Random(derive_seed("alone", task.id, task.seed))
    while True:
        action = Action(text=draft(inner, rng, RIGHT))
        turns.append(turn_of(action=action, observation=as_content(seen)))
        result = advance(inner, action)
        seen = result.observation
        if result.is_over or len(turns) >= inner.max_turns:
            solved = bool(result.is_success)
            return episode_of(turns, float(solved), is_success=solved, task=task)


def deal(drafts: Sequence[Draft]) -> Draft:
    """Return the best of `drafts` when the scores of the different ones are dealt out anew among them."""
    scores = {each.action.text: each.score for each in drafts}
    rng = Random(derive_seed(*(f"{each.number} {each.action.text}" for each in drafts)))
    dealt = dict(zip(scores, rng.sample(list(scores.values()), len(scores)), strict=True))
    return max(drafts, key=lambda each: dealt[each.action.text])


def most_drafted(drafts: Sequence[Draft]) -> Draft:
    """Return the draft that there is most often, of equal ones the first."""
    counts = Counter(each.action.text for each in drafts)
    return max(drafts, key=lambda each: counts[each.action.text])


def play(task: Task, rate: StepScores, choice: Choose | None, right: float) -> float:
    """Return whether `task` was solved by who chooses as `choice` does; None: as the scores say."""
    agent: Any = None
    settings = Guided(agent, agent, size=SIZE)
    object.__setattr__(settings, "rate", rate)
    inner = make_world()
    world = Chosen(inner, settings)
    world.choice = choice
    begin(world, task)
    asked = dict[str, int]()
    while True:
        key = inner.state_key()
        asked[key] = asked.get(key, -1) + 1
        rng = Random(derive_seed(task.id, key, asked[key]))
        result = advance(world, Action(text=draft(inner, rng, right)))
        if result.is_over:
            return float(bool(result.is_success))
