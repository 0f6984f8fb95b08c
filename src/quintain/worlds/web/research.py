"""Reports on a small site: look up what is not known, keep notes, write each claim with the page that says it.

Families it stands for: deep research (browse, note, cite), and knowing when to search: some of what is asked for is
told with the task, so that opening a page for it is a waste. The report ends the episode and is graded by a rubric:

- *coverage*: the share of what is asked for that is claimed rightly;
- *support*: the share of claims that the page which they cite says, if it was opened, or that were told (``[known]``);
  a claim that nobody asked for counts as one without.

Each is worth half. Every page that is opened costs a little, needed or not.
"""

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.web.game import Browser
from quintain.worlds.web.game import State as Browsed
from quintain.worlds.web.site import HOME, Goal, Site, SiteShape, draw_site

KNOWN = "known"
"""What a claim cites that was told with the task."""
CLAIM = re.compile(r"(price|stock) of ([a-z ]+?) is (\d{1,9}) \[([a-z ]+)\]")
FACTS = ("price", "stock")
MAX_ASKED = 4
COVERAGE = 0.5
"""What coverage is worth; support is worth the rest of 1."""
FORM = "price of red lamp is 12 [red lamp]"


class Asked(NamedTuple):
    """What is asked for: ``Asked("price", "red lamp")``."""

    fact: str
    thing: str


class Claim(NamedTuple):
    """A sentence of a report: ``Claim(Asked("price", "red lamp"), 12, "red lamp")``."""

    about: Asked
    value: int
    page: str
    """the page that it cites"""

    def words(self) -> str:
        """Return it as it is written: ``price of red lamp is 12 [red lamp]``."""
        return f"{self.about.fact} of {self.about.thing} is {self.value} [{self.page}]"


