"""A guard at the recording endpoint, where calls cannot be prevented: it takes them out of answers.

What an agent outside does with an answer is its own business. So the client is never handed a call that is refused, and
the answer, which is then another than what was sampled, is marked (`Turn.facts`) and not trained. The guard is asked
anew for each answer, with the chat that it answers: so it goes back where a client goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from quintain.safety.guard import Guard, Verdict
from quintain.serve.chat_types import AssistantMessage
from quintain.types import Action, Task

SERVED = Task(id="served", environment="served", seed=0)


def remove_refused(
    make_guard: Callable[[], Guard], history: Sequence[AssistantMessage], spoken: AssistantMessage
) -> tuple[AssistantMessage, tuple[str, ...]]:
    """Return what is left of the answer `spoken` to `history`, and the names of the tools whose calls were taken out.

    Where no call is left, the answer says why. Nobody is there to be asked, and no episode can be ended: both are
    refusals here.
    """
    guard = replay_chat(make_guard(), history)
    verdicts: list[Verdict] = [guard.judge(Action(tool_calls=(call,))) for call in spoken.calls]
    kept = [place for place, verdict in enumerate(verdicts) if verdict.effect == "allow"]
    if len(kept) == len(verdicts):
        return spoken, ()
    left = replace(
        spoken,
        calls=tuple(spoken.calls[place] for place in kept),
        names=tuple(spoken.names[place] for place in kept) if spoken.names else (),
    )
    if not kept:
        reasons = dict.fromkeys(verdict.says.removeprefix("Error: ") for verdict in verdicts)
        left = replace(left, text="\n".join(filter(None, (spoken.text, *reasons))))
    return left, tuple(call.name for place, call in enumerate(spoken.calls) if place not in kept)


def replay_chat(guard: Guard, history: Sequence[AssistantMessage]) -> Guard:
    """Return `guard` as it is after `history`: what was called, and what that and the user said.

    The first message of the user is the task; what they say later answers words.
    """
    has_begun = False
    called: dict[str, Action] = {}
    for message in history:
        if message.role == "user" and not has_begun:
            guard.begin(SERVED, message.text)
            has_begun = True
        elif message.role == "user":
            guard.see((Action(),), message.text)
        elif message.role == "assistant":
            for place, call in enumerate(message.calls):
                action = Action(tool_calls=(call,))
                guard.judge(action)
                called[message.names[place] if place < len(message.names) else call.name] = action
        elif message.role == "tool" and message.names[:1] and message.names[0] in called:
            guard.see((called[message.names[0]],), message.text)
    if not has_begun:
        guard.begin(SERVED, "")
    return guard
