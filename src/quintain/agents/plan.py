"""Plan and act: a planner writes numbered steps, an executor acts on them (Plan-and-Act, arXiv 2503.09572).

One model plays both roles in contexts of their own: the planner sees the task, what was done, its last plan and the
newest observation; the executor sees the plan and what happened since. Every plan therefore starts a segment, and so
does the executor after it. With `replan_every` the plan is revised after so many actions (1 is the paper's dynamic
replanning), with 0 it stays. A plan is data; any text edits it somehow, and no text can break it.

Plan and actions may be of two policies: with ``seats={"agent": "reference", "agent/plan": "policy"}`` a run trains a
planner for an actor that rests. A demonstrated plan says the next action; with `demonstrates` all that the expert will
do: as calls (the P-code of PGPO, 2506.01475), by verbs alone, which name nothing (the meta plans of MPO, 2503.02682),
or as steps (Plan-and-Act), each of which covers the actions up to a change of progress and is said by the last of them,
in words that were seen by then: a plan never names what only a later page shows.
Without `sees_task` the plan stands in the place of the first observation: what the executor knows of the task is there.

With ``actor=scripted`` the policy does not act: it names one thing in each turn, and a script goes for that (see
`quintain.agents.scripted_actor`).

Differences to the paper: no separate models, and no chain of thought of its own; the planner may edit single steps
instead of writing the plan anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.agents.deliberation import Reopening, Words, describe_action, with_words
from quintain.agents.harness import PlainText, system_text
from quintain.agents.protocol import Agent, Brief, Prompt, Session, equip
from quintain.agents.rci import ACCEPTED, CRITICISE, IMPROVE, accepts
from quintain.agents.scripted_actor import LedWorld
from quintain.engines.protocol import Sampling
from quintain.environments.baselines import foreseen
from quintain.environments.protocol import (
    Environment,
    Expert,
    Progressing,
    Snapshot,
    advance,
    environment_name,
)
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Message, Observation, as_content, as_text

MAX_STEPS, MAX_SHOWN = 16, 8
PLANNER = (
    "You plan, another acts. Write a short plan, one numbered step per line. To change a plan you may instead "
    "write lines such as: keep, done 1, drop 2, change 2: STEP, add: STEP"
)
_CALL = re.compile(r"(\w+)\((.*)\)")
_NUMBERED = re.compile(r"\s*(\d{1,2})[.)]\s*(\S.*)")
_BOX = re.compile(r"\[([xX ])\]\s*(\S.*)")
_WORD = re.compile(r"[\w']+")
_EDIT = re.compile(r"\s*(done|drop|change|add)\s*(\d{1,2})?\s*:?\s*(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan."""

    text: str
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order: ``Plan((Step("take the key", True), Step("open the door")))``."""

    steps: tuple[Step, ...] = ()

    @property
    def text(self) -> str:
        """The plan, one numbered step per line; done steps are ticked."""
        lines = (f"{n}. {'[x] ' * step.is_done}{step.text}" for n, step in enumerate(self.steps, 1))
        return "\n".join(lines)


def edit(plan: Plan, text: str) -> Plan:
    """Return `plan` as the model's `text` edits it; any text is accepted.

    Numbered lines are a new plan: with ticks in it (``1. [x] STEP``) in the place of the whole one, without in the
    place of the steps that are not done, so that ``edit(plan, plan.text)`` is `plan`. Without numbered lines, lines
    ``done N``, ``drop N``, ``change N: STEP`` and ``add: STEP`` edit it, in their order and by the numbers of `plan`.
    Any other text keeps a plan, and is the one step of an empty one.
    """
    lines = text.splitlines()
    new = [_read_step(found[2]) for line in lines if (found := _NUMBERED.fullmatch(line))]
    if new:
        done = () if any(step.is_done for step in new) else (step for step in plan.steps if step.is_done)
        return Plan((*done, *new)[-MAX_STEPS:])
    steps: list[Step | None] = list(plan.steps)
    edits = [found for line in lines if (found := _EDIT.fullmatch(line))]
    for verb, number, words in (edit.groups() for edit in edits):
        _edit(steps, verb.lower(), int(number or 0) - 1, words.strip())
    kept = tuple(step for step in steps if step is not None)
    first = next((line.strip() for line in lines if line.strip()), "")
    if not (kept or edits) and first:
        kept = (_read_step(first),)
    return Plan(kept[-MAX_STEPS:])


def _read_step(text: str) -> Step:
    """Return the step that `text` writes: ``[x] take the key`` is done, ``[ ] take the key`` is not."""
    box = _BOX.fullmatch(text.strip())
    return Step(text.strip()) if box is None else Step(box[2], box[1] != " ")


def _edit(steps: list[Step | None], verb: str, at: int, words: str) -> None:
    """Change `steps` in place; a number without a step changes nothing."""
    if verb == "add":
        steps += [_read_step(words)] if words else []
        return
    step = steps[at] if 0 <= at < len(steps) else None
    if step is None:
        return
    changed = _read_step(words) if words else step
    steps[at] = {"done": Step(step.text, True), "drop": None, "change": changed}[verb]


def whole_plan(actions: Sequence[Action], *, names: bool) -> Plan:
    """Return the plan that says `actions` as calls, ``go(to fridge)``, or without `names` by verbs alone; none twice.

    Example: "go to fridge", "go to sink", "clean" → ``go(to fridge)``, ``go(to sink)``, ``clean()``, or go, clean.
    """
    steps = [_call(action) if names else _call(action).partition("(")[0] for action in actions]
    kept = [step for step, before in zip(steps, ["", *steps], strict=False) if step != before]
    return Plan(tuple(Step(step) for step in kept[:MAX_STEPS]))


def step_plan(steps: Sequence[Sequence[Action]], seen: str) -> Plan:
    """Return the plan that says each of `steps` by its last action, without words that are not in `seen`; none twice.

    Example: (go to sink, take mug), (heat) with "Goal: mug" seen, and what can be done → take mug, heat.
    """
    known = set(_WORD.findall(seen.lower()))
    said = [
        " ".join(word for word in _WORD.findall(describe_action(actions[-1])) if word.lower() in known)
        for actions in steps
    ]
    kept = [text for text, before in zip(said, ["", *said], strict=False) if text and text != before]
    return Plan(tuple(Step(text) for text in kept[:MAX_STEPS]))


def split_steps(actions: Sequence[Action], progress: Sequence[float]) -> list[tuple[Action, ...]]:
    """Return `actions` in order, cut behind each that changed the `progress`, which is one longer, and at the end.

    Example: a, b, c with progress 0, 0, .5, 1 → (a, b), (c).
    """
    steps: list[tuple[Action, ...]] = []
    first = 0
    for number in range(len(actions)):
        if progress[number + 1] != progress[number] or number + 1 == len(actions):
            steps.append(tuple(actions[first : number + 1]))
            first = number + 1
    return steps


def foresee_steps(environment: Environment, most: int = 64) -> list[tuple[Action, ...]]:
    """Return the steps in which the expert goes on from here; the environment is left as it is.

    Raises:
        UsageError: it has no expert, snapshots or progress.
    """
    if not (
        isinstance(environment, Expert)
        and isinstance(environment, Snapshot)
        and isinstance(environment, Progressing)
    ):
        raise UsageError(
            f"steps of a plan: got {environment_name(environment)}, which lacks an expert, snapshots or progress; take "
            "demonstrates=calls, or an environment that has them, such as web"
        )
    saved, actions, reached = environment.snapshot(), list[Action](), [float(environment.progress())]
    while len(actions) < min(most, environment.max_turns):
        actions.append(environment.expert_action())
        result = advance(environment, actions[-1])
        reached.append(float(environment.progress()))
        if result.is_over:
            break
    environment.restore(saved)
    return split_steps(actions, reached)


def _call(action: Action) -> str:
    """Return `action` as a call: its first word of what follows, or the first tool of its arguments."""
    if action.tool_calls:
        call = action.tool_calls[0]
        return f"{call.name}({', '.join(str(value) for value in call.arguments.values())})"
    verb, _, rest = action.text.partition(" ")
    return f"{verb}({rest})"


def are_calls(plan: Plan) -> bool:
    """Return whether `plan` has steps, and each of them is a call: ``go(to fridge)``."""
    return bool(plan.steps) and all(_CALL.fullmatch(step.text) for step in plan.steps)


def verbs(plan: Plan) -> frozenset[str]:
    """Return the verbs that `plan` calls or names: the first word of each step."""
    found = (_CALL.match(step.text) for step in plan.steps)
    return frozenset(
        call[1] if call else step.text.partition(" ")[0] for call, step in zip(found, plan.steps, strict=True)
    )


def does_step(action: Action, step: str) -> bool:
    """Return whether `action` does what `step` says: all words of the step stand in it, and there are some.

    Example: "go to fridge" does ``go(to fridge)``, ``go`` and ``fridge``, and not ``go(to sink)``.
    """
    said = set(_WORD.findall(f"{_call(action)} {describe_action(action)}".lower()))
    wanted = set(_WORD.findall(step.lower()))
    return bool(wanted) and wanted <= said


@dataclass(frozen=True, slots=True)
class PlanAndAct:
    """A planner in front of `agent`: ``PlanAndAct(ReAct(chat), chat, replan_every=4)``."""

    agent: Agent
    chat: Chat
    replan_every: int = 0
    """Actions after which the plan is revised; 0 never."""
    max_replans: int | None = None
    """Times that a plan is revised at most; none: as often as `replan_every` says."""
    max_tokens: int = 128
    """Tokens of a plan."""
    actor: Literal["policy", "scripted", "deaf"] = "policy"
    """Who acts on a plan: the policy itself through `agent`; or a script that goes for the one thing that the policy
    names in each turn, where the environment knows the way; or one that does not listen. Neither uses `agent`."""
    temperature: float = 1.0
    """Of what is said to a scripted actor; the policy as its own actor has that of `agent`."""
    demonstrates: Literal["next", "calls", "verbs", "steps"] = "next"
    """What a demonstrated plan says: the next action; or all that the expert will do, as calls, by verbs alone, or as
    steps in words that were seen by then."""
    sees_task: bool = True
    """Whether the executor is shown the task (its prompt, or the first observation) or the plan alone."""
    critiques: int = 0
    """Times that a new plan is criticised and improved, unless there is no problem with it (RCI, 2303.17491)."""

    def __post_init__(self) -> None:
        """Refuse settings that nothing would read."""
        if self.actor != "policy" and self.replan_every:
            raise UsageError(
                f"plan: got replan_every={self.replan_every} with actor={self.actor}, which is told one thing in each "
                "turn and has no plan; leave replan_every out, or let the policy act (actor=policy)"
            )
        if self.critiques < 0 or (self.actor != "policy" and self.critiques):
            raise UsageError(
                f"plan: got critiques={self.critiques} with actor={self.actor}; give none or more, and those "
                "only where there is a plan (actor=policy)"
            )

    def open(self, brief: Brief) -> Session:
        """See `Agent.open`."""
        if self.actor == "policy":
            return PlanSession(self, brief)
        return PlainText(self.chat, self.temperature, self.max_tokens).open(brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`."""
        if self.actor == "policy":
            return equip(self.agent, environment)
        return LedWorld(environment, is_deaf=self.actor == "deaf")


