"""What to change when an alarm holds, made from the options of the method that runs.

A cure is a list of things to do, one of which names a flag only if the running method has that option. For an option
that it does not have there may be another cure, which names methods that have it.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from quintain.runs.monitors.alarms import Alarm

PAGE, WHY, WHICH = "docs/alarms.md", "docs/it-does-not-learn.md", "docs/which-method.md"
LOWER_RATE = "lower --learning-rate"
SHORTER = "lower --max-turn-tokens"
FROM_BEST = "go on from the best step, {step}: --model {run}@best"
LOOK = "look at what failed: quintain view {run}, quintain check ENVIRONMENT --load"
CURES: Mapping[str, Sequence[str]] = {
    "unreadable": (
        FROM_BEST,
        LOWER_RATE,
        "show more answers that can be read: more --demonstrations",
        "raise --max-turn-tokens if answers are cut off",
        "let the engine write nothing but calls: --agent constrained",
    ),
    "tool_failures": ("mend the tool or what it waits for: quintain view {run} shows the calls",),
    "invalid_calls": (
        "show how it is called: more --demonstrations, or an expert_action()",
        "take a schema with fewer choices",
    ),
    "tool_coverage": ("ask for tasks that need the others", LOWER_RATE),
    "zero_variance": (
        "warm start it: --demonstrations, or an expert_action()",
        "take easier tasks, or pay for steps on the way",
        "take a larger --group-size",
        "raise --entropy-coef (0.01) where the episodes of a task all do the same",
    ),
    "zero_variance/learned": ("take harder options of the environment", "stop here"),
    "boundary": (LOWER_RATE, "set --kl-coef", FROM_BEST, "mix the earlier tasks in"),
    "canaries": ("make the grader ask for what only a right answer has",),
    "entropy": (LOWER_RATE, "set --entropy-coef", FROM_BEST),
    "ngrams": (SHORTER, "price length in the reward", LOWER_RATE),
    "diversity": ("look at the reward: is it paid for one answer to all tasks?", LOWER_RATE),
    "length": ("price length or tokens by --rewards", SHORTER),
    "length_advantage": ("normalise by length (dr_grpo, dapo)", "price what is long"),
    "reward_share": ("scale that term down, or the others up",),
    "hacking": ("read the transcripts kept with this alarm and close the gap in the reward",),
    "overoptimised": (
        FROM_BEST,
        "raise --kl-coef",
        "rank answers of this policy and train the reward model on them as well",
    ),
    "judge": (FROM_BEST, "judge with another model", "mix demonstrations of judging in"),
    "unread": ("mend the rubric", "allow longer answers", "take a stronger model as judge"),
    "failures": (LOOK,),
    "stop_failures": (LOOK,),
    "retries": ("mend what breaks: what is left of the episodes may be the easy ones",),
    "cost": ("price tokens or turns by --rewards", SHORTER),
    "lost_branches": (
        "draw all chance of the environment from task.rng",
        "give it a state_key() without what changes by itself, such as a clock",
        "take a method that plays whole episodes (eto, rft, grpo)",
    ),
    "chosen": ("raise --imitation-weight", "raise --beta", LOWER_RATE, FROM_BEST),
}
"""What to do, by the name of an alarm, and by name and subject where that is a case of its own."""
INSTEAD: Mapping[str, str] = {
    "set --kl-coef": "take a method that is held at its start (--kl-coef of grpo, gigpo or rloo)",
    "set --entropy-coef": "take a method with an entropy bonus (--entropy-coef of grpo or policy_gradient)",
    "price length or tokens by --rewards": "price length in the environment's reward (or policy_gradient --rewards)",
    "price tokens or turns by --rewards": "price turns in the environment's reward (or policy_gradient --rewards)",
}
"""What is said in the place of a thing to do that the running method has no option for."""
OUTSIDE: Mapping[str, str] = {
    "show more answers that can be read: more --demonstrations": "show more answers that can be read: --agent "
    "…&expert=FUNCTION, with more --demonstrations",
    "let the engine write nothing but calls: --agent constrained": 'ask for a call alone: tool_choice="required"',
    "warm start it: --demonstrations, or an expert_action()": "warm start it: --agent …&expert=FUNCTION",
    "show how it is called: more --demonstrations, or an expert_action()": "show how it is called: --agent "
    "…&expert=FUNCTION, with more --demonstrations",
}
"""What is said in the place of a thing to do where the agent is a program of the user's own."""
FLAG = re.compile(r"--([a-z][a-z-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is known of the run that an alarm is raised in: ``Advice(options=["kl_coef"], run="runs/a", best=25)``."""

    options: Collection[str]
    """of the configuration of its method"""
    run: str = "RUN"
    """its folder"""
    best: int | None = None
    """the step that did best on what is held out; None where none is the best"""
    is_outside: bool = False
    """whether the agent is a program of the user's own, which talks to a base_url"""

    def cure(self, alarm: Alarm) -> str:
        """Return what to change where `alarm` holds."""
        parts = CURES.get(f"{alarm.name}/{alarm.subject}", CURES[alarm.name])
        fitting = [found for part in parts if (found := self.part(part))]
        return ", or ".join(fitting) if fitting else "see the page"

    def part(self, text: str) -> str:
        """Return one thing to do as it is said of this run, or what is said in its place; empty for nothing."""
        if text == FROM_BEST and self.best is None:
            return ""
        text = OUTSIDE.get(text, text) if self.is_outside else text
        if "quintain " not in text and any(
            flag.replace("-", "_") not in self.options for flag in FLAG.findall(text)
        ):
            return INSTEAD.get(text, "")
        return text.format(run=self.run, step=self.best)

    def describe(self, alarm: Alarm, answer: str = "") -> str:
        """Return what is wrong (with an `answer` as an example), what to change, and where more is said."""
        example = f", such as {answer!r}" if answer else ""
        pages = f"{PAGE}#{alarm.name}" if alarm.is_note else f"{PAGE}#{alarm.name}, {WHY}, {WHICH}"
        return f"{alarm.message}{example}; {self.cure(alarm)} ({pages})"
