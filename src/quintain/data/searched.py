"""Episodes of searching agents: where a search stood, and the way that it found.

A search writes where it stands in front of what it shows (`with_head`), so that an episode says by itself which of its
actions lead to its end. What learns from recorded episodes learns from these alone, as if nobody had searched.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from quintain.types import Observation, Score, Stop, Text, Trajectory, as_content

HEAD = re.compile(r"\[search(?P<what>| judge| back| begin| end)(?P<way>(?: \d+)*)\]\n?")
ATTEMPT = "attempt"
"""Under which name the last turn of an attempt says what it came to, where an episode has several."""


def follow_found(trajectory: Trajectory) -> Trajectory:
    """Return an episode as that of an agent who went the way that a search found, and no other; others as they are.

    One who went back by actions (`quintain.agents.rollback`) went the whole way, which states were on offer left out.

    Each turn keeps its prompt, which holds the way to it alone; the last one has the reward of the whole way. A search
    that came to nothing leaves no turn.
    """
    what, way, last = split_head(trajectory.final_observation)
    if what != "end":
        heads = [split_head(turn.observation) for turn in trajectory.turns]
        if all(head[0] != "back" for head in heads):
            return trajectory
        turns = zip(trajectory.turns, heads, strict=True)
        shown = tuple(replace(turn, observation=head[2]) for turn, head in turns)
        return replace(trajectory, turns=shown, final_observation=last)
    found = [
        (turn, number)
        for turn, number in zip(trajectory.turns, number_actions(trajectory), strict=True)
        if number in way
    ]
    turns = [
        replace(turn, observation=split_head(turn.observation)[2], reward=0.0, reward_terms={})
        for turn, _ in found
    ]
    if turns:
        end = trajectory.turns[-1]
        turns[-1] = replace(turns[-1], reward=end.reward, reward_terms=end.reward_terms)
    return replace(trajectory, turns=tuple(turns), final_observation=last)


def follow_searches(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Yield `trajectories` without what a search tried in vain; one that came to nothing is left out."""
    for trajectory in trajectories:
        if (found := follow_found(trajectory)).turns or found is trajectory:
            yield found


def split_attempts(trajectory: Trajectory) -> list[Trajectory]:
    """Return each attempt of an evolving agent as an episode, paid for itself, in one group; of others nothing.

    So pairs are made of attempts at one task as of episodes. The first turn keeps what its attempt was told.
    """
    found, begin = list[Trajectory](), 0
    for number, turn in enumerate(trajectory.turns, start=1):
        if ATTEMPT not in turn.reward_terms:
            continue
        paid, is_last = turn.reward_terms[ATTEMPT], number == len(trajectory.turns)
        turns = [
            replace(each, observation=split_head(each.observation)[2], reward=0.0, reward_terms={})
            for each in trajectory.turns[begin:number]
        ]
        turns[-1] = replace(turns[-1], reward=paid)
        found.append(
            replace(
                trajectory,
                turns=tuple(turns),
                outcome=Score(value=paid, is_success=is_last and trajectory.is_success),
                stop=trajectory.stop if is_last else Stop.TERMINATED,
                final_observation=split_head(trajectory.final_observation)[2] if is_last else "",
                group=f"{trajectory.group}/{trajectory.index}",
                index=len(found),
                id="",
            )
        )
        begin = number
    return found


def number_actions(trajectory: Trajectory) -> list[int]:
    """Return the number of the action of each turn, from 0; turns in which nothing is done go with the next one."""
    found, number = list[int](), 0
    for turn in trajectory.turns:
        found.append(number)
        number += not turn.is_internal
    return found


def with_head(observation: Observation, what: str, way: Sequence[int]) -> Observation:
    """Return `observation` behind where the search stands. Example: "A wall." and (0, 3): "[search 0 3]\\nA wall."."""
    head = f"[search{f' {what}' if what else ''}{''.join(f' {number}' for number in way)}]\n"
    if isinstance(observation, str):
        return f"{head}{observation}"
    return (Text(text=head), *as_content(observation))


def split_head(observation: Observation) -> tuple[str, tuple[int, ...], Observation]:
    """Return what is asked (``judge``, ``end``, …, or nothing), where the search stands, and what is shown."""
    if isinstance(observation, str):
        text, rest = observation, ()
    else:
        first, *others = (*as_content(observation), Text(text=""))
        text, rest = (first.text, tuple(others[:-1])) if isinstance(first, Text) else ("", ())
    match = HEAD.match(text)
    if match is None:
        return "", (), observation
    left = text[match.end() :]
    way = tuple(map(int, match["way"].split()))
    if isinstance(observation, str):
        return match["what"].strip(), way, left
    return match["what"].strip(), way, (*([Text(text=left)] if left else []), *rest)