class Grade(NamedTuple):
    """What a rubric says of a report: ``Grade(coverage=1.0, support=0.5)``."""

    coverage: float
    support: float

    @property
    def value(self) -> float:
        """What it is worth, from 0 to 1."""
        return COVERAGE * self.coverage + (1 - COVERAGE) * self.support


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A task: a site, what is asked for, and what of it is told."""

    site: Site
    asked: tuple[Asked, ...]
    known: tuple[Asked, ...]
    """in the order of `asked`, for a task is known by how it is written"""


def read_claims(report: str) -> tuple[Claim, ...]:
    """Return the claims of `report`, which are divided by semicolons; what is no claim is left out."""
    found = (CLAIM.fullmatch(part.strip()) for part in report.split(";"))
    return tuple(Claim(Asked(f[1], f[2]), int(f[3]), f[4]) for f in found if f)


def grade(
    claims: Sequence[Claim],
    asked: Sequence[Asked],
    truth: Mapping[Asked, int],
    *,
    opened: Collection[str],
    known: Collection[Asked],
) -> Grade:
    """Return what the rubric says of `claims`; a claim that is made twice counts once.

    A claim is supported if it is asked for and right, and cites its thing's page, which was opened, or ``known`` where
    it was told. Support is a share of the claims, and no claims have none.
    """
    made = list(dict.fromkeys(claims))
    right = [claim for claim in made if claim.about in asked and truth[claim.about] == claim.value]
    supported = [
        claim
        for claim in right
        if (claim.page == claim.about.thing and claim.page in opened)
        or (claim.page == KNOWN and claim.about in known)
    ]
    return Grade(
        coverage=len({claim.about for claim in right}) / len(asked),
        support=len(supported) / len(made) if made else 0.0,
    )


ResearchState = tuple[Brief, Browsed, frozenset[str], tuple[str, ...]]


class Research(Browser):
    """Find out what is asked for, and report it with the page that says it, or [known].

    Act: click LINK, back, back NUMBER, close, yes or no in a pop-up, note WORDS, and once
    report FACT of THING is NUMBER [PAGE]; FACT of THING is NUMBER [PAGE].
    """

    name = "research"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory"})

    def __init__(
        self,
        *,
        asked: int = 2,
        known: float = 0.5,
        notes: bool = True,
        cost: float = 0.02,
        depth: int = 2,
        kinds: int = 3,
        items: int = 2,
        dead_ends: int = 1,
        popups: float = 0.0,
    ) -> None:
        """Ask for `asked` facts of a site (see `web`), each told with the task with probability `known`.

        With `notes` every observation repeats what was noted. A page that is opened costs `cost`.

        Raises:
            UsageError: there are no such tasks.
        """
        super().__init__(
            depth=depth, kinds=kinds, items=items, dead_ends=dead_ends, popups=popups, goal="open", fields=1
        )
        if not 1 <= asked <= min(MAX_ASKED, kinds * items) or not 0 <= known <= 1:
            raise UsageError(
                f"research: got asked={asked}, known={known}; ask for 1 to {MAX_ASKED} of {kinds * items} things, and "
                "give a share from 0 to 1"
            )
        self.max_turns = (2 * depth + 4) * asked + 2
        if not 0 <= cost * self.max_turns < 1:
            raise UsageError(
                f"research: got cost={cost} for up to {self.max_turns} pages; all together must cost less than a "
                "report is worth"
            )
        self.return_range = (-cost * self.max_turns, 1.0)
        self._num_asked, self._known, self._shows, self._cost = asked, known, notes, cost
        self._layout = SiteShape(depth, kinds, items, 1, dead_ends, "open", False)
        self._brief = Brief(site=self._site, asked=(), known=())
        self._opened: frozenset[str] = frozenset()
        self._notes: tuple[str, ...] = ()

    def reset(self, task: Task) -> str:
        """Ask, tell what is known, and open the home page."""
        self._brief = split_draw(task, self._draw)
        self._site, self._seed, self._turn, self._num_loads = self._brief.site, task.seed, 0, 0
        self._pages = dict(self._site.pages)
        self._seen, self._is_done = frozenset(), False
        self._opened, self._notes = frozenset(), ()
        self._load((HOME,))
        asked = ", ".join(f"{fact} of {thing}" for fact, thing in self._brief.asked)
        told = ", ".join(
            f"{about.fact} of {about.thing} {self._truth(about)}"
            for about in self._brief.asked
            if about in self._brief.known
        )
        return f"Report: {asked}. Known: {told or 'nothing'}. {self._view()}"

    def _draw(self, rng: random.Random) -> Brief:
        """Return a task: facts of different things."""
        site = draw_site(self._layout, rng)
        things = [name for name, page in site.pages if page.facts]
        asked = tuple(Asked(rng.choice(FACTS), thing) for thing in rng.sample(things, self._num_asked))
        return Brief(site=site, asked=asked, known=tuple(a for a in asked if rng.random() < self._known))

    def _truth(self, about: Asked) -> int:
        """Return what the site says of a thing."""
        return dict(self._pages[about.thing].facts)[about.fact]

    def missing(self) -> list[Asked]:
        """Return what is asked for that was neither told nor stands on a page that was opened."""
        told = self._brief.known
        return [a for a in self._brief.asked if a not in told and a.thing not in self._opened]

    def step(self, action: Action) -> StepResult:
        """Browse, note or report."""
        words = " ".join(action.text.lower().split())
        verb, _, rest = words.partition(" ")
        self._turn += 1
        if action.error is None and verb == "note" and rest:
            self._notes = (*self._notes, rest)
            return StepResult(observation=self._describe_page(), is_success=False)
        if action.error is None and verb == "report" and rest:
            return self._report(rest)
        if action.error is not None or words not in self.possible():
            said = action.error or f"nothing happens; report like this: {FORM}"
            return StepResult(
                observation=f"Error: {said}. {self._describe_page()}", is_success=False, is_valid=False
            )
        is_needed = bool(self.missing())
        before = self._num_loads
        self._carry_out(words)
        if self._popup < 0:
            self._opened |= {self._stack[-1]}
        if self._num_loads == before:
            return StepResult(observation=self._describe_page(), is_success=False)
        terms = {"browsing" if is_needed else "needless_browsing": -self._cost}
        return StepResult(
            observation=self._describe_page(), reward=-self._cost, is_success=False, reward_terms=terms
        )

    def _report(self, report: str) -> StepResult:
        """Grade a report, which ends the episode."""
        brief = self._brief
        truth = {about: self._truth(about) for about in brief.asked}
        found = grade(read_claims(report), brief.asked, truth, opened=self._opened, known=brief.known)
        self._is_done = found.value == 1
        terms = {"coverage": COVERAGE * found.coverage, "support": (1 - COVERAGE) * found.support}
        return StepResult(
            observation=f"Covered {found.coverage:.0%}, supported {found.support:.0%}.",
            reward=sum(terms.values()),
            is_terminated=True,
            is_success=self._is_done,
            reward_terms=terms,
        )

    def _describe_page(self) -> str:
        """Return the page, and what was noted."""
        notes = f" Notes: {'; '.join(self._notes)}." if self._shows and self._notes else ""
        return f"{self._view()}{notes}"

    def progress(self) -> float:
        """Return the share of what is asked for that is known by now, 1 after a full report."""
        return 1.0 if self._is_done else 0.9 * (1 - len(self.missing()) / len(self._brief.asked))

    def possible(self) -> tuple[str, ...]:
        """Return the clicks and ways back that have an effect; notes and reports are written freely."""
        if self._popup >= 0:
            return self._buttons()
        depth = len(self._stack) - 1
        links = (f"click {label}" for label, _ in self._pages[self._stack[-1]].links)
        return (*links, *["back"] * (depth > 0), *(f"back {count}" for count in range(2, depth + 1)))

    def expert_action(self) -> Action:
        """Return the next action of one who opens what is not known, notes it, and reports with citations."""
        unnoted = self._find_unnoted()
        if unnoted is not None:
            return Action(text=f"note {unnoted}")
        missing = self.missing()
        if not missing:
            claims = [
                Claim(a, self._truth(a), KNOWN if a in self._brief.known else a.thing)
                for a in self._brief.asked
            ]
            return Action(text=f"report {'; '.join(claim.words() for claim in claims)}")
        self._site = replace(
            self._site, goal=Goal(kind="open", target=missing[0].thing), route=self._way(missing[0].thing)
        )
        return Action(text=self._expert_words())

    def _find_unnoted(self) -> str | None:
        """Return what the page that is open says of what is asked for, if it was not noted yet."""
        here = self._stack[-1]
        for about in self._brief.asked if self._shows and self._popup < 0 else ():
            note = f"{about.fact} of {about.thing} is {self._truth(about)}" if about.thing == here else ""
            if note and note not in self._notes:
                return note
        return None

    def _way(self, thing: str) -> tuple[str, ...]:
        """Return the pages from home to the page of `thing`."""
        *size, _, kind = thing.split()
        listed = f"{kind}s"
        way = {1: (), 2: (listed,), 3: (listed, f"{' '.join(size)} {listed}")}[self._layout.depth]
        return (HOME, *way, thing)

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return a report too early or with a wrong page, or a click that leads nowhere or is not needed."""
        if rng.random() < 0.4:
            about = rng.choice(self._brief.asked)
            page = rng.choice([KNOWN, HOME, about.thing])
            return Action(text=f"report {Claim(about, rng.randint(2, 99), page).words()}")
        return super().mistaken_action(rng)

    def snapshot(self) -> ResearchState:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the task, the browser, what was opened and what was noted."""
        return self._brief, super().snapshot(), self._opened, self._notes

    def restore(self, state: ResearchState) -> None:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        """Continue from a snapshot."""
        self._brief, browser, self._opened, self._notes = state
        super().restore(browser)

    def state_key(self) -> str:
        """Return the browser, what was opened and what was noted."""
        return repr((super().state_key(), sorted(self._opened), self._notes))
