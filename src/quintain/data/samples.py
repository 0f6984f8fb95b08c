"""Trajectories to token streams: one `Sample` per segment, exactly as it was sampled.

A turn with `starts_segment` begins a new stream; any other turn continues the stream of its seat's turn before. The
prompt of a turn has loss weight 0, what the policy sampled has 1. Trained tokens = sampled tokens, asserted on every
call.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quintain.errors import DataError, InvariantError
from quintain.types import Completion, Constraint, Credit, Pair, Sample, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class _Choice:
    """A turn that was drawn from candidates."""

    trajectory: int
    turn: int
    completion: Completion
    prompt: slice
    """where its stream, up to what was sampled in it, lies on the tape"""


@dataclass(slots=True)
class _Tape:
    """All streams end to end, as runs of prompt and of sampled tokens in turn; numbers of the sampled only.

    One tape for the whole step keeps numpy out of the loop over turns.
    """

    token_ids: list[int] = field(default_factory=list[int])
    runs: list[int] = field(default_factory=list[int])
    run_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    starts: list[int] = field(default_factory=list[int])
    """place on the tape at which each stream begins"""
    owners: list[int] = field(default_factory=list[int])
    """trajectory of each stream"""
    versions: list[int] = field(default_factory=list[int])
    """of the weights that each sampled token was sampled with, where that is asked for"""
    has_versions: bool = False
    has_candidates: bool = False
    choices: list[_Choice] = field(default_factory=list[_Choice])
    """turns that were drawn from candidates, where these are to be streams"""
    constraints: list[tuple[int, Constraint]] = field(default_factory=list[tuple[int, Constraint]])
    """place on the tape at which each completion begins whose log-probs are among the allowed tokens"""

    def add(self, index: int, trajectory: Trajectory) -> None:
        for place, number in enumerate(in_streams(trajectory)):
            turn = trajectory.turns[number]
            if turn.starts_segment or not place:
                self.starts.append(len(self.token_ids))
                self.owners.append(index)
            completion = turn.completion
            num = len(completion.token_ids)
            if num and not turn.prompt_ids and self.starts[-1] == len(self.token_ids):
                raise InvariantError(
                    f"prompt of turn {number}: got none; a stream cannot begin with a sampled token"
                )
            if completion.logprobs and len(completion.logprobs) != num:
                got = len(completion.logprobs)
                raise InvariantError(
                    f"log-probs of the {num} tokens of turn {number}: got {got}; report this"
                )
            self.token_ids += turn.prompt_ids
            if self.has_candidates and completion.candidates:
                prompt = slice(self.starts[-1], len(self.token_ids))
                self.choices.append(_Choice(index, number, completion, prompt))
            if completion.constraint is not None and completion.logprobs:
                self.constraints.append((len(self.token_ids), completion.constraint))
            self.token_ids += completion.token_ids
            self.runs += (len(turn.prompt_ids), num)
            self.run_ids += (-1, number)
            self.logprobs += completion.logprobs or (0.0,) * num
            if self.has_versions:
                self.versions += token_versions(completion)

    def samples(self, advantages: NDArray[np.float32], returns: NDArray[np.float32] | None) -> list[Sample]:
        """Return the streams in which something was sampled; the arrays hold the sampled tokens only."""
        runs = np.array(self.runs, np.int64)
        turn_id = np.repeat(np.array(self.run_ids, np.int64), runs)
        mask = turn_id >= 0
        turn_end = np.zeros(len(mask), np.bool_)
        turn_end[np.cumsum(runs)[1::2][runs[1::2] > 0] - 1] = True

        def place(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
            array = np.zeros(len(mask), np.float32)
            array[mask] = numbers
            return array

        versions = None
        if self.has_versions:
            versions = np.zeros(len(mask), np.int64)
            versions[mask] = self.versions
        whole = Sample(
            token_ids=np.array(self.token_ids, np.int64),
            loss_weight=mask.astype(np.float32),
            logprobs=place(np.array(self.logprobs, np.float32)),
            advantages=place(advantages),
            returns=np.zeros(len(mask), np.float32) if returns is None else place(returns),
            turn_id=turn_id,
            turn_end=turn_end,
            trajectory=-1,
            versions=versions,
            constraints=tuple(self.constraints),
        )
        candidates = [
            each for number, own in enumerate(self.choices) for each in _candidates(whole, own, number)
        ]
        for own in self.choices:
            chosen = slice(own.prompt.stop, own.prompt.stop + len(own.completion.token_ids))
            turn_id[chosen], turn_end[chosen], whole.loss_weight[chosen] = -1, False, 0
        ends = [*self.starts[1:], len(mask)]
        cuts = zip(self.owners, self.starts, ends, strict=True)
        is_trained = whole.loss_weight > 0
        streams = [
            _cut(whole, owner, slice(start, end)) for owner, start, end in cuts if is_trained[start:end].any()
        ]
        return streams + candidates


def _candidates(whole: Sample, choice: _Choice, number: int) -> Iterator[Sample]:
    """Yield the streams of the choice with this `number`: its prompt with each of its candidates.

    What was chosen is trained at its first token alone; what is said of that stands at the first of all others, too.
    """
    prompt, place = whole.token_ids[choice.prompt], choice.prompt.stop
    candidates, chosen = choice.completion.candidates, choice.completion.token_ids
    index = next(i for i, each in enumerate(candidates) if each.token_ids == chosen)
    for i, each in enumerate(candidates):
        start, end = len(prompt), len(prompt) + len(each.token_ids)
        first, own = slice(start, start + 1), slice(start, end)
        turn_id = np.full(end, -1, np.int64)
        turn_id[own] = choice.turn
        yield Sample(
            token_ids=np.concatenate([prompt, np.array(each.token_ids, np.int64)]),
            loss_weight=_zeros(whole.loss_weight, end, first, float(i == index)),
            logprobs=_zeros(whole.logprobs, end, own, each.logprobs),
            advantages=_zeros(whole.advantages, end, first, whole.advantages[place]),
            returns=_zeros(whole.returns, end, first, whole.returns[place]),
            turn_id=turn_id,
            turn_end=_zeros(whole.turn_end, end, slice(end - 1, end), True),
            trajectory=choice.trajectory,
            versions=None
            if whole.versions is None
            else _zeros(whole.versions, end, own, whole.versions[place]),
            choice=number,
            score_length=each.length,
        )


def _zeros(like: NDArray[Any], size: int, place: slice, numbers: Any) -> NDArray[Any]:
    """Return `size` zeros of the type of `like`, with `numbers` at `place`."""
    array = np.zeros(size, like.dtype)
    array[place] = numbers
    return array


def _cut(whole: Sample, trajectory: int, place: slice) -> Sample:
    return Sample(
        token_ids=whole.token_ids[place],
        loss_weight=whole.loss_weight[place],
        logprobs=whole.logprobs[place],
        advantages=whole.advantages[place],
        returns=whole.returns[place],
        turn_id=whole.turn_id[place],
        turn_end=whole.turn_end[place],
        trajectory=trajectory,
        versions=None if whole.versions is None else whole.versions[place],
        constraints=tuple(
            (at - place.start, each) for at, each in whole.constraints if place.start <= at < place.stop
        ),
    )


def token_versions(completion: Completion) -> list[int]:
    """Return for each sampled token the version of the weights that it was sampled with."""
    num = len(completion.token_ids)
    spans = completion.version_spans or ((0, completion.policy_version),)
    ends = [first for first, _ in spans[1:]] + [num]
    return [v for (first, v), end in zip(spans, ends, strict=True) for _ in range(first, end)]


def in_streams(trajectory: Trajectory) -> Sequence[int]:
    """Return the numbers of the turns of `trajectory`, seat by seat: the order in which tokens follow each other."""
    seats = {turn.seat for turn in trajectory.turns}
    if len(seats) == 1:
        return range(len(trajectory.turns))
    places: dict[str, list[int]] = {}
    for number, turn in enumerate(trajectory.turns):
        places.setdefault(turn.speaker, []).append(number)
    return [number for numbers in places.values() for number in numbers]


def since_segment(turns: Sequence[Turn], seat: str = "agent") -> Sequence[Turn]:
    """Return the turns of the newest token stream of `seat` in `turns`."""
    own = [turn for turn in turns if turn.speaker == seat]
    starts = [place for place, turn in enumerate(own) if turn.starts_segment]
    return own[starts[-1] :] if starts else own


def whole_prompt(before: Sequence[Turn], turn: Turn) -> tuple[int, ...]:
    """Return all ids that stood before what was sampled in `turn`, which follows the turns `before`."""
    if turn.starts_segment:
        return turn.prompt_ids
    stream = [
        i for t in since_segment(before, turn.speaker) for i in (*t.prompt_ids, *t.completion.token_ids)
    ]
    return (*stream, *turn.prompt_ids)


def samples_from(credit: Credit, *, has_versions: bool = False, has_candidates: bool = False) -> list[Sample]:
    """Return one `Sample` per token stream of `credit.trajectories`; streams in which nothing was sampled go.

    `has_versions`: say of each token by which weights it was sampled, where they may differ. `has_candidates`: let each
    candidate of a turn that was drawn from some be a stream of its own, after that turn's prompt; the turn is then
    trained as one action (`losses.actions.by_action`), with the advantage and the return of its first token. Turns that
    `credit` does not train are context: they have no loss weight and no advantage.

    Raises `InvariantError` when credit and tokens do not fit, when a log-prob, advantage or return is not
    finite, or when the trained tokens are not exactly the sampled ones.
    """
    tape = _Tape(has_versions=has_versions, has_candidates=has_candidates)
    for index, trajectory in enumerate(credit.trajectories):
        tape.add(index, trajectory)
    advantages = _flat(credit, credit.advantages, "advantages")
    returns = None if credit.returns is None else _flat(credit, credit.returns, "returns")
    if not tape.token_ids:
        return []
    if not np.isfinite(tape.logprobs).all():
        raise InvariantError(
            "log-probs of sampled tokens: got one that is not finite; record a Failure instead"
        )
    samples = tape.samples(advantages, returns)
    _check(credit, samples, tape.choices)
    return samples if credit.is_trained is None else _mask_turns(samples, credit.is_trained)


def _mask_turns(samples: Sequence[Sample], is_trained: Sequence[Sequence[bool]]) -> list[Sample]:
    """Return `samples` with the turns that are not trained as context; streams without another turn go.

    The candidates of a choice stay or go together.
    """
    found: list[Sample] = []
    for sample in samples:
        kept = np.array([*is_trained[sample.trajectory], False])[sample.turn_id]  # a prompt's turn is -1
        if kept.any():
            masked = replace(
                sample,
                loss_weight=np.where(kept, sample.loss_weight, np.float32(0)),
                advantages=np.where(kept, sample.advantages, np.float32(0)),
            )
            found.append(masked)
    return found


def imitation_samples(
    trajectories: Sequence[Trajectory], *, is_left_out: Callable[[Turn], bool] | None = None
) -> list[Sample]:
    """Return the samples of `trajectories` with advantage 1 on every sampled token.

    Turns that `is_left_out` says yes to are context: their loss weight is 0.
    Raises `DataError` when there are none: nothing would be trained.
    """
    advantages = tuple(
        tuple(np.ones(len(turn.completion.token_ids), np.float32) for turn in trajectory.turns)
        for trajectory in trajectories
    )
    samples = samples_from(Credit(trajectories=tuple(trajectories), advantages=advantages))
    if not samples:
        raise DataError(
            f"samples to imitate: got none from {len(trajectories)} trajectories; loosen the filter"
        )
    return samples if is_left_out is None else [_without(s, trajectories, is_left_out) for s in samples]


def _without(
    sample: Sample, trajectories: Sequence[Trajectory], is_left_out: Callable[[Turn], bool]
) -> Sample:
    """Return `sample` with the turns that are left out as context."""
    turns = trajectories[sample.trajectory].turns
    left_out = [number for number, turn in enumerate(turns) if is_left_out(turn)]
    weight = np.where(np.isin(sample.turn_id, left_out), np.float32(0), sample.loss_weight)
    return replace(sample, loss_weight=weight)


def pair_samples(pairs: Sequence[Pair]) -> list[Sample]:
    """Return both sides of every pair, chosen first; pair i is trajectories 2·i (chosen) and 2·i + 1.

    At level "turn" the turns that both sides share token by token are context: their loss weight is 0.
    Raises `DataError` when there is no pair or when a side has no token to train on.
    """
    if not pairs:
        raise DataError("preference pairs: got none; lower the margin or collect outcomes that differ")
    samples: list[Sample] = []
    for index, pair in enumerate(pairs):
        context = num_shared(pair) if pair.level == "turn" else 0
        for is_chosen, trajectory in ((True, pair.chosen), (False, pair.rejected)):
            side = [_mask_context(sample, context) for sample in imitation_samples([trajectory])]
            side = [sample for sample in side if sample.loss_weight.any()]
            if not side:
                raise DataError(
                    f"pair {index} ({pair.chosen.task.id}): got a side without tokens; drop the pair"
                )
            at = 2 * index + (not is_chosen)
            samples += [replace(sample, trajectory=at, pair=index, is_chosen=is_chosen) for sample in side]
    return samples


def unrelated_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Return the streams of `samples`, each after the opening prompt of another: what KTO estimates its KL on.

    What an episode wrote is a draw that has nothing to do with another episode's prompt, so a policy that moved as a
    whole shows it there, and one that only learned which answer is good does not (arXiv 2402.01306, section 4.1).
    Streams take the next prompt that differs from theirs, in a circle; a stream that this makes longer than all of
    `samples` are goes, and where all prompts are the same, each keeps its own.
    """
    starts = [int(np.argmax(sample.turn_id >= 0)) for sample in samples]
    prompts = [sample.token_ids[:start] for sample, start in zip(samples, starts, strict=True)]
    distinct = list({prompt.tobytes(): prompt for prompt in prompts}.values())
    following = {
        one.tobytes(): other for one, other in zip(distinct, distinct[1:] + distinct[:1], strict=True)
    }
    longest = max((len(sample.token_ids) for sample in samples), default=0)
    found = [
        _after(sample, start, following[prompt.tobytes()])
        for sample, start, prompt in zip(samples, starts, prompts, strict=True)
    ]
    return [sample for sample in found if len(sample.token_ids) <= longest]


