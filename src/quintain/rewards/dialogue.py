"""R = R_task - λ_token · tokens/(most tokens of the group) + λ_loss/loss of the most surprising message: Optima.

What a dialogue is worth (arXiv 2410.08115, section 2.2): that it solves the task, in few tokens, in words that a model
which was not trained on them does not find strange. Without the last term the shortest dialogue is one of signs that
only its speakers understand. Tokens are counted against the longest dialogue of the same task, so that what a dialogue
is worth depends on its siblings. Two messages are twins by the edits that make one of them the other, for a tree in
which what was said before in other words is not tried again.
"""

from collections.abc import Sequence

from quintain.errors import UsageError


def dialogue_rewards(
    task: Sequence[float],
    tokens: Sequence[int],
    losses: Sequence[float],
    *,
    token_weight: float = 0.6,
    loss_weight: float = 1.0,
    min_loss: float = 1.0,
) -> list[float]:
    """Return what each dialogue of a group is worth.

    Example: task 1, 1, 0, tokens 10, 20, 40 and losses 2, 2, 4 → 1.35, 1.2, -.35.

    Args:
        task: what the environment paid.
        tokens: sampled tokens of each.
        losses: nats of its most surprising message under the base model, a mean over the message's tokens.
        token_weight: λ_token.
        loss_weight: λ_loss.
        min_loss: nats below which no message is plainer; what is certain would be worth any amount.

    Raises:
        UsageError: there are not as many of each, or `min_loss` is not above 0.
    """
    if not len(task) == len(tokens) == len(losses):
        raise UsageError(
            f"dialogues: got {len(task)} outcomes, {len(tokens)} lengths and {len(losses)} losses; give one of each"
        )
    if min_loss <= 0:
        raise UsageError(f"least loss of a message: got {min_loss}; give nats above 0")
    longest = max(tokens, default=0) or 1
    return [
        paid - token_weight * num / longest + loss_weight / max(loss, min_loss)
        for paid, num, loss in zip(task, tokens, losses, strict=True)
    ]


def edit_distance(one: Sequence[object], other: Sequence[object]) -> float:
    """Return the fewest insertions, deletions and replacements that make `one` the `other`, over the longer length.

    Example: "abcd" and "abd" → 1/4. Two empty ones are the same: 0.
    """
    row = list(range(len(other) + 1))
    for number, left in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, right in enumerate(other, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (left != right))
    return row[-1] / max(len(one), len(other), 1)


INTENTS = ("asks", "repeats", "looks", "decides", "talks")
"""What a speaker may be up to."""
LOOKING = frozenset({"find", "show", "stock"})
DECIDING = frozenset({"submit", "cancel", "refund", "exchange", "send", "refuse", "transfer"})


def intent_of(talk: Sequence[str], text: str) -> str:
    """Return which of `INTENTS` the utterance `text` has after `talk`, the other's words and our own in turn.

    A question asks for what is not known, or repeats: what it is about (its last word) was said, ``size: small``, or
    the same was asked before. A command of `LOOKING` looks something up, one of `DECIDING` decides; all else talks.

    Example: after "I want a lamp. color: red." it is asks for "ask size" and repeats for "ask color".
    """
    words = text.lower().split()
    verb = words[0] if words else ""
    if verb in LOOKING:
        return "looks"
    if verb in DECIDING:
        return "decides"
    if verb != "ask" and not text.rstrip().endswith("?"):
        return "talks"
    about = words[-1].strip("?.,!") + ":"
    said = {word for theirs in talk[::2] for word in theirs.lower().split()}
    is_known = about in said or any(text.lower() == own.lower() for own in talk[1::2])
    return "repeats" if is_known else "asks"
