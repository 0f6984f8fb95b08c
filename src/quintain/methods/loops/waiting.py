"""A step that waits for people: they answer by ``quintain label``, and the run goes on when they have."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from quintain.errors import DataError
from quintain.types.terminal import write_command

if TYPE_CHECKING:
    from quintain.learning.labelling import Session
    from quintain.runs.context import TrainingContext

TICK = 0.5
"""Seconds between two looks at the answers."""


def wait_for_answers(
    context: TrainingContext, session: Session, wanted: Collection[str], *, step: int, hours: float
) -> None:
    """Return when somebody has answered each of the questions `wanted` of `session`.

    Raises:
        DataError: nobody did for as long as the step may wait; what was done before it is saved.
        KeyboardInterrupt: the user asked to stop, and so it is then.
    """
    names = set(wanted)
    deadline = time.monotonic() + 3600 * hours
    done = -1
    while True:
        answered = len(names & {label.query for label in session.labels.given})
        if answered == len(names):
            return
        if done < 0:
            context.display.say(
                f"step {step} waits for {len(names) - answered} answers: "
                f"{write_command('quintain', 'label', session.file)} --labeller NAME"
            )
            context.display.phase("answers", len(names), answered)
        elif answered > done:
            context.display.advance(answered - done)
        done = answered
        context.stop_if_asked(step - 1)
        if time.monotonic() > deadline:
            if context.run.next_step < step:
                context.save(step - 1)
            raise DataError(
                f"labels of step {step} in {session.file}: got {answered} of {len(names)} within "
                f"{hours:g} hours; answer the others by quintain label"
            )
        time.sleep(TICK)
