"""A small site to act in: follow links, close pop-ups, leave dead ends, fill in forms, answer.

Families it stands for: WebArena and MiniWoB. What is sent cannot be taken back. An action without effect says
"Nothing happens.", and while a pop-up is open nothing but its buttons has an effect.
"""

import random
from dataclasses import replace
from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, Split, StepResult, Task, derive_seed
from quintain.worlds.web.site import (
    CLUB,
    COLORS,
    FIELDS,
    GONE,
    HOME,
    KINDS,
    NUM_DEPTHS,
    NUM_LAYOUTS,
    TYPED,
    Goal,
    Page,
    Site,
    SiteShape,
    draw_site,
    restyle,
    wording,
)

POP_UPS = (("cookies", ("close",)), ("newsletter", ("close",)), ("join the club?", ("no", "yes")))
"""What a pop-up says, and its buttons; `yes` leads to a dead end."""
Filled = tuple[tuple[str, str], ...]
State = tuple[Site, tuple[str, ...], Filled, int, frozenset[str], bool, tuple[int, int, int]]


class Browser(Environment):
    """A site and somebody in it; what is asked for is the subclass's."""

    def __init__(
        self,
        *,
        depth: int = 2,
        kinds: int = 3,
        items: int = 2,
        fields: int = 2,
        dead_ends: int = 1,
        popups: float = 0.2,
        changing: bool = False,
        goal: Literal["any", "open", "answer", "form", "order"] = "any",
        labels: Literal["clear", "vague"] = "clear",
        irreversible: bool = True,
        reward: Literal["sparse", "dense"] = "sparse",
        noise: int = 0,
        drift: int = 0,
    ) -> None:
        """Build sites of `kinds` times `items` things, `depth` clicks from home; forms have `fields` fields.

        `dead_ends` links of each list lead nowhere. A page has a pop-up with probability `popups`: always the same
        one, or with `changing` one drawn at each visit. With `vague` labels the kinds of things have to be
        searched. Unless `irreversible`, what is sent wrong is refused, says so and can be mended. `reward=dense`
        pays the change of `progress`. `noise` sentences that mean nothing follow every observation. With `drift` the
        site is not the same for ever: every so many training tasks one thing on it is called something else, until
        after `NUM_LAYOUTS` changes all is as at first. Held-out tasks have every layout in turn.

        Raises:
            UsageError: there is no such site.
        """
        if not 1 <= depth <= NUM_DEPTHS or not 1 <= kinds <= len(KINDS) or not 1 <= items <= len(COLORS):
            raise UsageError(
                f"web: got depth={depth}, kinds={kinds}, items={items}; give a depth of 1 to {NUM_DEPTHS}, "
                f"1 to {len(KINDS)} kinds and 1 to {len(COLORS)} items"
            )
        if not 1 <= fields <= len(FIELDS) or min(dead_ends, noise, drift) < 0 or not 0 <= popups < 1:
            raise UsageError(
                f"web: got fields={fields}, dead_ends={dead_ends}, popups={popups}, noise={noise}, "
                f"drift={drift}; give 1 to "
                f"{len(FIELDS)} fields, no negative number and a probability below 1"
            )
        is_vague = labels == "vague"
        self._shape = SiteShape(depth, kinds, items, fields, dead_ends, goal, is_vague)
        self._popups, self._is_changing, self._noise, self._drift = popups, changing, noise, drift
        self.later_words = (
            tuple(" ".join(wording(k)).format("things") for k in range(NUM_LAYOUTS)) if drift else ()
        )
        self._is_final, self._is_dense = irreversible, reward == "dense"
        searched = 2 * kinds * (2 if depth == NUM_DEPTHS else 1) if is_vague else 0
        self.max_turns = 3 * (depth + 2 + fields + searched)
        self._site = Site(goal=Goal(kind="open", target=HOME), pages=((HOME, Page()),), route=(HOME,))
        self._pages = dict(self._site.pages)
        self._stack: tuple[str, ...] = (HOME,)
        self._filled: Filled = ()
        self._popup = -1
        self._seen: frozenset[str] = frozenset()
        self._is_done = self._is_sent = False
        self._seed, self._turn, self._num_loads = 0, 0, 0

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`; it says the layout of its site where that drifts."""
        task = super().task(split, index)
        if not self._drift:
            return task
        return replace(
            task, data={"layout": (index if split == "eval" else index // self._drift) % NUM_LAYOUTS}
        )

    def reset(self, task: Task) -> str:
        """Open the home page of the task's site."""
        site = split_draw(task, lambda rng: draw_site(self._shape, rng))
        self._site = restyle(site, int(task.data.get("layout", 0)))
        self._pages = dict(self._site.pages)
        self._seed, self._turn, self._num_loads = task.seed, 0, 0
        self._seen, self._is_done, self._is_sent = frozenset(), False, False
        self._load((HOME,))
        return f"{self._site.goal.words()} {self._view()}"

    def step(self, action: Action) -> StepResult:
        """Carry out one action; one without effect leaves the site as it was."""
        words = " ".join(action.text.lower().split())
        self._turn, self._is_sent = self._turn + 1, False
        if action.error is not None or words not in self.possible():
            said = f"Error: {action.error}" if action.error is not None else "Nothing happens."
            return StepResult(observation=f"{said} {self._view()}", is_success=False, is_valid=False)
        before = self.progress()
        sent, wrong = self._carry_out(words)
        goal = self._site.goal
        self._is_done = (sent and not wrong) or (goal.kind == "open" and self._stack[-1] == goal.target)
        self._is_sent = sent and self._is_final
        is_over = self._is_done or self._is_sent
        said = "Done." if self._is_done else "Wrong." if is_over else self._view()
        if sent and not is_over:
            said = f"Wrong: {wrong}. {said}"
        gain = self.progress() - before if self._is_dense else float(self._is_done)
        return StepResult(observation=said, reward=gain, is_terminated=is_over, is_success=self._is_done)

    def progress(self) -> float:
        """Return the share of subgoals that hold now: pages of the route, fields filled in, the end."""
        if self._is_done:
            return 1.0
        site = self._site
        on_route = 0
        for page, wanted in zip(self._stack[1:], site.route[1:], strict=False):
            if page != wanted:
                break
            on_route += 1
        filled = dict(self._filled) if self._stack[-1] == site.route[-1] else {}
        right = sum(filled.get(name) == value for name, value in site.goal.fields)
        return (on_route + right) / (len(site.route) - 1 + len(site.goal.fields) + 1)

    def possible(self) -> tuple[str, ...]:
        """Return the actions that have an effect here; texts to type are those of the task."""
        if self._popup >= 0:
            return self._buttons()
        page, goal = self._pages[self._stack[-1]], self._site.goal
        legal = [f"click {label}" for label, _ in page.links]
        if page.is_form:
            filled = dict(self._filled)
            for name in self._fields():
                if name in TYPED:
                    values = [value for other, value in goal.fields if other in TYPED]
                    legal += [f"type {name} {value}" for value in values if filled.get(name) != value]
                elif name == "gift":
                    legal.append(f"tick {name}")
                else:
                    legal += [f"choose {name} {value}" for value in FIELDS[name] if filled.get(name) != value]
            legal.append("submit")
        if goal.kind == "answer":
            legal += [f"answer {value}" for value in dict.fromkeys(value for _, value in page.facts)]
        depth = len(self._stack) - 1
        return (*legal, *["back"] * (depth > 0), *(f"back {count}" for count in range(2, depth + 1)))

    def expert_action(self) -> Action:
        """Return the next action on the shortest way; with vague labels, of one who looks everywhere in turn."""
        return Action(text=self._expert_words())

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return a click into a dead end where there is one, else any legal action."""
        legal = self.possible()
        traps = [words for words in legal if words == "yes" or words.startswith("click best ")]
        return Action(text=rng.choice(traps or legal))

    def can_go_back(self) -> bool:
        """Return whether the last action sent nothing for good."""
        return not self._is_sent

    def snapshot(self) -> State:
        """Return the site and the browser as they are."""
        counters = (self._seed, self._turn, self._num_loads)
        return self._site, self._stack, self._filled, self._popup, self._seen, self._is_done, counters

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._site, self._stack, self._filled, self._popup, self._seen, self._is_done, counters = state
        self._pages = dict(self._site.pages)
        self._seed, self._turn, self._num_loads = counters

    def state_key(self) -> str:
        """Return the page, the way back, what is filled in and the pop-up; not what was seen, or when."""
        loads = self._num_loads if self._is_changing else 0
        return repr((self._stack, self._filled, self._popup, self._is_done, loads))

    def _fields(self) -> tuple[str, ...]:
        """Return the fields of the site's forms."""
        return tuple(FIELDS)[: self._shape.fields]

    def _buttons(self) -> tuple[str, ...]:
        """Return the buttons of the pop-up that is open."""
        return tuple(self._site.close if name == "close" else name for name in POP_UPS[self._popup][1])

    def _load(self, stack: tuple[str, ...]) -> None:
        """Open the last page of `stack`; what was filled in is forgotten, and there may be a pop-up."""
        self._stack, self._filled = stack, ()
        self._num_loads += 1
        self._seen |= {stack[-1]}
        visit = self._num_loads if self._is_changing else 0
        drawn = derive_seed("pop-up", self._seed, stack[-1], visit) if self._popups else 0
        has_one = stack[-1] not in (CLUB, GONE) and (drawn % 10_000) < 10_000 * self._popups
        self._popup = drawn // 10_000 % len(POP_UPS) if has_one else -1

    def _carry_out(self, words: str) -> tuple[bool, str]:
        """Change the site as the legal action `words` says; return whether it was sent, and what is wrong."""
        verb, _, rest = words.partition(" ")
        goal, filled = self._site.goal, dict(self._filled)
        if self._popup >= 0 and words != "yes":
            self._popup = -1
        elif verb == "yes":
            self._load((*self._stack, CLUB))
        elif verb == "click":
            self._load((*self._stack, dict(self._pages[self._stack[-1]].links)[rest]))
        elif verb == "back":
            self._load(self._stack[: -int(rest or 1)])
        elif verb == "answer":
            return True, "" if rest == goal.answer and self._stack[-1] == goal.target else "answer"
        elif verb == "submit":
            wrong = [name for name, value in goal.fields if filled.get(name) != value]
            return True, ", ".join(wrong) if self._stack[-1] == self._site.route[-1] else "form"
        else:
            name, _, value = rest.partition(" ")
            filled[name] = value or ("off" if filled.get(name) == "on" else "on")
            self._filled = tuple(sorted(filled.items()))
        return False, ""

    def _expert_words(self) -> str:
        """Return the expert's action."""
        if self._popup >= 0:
            return self._buttons()[0]
        route, goal, stack = self._site.route, self._site.goal, self._stack
        here = stack[-1]
        if here == route[-1]:
            return self._at_the_end(goal)
        links = self._pages[here].links
        if here in route[:-1] and not (here == HOME and self._must_search()):
            wanted = route[route.index(here) + 1]
            return next(f"click {label}" for label, target in links if target == wanted)
        if here == HOME:
            unseen = [
                label for label, target in links if label.startswith("section ") and target not in self._seen
            ]
            return f"click {unseen[0]}"
        common = sum(1 for page, wanted in zip(stack, route, strict=False) if page == wanted)
        count = len(stack) - (1 if self._must_search() else common)
        return "back" if count == 1 else f"back {count}"

    def _must_search(self) -> bool:
        """Whether the section that the goal is in has to be found."""
        route = self._site.route
        return self._shape.is_vague and len(route) > 2 and route[1] not in self._seen

    def _at_the_end(self, goal: Goal) -> str:
        """Return the expert's action on the last page of the route."""
        if goal.kind == "answer":
            return f"answer {goal.answer}"
        filled = dict(self._filled)
        for name, value in goal.fields:
            if filled.get(name) != value:
                return (
                    f"tick {name}"
                    if name == "gift"
                    else f"{'type' if name in TYPED else 'choose'} {name} {value}"
                )
        return "submit"

    def _view(self) -> str:
        """Return the page as a line, or the pop-up that hides it, and noise."""
        noise = chatter(self._noise, self._seed, self._turn)
        if self._popup >= 0:
            return f"pop-up: {POP_UPS[self._popup][0]} {' or '.join(self._buttons())}{noise}"
        here = self._stack[-1]
        page, filled = self._pages[here], dict(self._filled)
        parts = [f"{name} {value}" for name, value in page.facts]
        if page.is_form:
            parts += [_field_words(name, filled.get(name, "")) for name in self._fields()]
        if page.links:
            parts.append(f"links: {', '.join(label for label, _ in page.links)}")
        return f"{here}: {'; '.join(parts) or 'dead end'}{noise}"


class Web(Browser):
    """Do the task on the site.

    Act: click LINK, back, back NUMBER, type FIELD VALUE, choose FIELD VALUE, tick FIELD, submit, answer VALUE, and
    close, yes or no in a pop-up.
    """

    name = "web"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "perception"})

    def legal_actions(self) -> tuple[str, ...]:
        """Return the actions that have an effect here; texts to type are those of the task."""
        return self.possible()


def _field_words(name: str, value: str) -> str:
    """Return a field in words: ``delivery (slow or fast) empty``."""
    if name == "gift":
        return f"{name} {value or 'off'}"
    options = "" if name in TYPED else f" ({' or '.join(FIELDS[name])})"
    return f"{name}{options} {value or 'empty'}"
