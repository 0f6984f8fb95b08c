"""Plans that a person may correct before they are acted on.

The planner of `PlanAndAct` drafts; a person sees the draft and edits it in the words of a plan's edits (`plan.edit`);
what is acted on is the corrected plan. Each plan begins a token stream of its own, which ends with it, so a draft can
be taken back: in the episode that is kept the planner said the corrected plan, without log-probs, as in a
demonstration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from quintain.agents.deliberation import describe_action
from quintain.agents.plan import Plan, PlanAndAct, PlanSession, edit, planner_text
from quintain.agents.protocol import Agent, Brief
from quintain.errors import UsageError
from quintain.types import Action, Completion, Observation, Trajectory, as_text

PLAN = "plan"
Correct = Callable[[str, Plan, str], str]
"""(what the planner was shown, its plan, why the last correction was refused or "") → edits; "" keeps the plan"""


@dataclass(frozen=True, slots=True)
class CorrectedPlans:
    """`agent`, whose plans `correct` may edit; `said` gets what each plan became, in order, for `put_plans`."""

    agent: PlanAndAct
    correct: Correct
    said: list[Completion] = field(default_factory=list[Completion])

    def open(self, brief: Brief) -> CorrectedSession:
        """See `Agent.open`."""
        return CorrectedSession(self, brief)


class CorrectedSession(PlanSession):
    """An episode of `CorrectedPlans`."""

    def __init__(self, settings: CorrectedPlans, brief: Brief) -> None:
        super().__init__(settings.agent, brief)
        self._corrected, self._chat = settings, settings.agent.chat

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a plan is what the person makes of it."""
        if self._is_planning:
            completion = self._correct(completion)
            self._corrected.said.append(completion)
        return super().read(completion)

    def _correct(self, completion: Completion) -> Completion:
        """Return `completion`, or the plan that was made of it, once that fits a plan's tokens."""
        draft = edit(self.plan, self._words.read(completion))
        seen: Observation = self._seen[0]
        shown, problem = f"{as_text(seen)}\n{planner_text(self.plan, self._done)}", ""
        while typed := self._corrected.correct(shown, draft, problem).strip():
            wanted = edit(draft, typed)
            ids, most = self._chat.write(wanted.text), self._words.max_tokens
            if wanted == draft:
                problem = f"plan: got {typed!r:.60}, which changes nothing; an empty line keeps it"
            elif not wanted.steps:
                problem = "plan: got an edit that leaves no step; leave one, or add another"
            elif len(ids) > most:
                problem = f"plan: got {len(ids)} tokens where {most} are written; make it shorter"
            else:
                return replace(completion, token_ids=ids, logprobs=(), stop="stop", version_spans=())
        return completion


def correct_plans(agent: Agent, correct: Correct) -> CorrectedPlans:
    """Return `agent` with plans that are corrected.

    Raises:
        UsageError: it is no planner that acts itself, or criticises its own drafts.
    """
    if not isinstance(agent, PlanAndAct) or agent.actor != "policy" or agent.critiques:
        raise UsageError(
            f"plans to be corrected: got a harness {type(agent).__name__}, which shows none; take a run of "
            "agent=plan+..., with actor=policy and without critiques"
        )
    return CorrectedPlans(agent, correct)


def put_plans(trajectory: Trajectory, said: list[Completion]) -> Trajectory:
    """Return `trajectory` whose planner said what is in `said`, plan by plan.

    Example: turns plan, act, plan, act and two completions → the first and third turn have these completions.
    """
    plans = iter(said)
    turns = tuple(
        replace(turn, completion=next(plans)) if turn.has_role(PLAN) else turn for turn in trajectory.turns
    )
    return replace(trajectory, turns=turns)


def tell_turns(trajectory: Trajectory) -> list[str]:
    """Return a line for each turn: who spoke, what was done, what it paid."""
    return [
        f"[{turn.seat}{f', reward {turn.reward:g}' if turn.reward else ''}] {describe_action(turn.action)}"
        for turn in trajectory.turns
        if not turn.has_role(PLAN)
    ]