class PlanSession(Reopening):
    """An episode of `PlanAndAct`."""

    def __init__(self, settings: PlanAndAct, brief: Brief) -> None:
        """Begin without a plan."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._words = Words(settings.chat, settings.max_tokens)
        self._seen: tuple[Observation, tuple[str, ...]] = ("", ())
        self._done: list[str] = []
        self._since = self._num_replans = 0
        self._is_planning = self._is_criticising = False
        self._conversation, self._sampling = settings.chat.conversation(), Sampling()
        self._draft, self._critiques = "", 0
        self._shown = "\n".join((brief.task.prompt, brief.instructions))
        self.plan = self._told = Plan()
        """The plan so far; it may be replaced from outside, and the next prompt of the executor is told it."""

    def _prompt(self, observation: Observation, legal_actions: tuple[str, ...]) -> Prompt:
        """See `Reopening`: the planner's prompt when a plan is due, else the executor's."""
        self._seen = (observation, legal_actions)
        self._shown = f"{self._shown}\n{as_text(observation)}"
        every = self._settings.replan_every
        most = self._settings.max_replans
        is_revised = bool(every and self._since >= every) and (most is None or self._num_replans < most)
        is_due = not self.plan.steps or is_revised
        if not is_due:
            is_edited = self.plan is not self._told
            return self._tell() if is_edited else super()._prompt(observation, legal_actions)
        self._is_planning = True
        self._num_replans += bool(self.plan.steps)
        executor = self._agent.open(self._brief).observe(observation, legal_actions)
        self._conversation = self._settings.chat.conversation()
        self._critiques = self._settings.critiques
        system = Message(
            role="system", content=as_content(system_text(self.brief_without([observation]), PLANNER))
        )
        user = Message(
            role="user", content=as_content(with_words(observation, planner_text(self.plan, self._done)))
        )
        self._sampling = executor.sampling
        return self._ask_planner([system, user], "plan")

    def _ask_planner(self, messages: Sequence[Message], role: str, shows: str | None = None) -> Prompt:
        """Return the prompt after `messages` to the planner."""
        ids = self._conversation.prompt(messages)
        asked = Prompt(token_ids=ids.token_ids, starts_segment=ids.starts_segment, sampling=self._sampling)
        return self._words.ask(asked, role, shows)

    def _read_plan(self, completion: Completion) -> str | None:
        """Return the plan that is not criticised any more; None while there is more to say of it."""
        self._conversation.record(completion.token_ids)
        said, was_criticising = self._words.read(completion), self._is_criticising
        if not was_criticising:
            self._draft = said
        self._is_criticising = not was_criticising and self._critiques > 0
        if self._is_criticising:
            self._critiques -= 1
        elif not was_criticising or accepts(said):
            return self._draft
        words, role = (CRITICISE, "critique") if self._is_criticising else (IMPROVE, "plan")
        self._next = self._ask_planner([Message(role="user", content=as_content(words))], role, words)
        return None

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a plan, a critique of it, or the executor's action."""
        if self._is_planning:
            text = self._read_plan(completion)
            if text is None:
                return Action(text=self._words.read(completion))
            self._is_planning = False
            self.plan = edit(self.plan, text)
            self._since = 0
            self._next = self._tell()
            return Action(text=text)
        action = self._inner_read(completion)
        if self._next is None:
            self._since += 1
            self._done.append(describe_action(action))
        return action

    def more(self) -> Prompt | None:
        """See `Deliberates.more`; a plan that was replaced since it was written is told in the place of that."""
        if self._next is not None and not self._is_planning and self.plan is not self._told:
            self._next = self._tell()
        return super().more()

    def _tell(self) -> Prompt:
        """Open the executor anew with the plan, and return its prompt."""
        self._told = self.plan
        seen, legal = self._seen
        brief = self.brief_without([seen])
        if not self._settings.sees_task:
            brief = replace(brief, task=replace(brief.task, prompt=""))
        self._reopen(brief, f"Plan:\n{self.plan.text}")
        is_shown = self._settings.sees_task or bool(self._done)
        return self._inner.observe(seen if is_shown else "Begin.", legal)

    def foresee(self, environment: Environment) -> Action | None:
        """See `Foresees`: the expert's whole way, where a demonstrated plan is to say it."""
        said = self._settings.demonstrates
        if not self._is_planning or self._is_criticising or said == "next":
            return None
        if said == "steps":
            return Action(text=step_plan(foresee_steps(environment), self._shown).text or "1. look")
        return Action(text=whole_plan(foreseen(environment), names=said == "calls").text)

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a plan that is no whole one is that of the next action, and has no problem."""
        if not self._is_planning:
            return self._inner.write(action)
        if self._is_criticising:
            return self._words.write(ACCEPTED)
        said = describe_action(action)
        return self._words.write(said if said.startswith("1. ") else f"1. {said}")


@dataclass(frozen=True, slots=True)
class SuppliedPlans:
    """A planner whose plans are given: ``SuppliedPlans(agent, {"web/train/7": Plan((Step("open door"),))})``.

    What is given is not revised; who acts is told it as it is told a plan of the model's own.
    """

    agent: PlanAndAct
    plans: Mapping[str, Plan]
    """by the id of the task"""

    def open(self, brief: Brief) -> PlanSession:
        """See `Agent.open`.

        Raises:
            UsageError: there is no plan for the task.
        """
        plan = self.plans.get(brief.task.id, Plan())
        if not plan.steps:
            raise UsageError(
                f"plan for {brief.task.id}: got none; give one for each task that is played with plans"
            )
        session = PlanSession(self.agent, brief)
        session.plan = plan
        return session


def supply_plans(plans: Mapping[str, Plan]) -> Callable[[Agent], Agent]:
    """Return what gives a planning harness its `plans`, by the id of the task.

    Raises:
        UsageError: the harness is no planner, or does not act itself, when it is applied.
    """

    def wrap(agent: Agent) -> Agent:
        if not isinstance(agent, PlanAndAct) or agent.actor != "policy":
            raise UsageError(
                f"plans that are given: got a harness {type(agent).__name__}, which reads none; take agent=plan+..., "
                "with actor=policy"
            )
        return SuppliedPlans(replace(agent, replan_every=0), plans)

    return wrap


def planner_text(plan: Plan, done: Sequence[str]) -> str:
    """Return what the planner is told of the plan and of what was done."""
    parts = [f"Done so far: {'; '.join(done[-MAX_SHOWN:])}"] if done else []
    parts += [f"Plan so far:\n{plan.text}"] if plan.steps else []
    return "\n".join([*parts, "Write the plan."])