def _after(sample: Sample, start: int, prompt: NDArray[np.int64]) -> Sample:
    """Return `sample`, whose first sampled token is at `start`, with `prompt` in the place of what stood before it."""

    def move(array: NDArray[Any], before: float) -> NDArray[Any]:
        return np.concatenate([np.full(len(prompt), before, array.dtype), array[start:]])

    return replace(
        sample,
        token_ids=np.concatenate([prompt, sample.token_ids[start:]]),
        loss_weight=move(sample.loss_weight, 0),
        logprobs=move(sample.logprobs, 0),
        advantages=move(sample.advantages, 0),
        returns=move(sample.returns, 0),
        turn_id=move(sample.turn_id, -1),
        turn_end=move(sample.turn_end, False),
        versions=None if sample.versions is None else move(sample.versions, 0),
        constraints=tuple((at - start + len(prompt), each) for at, each in sample.constraints),
    )


def limit_length(
    samples: Sequence[Sample], max_length: int, *, overlong: Literal["error", "drop"] = "error"
) -> tuple[list[Sample], int]:
    """Return the samples whose streams have at most `max_length` tokens, and how many *streams* were dropped.

    With "drop", all streams of the trajectory, or of the pair, go together: half of one would be another
    objective. Nothing is ever cut. Raises `DataError` with "error", or when nothing is left.
    """
    long = [sample for sample in samples if len(sample.token_ids) > max_length]
    if long and overlong == "error":
        worst = max(len(sample.token_ids) for sample in long)
        raise DataError(
            f"streams of at most {max_length} tokens: got {len(long)} longer ones, up to {worst}; "
            'raise the limit or drop them with overlong="drop"'
        )
    gone = {_unit(sample) for sample in long}
    kept = [sample for sample in samples if _unit(sample) not in gone]
    if not kept:
        raise DataError(
            f"streams of at most {max_length} tokens: got none of {len(samples)}; raise the limit"
        )
    return kept, len(samples) - len(kept)


def _unit(sample: Sample) -> tuple[str, int]:
    return ("trajectory", sample.trajectory) if sample.pair < 0 else ("pair", sample.pair)


def _flat(credit: Credit, arrays: Sequence[Sequence[NDArray[np.float32]]], name: str) -> NDArray[np.float32]:
    """Return `arrays` [trajectory][turn][token] end to end, checked against the sampled tokens."""
    want = [
        [len(turn.completion.token_ids) for turn in trajectory.turns] for trajectory in credit.trajectories
    ]
    got = [[len(array) for array in turns] for turns in arrays]
    if want != got:
        raise InvariantError(f"{name} of the sampled tokens: got {got}; the tokens sampled are {want}")
    ordered = (
        turns[number]
        for trajectory, turns in zip(credit.trajectories, arrays, strict=True)
        for number in in_streams(trajectory)
    )
    flat = np.concatenate([np.zeros(0, np.float32), *ordered])
    if not np.isfinite(flat).all():
        raise InvariantError(
            f"{name} of the sampled tokens: got one that is not finite; record a Failure instead"
        )
    return flat


def _check(credit: Credit, samples: Sequence[Sample], choices: Sequence[_Choice]) -> None:
    trained = [0] * len(credit.trajectories)
    for sample in samples:
        trained[sample.trajectory] += int(sample.loss_weight.sum())
    sampled = [trajectory.num_sampled for trajectory in credit.trajectories]
    for own in choices:  # counts once, however long it is
        sampled[own.trajectory] -= len(own.completion.token_ids) - 1
    if trained != sampled:
        raise InvariantError(
            f"trained tokens by trajectory: got {trained}; sampled were {sampled}; report this"
        )


def num_shared(pair: Pair) -> int:
    """Count the leading turns that are the same tokens on both sides."""
    both = zip(pair.chosen.turns, pair.rejected.turns, strict=False)
    shared = 0
    for left, right in both:
        if (left.prompt_ids, left.completion.token_ids) != (right.prompt_ids, right.completion.token_ids):
            break
        shared += 1
    return shared


def _mask_context(sample: Sample, num_context: int) -> Sample:
    weight = np.where(sample.turn_id < num_context, np.float32(0), sample.loss_weight)
    return replace(sample, loss_weight=weight)
