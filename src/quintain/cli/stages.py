"""The stages that `quintain data` knows, by name: one table makes their list, their options and their page.

An option is a keyword of the function that makes the stage; a first parameter `given` is what was gathered, for stages
that ask about texts, tools or the environment of an episode.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from quintain.agents.catalog import AUTO
from quintain.config.fields import Option, parts_of
from quintain.config.spec import (
    parameters_of,
    read_numbers,
    read_options,
    refuse_twice,
    split_list,
    split_query,
)
from quintain.config.wording import show
from quintain.data import augmented, mixtures, stages
from quintain.data.calls import right_calls
from quintain.data.chat_form import in_chat
from quintain.data.negatives import mend_calls
from quintain.data.pipeline import Stage, remade
from quintain.data.thoughts import whole_text
from quintain.engines.chat_client import is_endpoint
from quintain.engines.judge import Judge
from quintain.errors import DataError, UsageError, suggestion
from quintain.rollout.verdicts import Verdicts
from quintain.types import Example, Trajectory, as_content, derive_seed

if TYPE_CHECKING:
    from quintain.data.records import Record
    from quintain.pipelines.episode_sources import EpisodeSet, Origin


AGREED = 0.5
"""Score of a judge from which on it says yes."""
MAX_UNREAD = 0.05
"""Share of a judge's verdicts that may be unusable; what they were about is left out."""
UNREAD = "have no verdict that can be read"
SOLVED = "The material is an episode. Score whether the agent did what the task asks for: 10 for all, 0 for nothing."
NOTHING_FITS = "No tool that I have does this, so I call none."
GIVEN_AWAY = "hint|right action|right answer|known to be|was given|was told"
"""What no thought may say that was written for an action that its writer was told."""
MARK = re.compile(r"[A-Za-z_][\w-]*")
HINTED = (
    "The material is an answer, and a pattern of hints that its writer was shown and is not to speak of. Score whether "
    "it speaks of a hint, or could only be written by somebody who was given one: 10 where it does, 0 where not."
)


def calls(given: EpisodeSet, semantic: bool = True, *, name: str = "right_calls") -> Stage:
    """Let the turns count whose calls can be read, fit the listed tools, and use values that were said (xLAM)."""
    return right_calls(given.told, semantic=semantic, name=name)


def contamination(given: EpisodeSet, held_out: str, size: int = 10, *, name: str = "contamination") -> Stage:
    """Keep the episodes that share no run of `size` words with the file `held_out` (AgentTuning)."""
    from quintain.warm_start.demonstrations import texts_of

    if not Path(held_out).exists():
        raise UsageError(f"held_out of {name}: got {held_out!r}, which is not there; give a file or a folder")
    return stages.without_overlap(texts_of(Path(held_out)), given.text, size, name=name)


def critical(
    given: EpisodeSet,
    by: str = "progress",
    ratio: float = 0.3,
    words: str = "",
    environment: str = "",
    *,
    name: str = "critical",
) -> Stage:
    """Let the share of turns count that matter most: those that change the progress, or by a judge (ATLaS).

    `by` is ``progress``, which asks the environment (turns whose action begins with one of `words`, separated by
    commas, come next), or the address of a model that scores every turn, ``http://…/v1?model=NAME``.
    """
    from quintain.environments.boundary import ask
    from quintain.environments.catalog import find
    from quintain.environments.protocol import Progressing
    from quintain.methods.imitation.atlas import RUBRIC, by_model, most_critical, rule

    if not 0 < ratio <= 1:
        raise UsageError(f"ratio of {name}: got {ratio}; give a share above 0 and at most 1")
    if (judge := judge_of(by, name, RUBRIC, others=("progress",))) is not None:
        counts: Counter[str] = Counter()
        read, kept = by_model(judge, Verdicts(MAX_UNREAD, flag=""), ratio, name=name)

        def apply(examples: Sequence[Example]) -> Sequence[Example]:
            left = read.apply(examples)
            counts.clear()
            counts.update({UNREAD: num} if (num := len(examples) - len(left)) else {})
            return kept.apply(left)

        return Stage(name=name, says=kept.says, apply=apply, counts=counts)
    first = [word for word in words.split(",") if word]

    def oracle(world: str, _: Origin) -> Callable[[Trajectory], Sequence[float]]:
        if not first and not ask(find(world), lambda environment: isinstance(environment, Progressing)):
            raise UsageError(
                f"stage {name} by progress: got {world}, which does not say how far a task has come; give "
                "words=WORD,WORD that critical actions begin with, or by=http://…/v1?model=NAME"
            )
        return rule(world, first)

    marked = given.by_world(name, environment, oracle)
    return stages.critical(lambda t: most_critical(marked(t), ratio), name=name)


def distinct_states(given: EpisodeSet, environment: str = "", *, name: str = "distinct_states") -> Stage:
    """Keep the first of the episodes of a task that went through the same states, recorded or found by a replay."""
    from quintain.environments.catalog import find
    from quintain.rollout.corrections import states_in

    return stages.distinct_states(
        given.by_world(name, environment, lambda world, _: states_in(find(world))), name=name
    )


def executable(given: EpisodeSet, environment: str = "", *, name: str = "executable") -> Stage:
    """Keep the episodes that can be carried out again in their environment, turn by turn, as they were recorded."""
    from quintain.environments.catalog import find
    from quintain.rollout.corrections import UNREPEATABLE, can_be_carried_out

    check = given.by_world(name, environment, lambda world, _: can_be_carried_out(find(world)))
    return stages.keep_verified(check, says=UNREPEATABLE, name=name)


def relabel_by_world(given: EpisodeSet, *, name: str = "relabelled") -> Stage:
    """Put failed episodes of a run under the task that they did solve, by what its environment says in hindsight."""
    from quintain.environments.catalog import find
    from quintain.rollout.hindsight import hindsight
    from quintain.warm_start.start import build_agent

    refuse_conversations(given, name, "whose prompts no harness wrote")

    def of(world: str, origin: Origin) -> Callable[[Trajectory], Trajectory | None]:
        make = find(world)
        agent = build_agent(origin.chat.tokenizer, make, temperature=1.0, agent=origin.harness)
        return hindsight(make, agent)

    return stages.relabel_tasks(given.by_world(name, "", of), name=name)


def splice_corrections(
    given: EpisodeSet,
    by: str = "expert",
    solved: bool = False,
    environment: str = "",
    *,
    name: str = "spliced",
) -> Stage:
    """Put the expert's way out, carried out and alone imitated, behind a failure's first bad turn (STeCa, Agent-R).

    `by` says what is bad: ``expert``, what the expert does not do; ``progress``, what undoes some of the task or cannot
    be done. What solved its task stays as it is; with `solved` it is put right at its first bad turn, too.
    """
    from quintain.environments.boundary import ask
    from quintain.environments.catalog import find
    from quintain.environments.protocol import (
        Environment,
        Expert,
        Progressing,
        Seats,
        SimultaneousSeats,
    )
    from quintain.errors import EnvironmentFault
    from quintain.rollout.corrections import (
        UNREPEATABLE,
        CorrectedEpisode,
        JudgeOfTurns,
        expert_recovery,
        first_bad_turn,
    )
    from quintain.warm_start.start import build_agent

    judge = next((each for each in typing.get_args(JudgeOfTurns) if each == by), None)
    if judge is None:
        raise UsageError(f"by of {name}: got {by!r}; {suggestion(by, typing.get_args(JudgeOfTurns))}")

    def lacks(world: Environment) -> str:
        if isinstance(world, (Seats, SimultaneousSeats)):
            return "in which several seats act; give episodes of one that acts alone"
        if not isinstance(world, Expert):
            return "which has no expert to show the way out; define expert_action, or leave the stage out"
        if by == "progress" and not isinstance(world, Progressing):
            return f"which does not say how far a task has come; say {name}?by=expert, or define progress"
        return ""

    def of(world: str, origin: Origin) -> Callable[[Trajectory], CorrectedEpisode | str | None]:
        make = find(world)
        if lack := ask(make, lacks):
            raise UsageError(f"stage {name}: got {world}, {lack}")
        agent = build_agent(origin.chat.tokenizer, make, temperature=1.0, agent=origin.harness or AUTO)
        bad, out = first_bad_turn(make, judge), expert_recovery(make, agent)

        def splice(trajectory: Trajectory) -> CorrectedEpisode | str | None:
            try:
                number = bad(trajectory)
            except EnvironmentFault:
                return UNREPEATABLE
            if number is None:
                return None
            made = out(trajectory, number + 1)
            if isinstance(made, str):
                return made
            return CorrectedEpisode(head=trajectory, until=number + 1, tail=made, begin=number + 1)

        return splice

    splice_of = given.by_world(name, environment, of)
    counts: Counter[str] = Counter()

    def make(example: Example) -> Iterable[Example]:
        is_solved = example.trajectory.is_success
        found = None if is_solved and not solved else splice_of(given.whole(example))
        if isinstance(found, CorrectedEpisode):
            counts["were put right"] += 1
            yield given.splice_example(example, found)
        elif is_solved:
            yield example
        else:
            counts[found or "have no bad turn"] += 1

    return remade(name, "failed and has no way out that can be carried out", make, counts=counts)


def one_transcript(given: EpisodeSet, names: str = "", *, name: str = "one_transcript") -> Stage:
    """Put one agent that plays all roles in turn in the place of several seats, each in a mark of its name (AFM).

    Roles of an agent that speaks to itself come in front of its ``action``; of conversations, answers say who spoke in
    ``name``. `names` renames: ``names=critic:double_check,solver:suggested_answer``.
    """
    whose, example = f"names of {name}", "SEAT:MARK,SEAT:MARK, of letters and _"
    pairs = split_list(names, whose, example, sign=":")
    if wrong := [pair for pair in pairs if not all(map(MARK.fullmatch, pair))]:
        raise UsageError(f"{whose}: got {':'.join(wrong[0])!r}; write {example}")
    return given.one_transcript(name, refuse_twice(pairs, whose))


def rationales(
    given: EpisodeSet, by: str, marker: str = GIVEN_AWAY, needed: bool = False, *, name: str = "rationales"
) -> Stage:
    """Put a thought in front of each action that has none, by a model that is told the action (STaR, FireAct).

    `by` is its address, ``http://…/v1?model=NAME``. A thought that `marker` matches, since it names what was told, or
    behind which another action would be read, is dropped; with `needed` an answer without a thought does not count.
    """
    from quintain.engines.rationale import Rationalist
    from quintain.pipelines.rationales import rationales as with_thoughts

    if not is_endpoint(by):
        raise UsageError(f"by of {name}: got {by!r}; give the address of a model, http://…/v1?model=NAME")
    try:
        found = re.compile(marker, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"marker of {name}: got {marker!r} ({error}); give a regular expression") from None
    writer = Rationalist(by, asked=f"by of {name}")
    return with_thoughts(given, writer, found, is_needed=needed, name=name)


def negatives(given: EpisodeSet, *, name: str = "negatives") -> Stage:
    """Put what mended a call that was unreadable or wrong in an episode's place: it alone counts, the call is context.

    With ``--as preferences`` it is preferred to that call.
    """
    refuse_conversations(given, name, "which do not say what came of a call")
    return mend_calls(name=name)


def as_chat(given: EpisodeSet, *, name: str = "as_chat") -> Stage:
    """Say calls in JSON or ReAct, their results and the tools in sentences, as chat (Agent-FLAN); of conversations.

    What the system text tells of another form stays there: ``stripped?pattern=…`` takes it out.
    """
    refuse_runs(given, name)
    counts: Counter[str] = Counter()

    def change(_: Example, record: Record) -> Record | None:
        made = in_chat(record)
        counts["were changed"] += made is not None and made.said != record.said
        return made

    says = "holds a call that cannot be read"
    return given.retelling(name, says, change, counts=counts)


def refusals(
    given: EpisodeSet, share: float = 0.2, text: str = NOTHING_FITS, seed: int = 0, *, name: str = "refusals"
) -> Stage:
    """Put conversations that rightly call nothing beside the others, in this share of all (Agent-FLAN's negatives).

    Half ask for what only tools do that are taken off the list, and are answered by `text`; half are plain chats beside
    tools of another conversation. Where there are too few of one kind, there are more of the other.
    """
    from quintain.pipelines.episode_sources import carry_source

    refuse_runs(given, name)
    if not 0 < share < 1:
        raise UsageError(f"share of {name}: got {share:g}; give one above 0 and below 1")
    counts: Counter[str] = Counter()

    def apply(examples: Sequence[Example]) -> list[Example]:
        counts.clear()
        rng = Random(seed)
        told = [(example, given.conversation(example)) for example in examples]
        asking = [(e, own) for e, record in told if (own := augmented.withheld(record, text)) is not None]
        plain = [(e, record) for e, record in told if augmented.is_plain(record)]
        lists = [record.tools for _, record in told if record.tools]
        num, num_plain = round(share / (1 - share) * len(examples)), len(plain) if lists else 0
        taken = augmented.quotas(num, len(asking), num_plain)
        if taken is None:
            raise DataError(
                f"share of {name}: got {share:g}, which takes {num} negatives, and {len(asking)} conversations "
                f"that call a listed tool and {num_plain} plain chats to make them of; give a smaller share, or "
                "more conversations"
            )
        made: list[Example] = []
        for example, record in rng.sample(asking, taken[0]):
            name_of_task = f"{example.sources[0]}-refused"
            record = replace(record, fields={**record.fields, "task": name_of_task})
            made.append(given.name_record(example, record, "refused"))
        for example, record in rng.sample(plain, taken[1]):
            other = given.name_record(example, augmented.offer_tools(record, rng.choice(lists)), "beside")
            made.append(replace(other, weights=carry_source(example, other.trajectory)))
        counts["ask for tools that are not listed"] += taken[0]
        counts["are plain chats beside tools"] += taken[1]
        return [*examples, *made]

    return Stage(name=name, says="gets negatives beside it", apply=apply, counts=counts)


def shuffle_tool_order(
    given: EpisodeSet, copies: int = 1, seed: int = 0, *, name: str = "shuffled_tools"
) -> Stage:
    """Put copies beside conversations, with tools and their parameters listed in another order (xLAM); calls stay."""
    from quintain.pipelines.episode_sources import carry_source

    refuse_runs(given, name)
    if copies < 1:
        raise UsageError(f"copies of {name}: got {copies}; give 1 or more")
    counts: Counter[str] = Counter()

    def make(example: Example) -> Iterable[Example]:
        yield example
        record = given.conversation(example)
        if not augmented.has_order(record):
            counts["have one tool of one parameter, or none"] += 1
            return
        for number in range(copies):
            rng = Random(derive_seed("shuffled tools", seed, example.sources[0], number))
            made = given.name_record(example, augmented.shuffle_tools(record, rng), "shuffled")
            yield replace(made, weights=carry_source(example, made.trajectory))

    return remade(name, "gets copies beside it", make, counts=counts)


def refuse_runs(given: EpisodeSet, name: str) -> None:
    """Raise where something is a run, whose prompts its harness wrote.

    Raises:
        UsageError: naming it.
    """
    if told := [origin.name for origin in given.origins.values() if origin.transcriber is None]:
        raise UsageError(
            f"stage {name}: got a run ({told[0]}), whose prompts its harness wrote; write it as messages first: "
            "quintain export RUN --to messages"
        )


def refuse_conversations(given: EpisodeSet, name: str, why: str) -> None:
    """Raise where something is no run.

    Raises:
        UsageError: naming it.
    """
    if told := [origin.name for origin in given.origins.values() if origin.transcriber is not None]:
        raise UsageError(f"stage {name}: got conversations ({told[0]}), {why}; give runs")


def strip_pattern(given: EpisodeSet, pattern: str, by: str = "", *, name: str = "stripped") -> Stage:
    """Take what the pattern matches out of what was shown; drop conversations that speak of it themselves (STaR).

    An answer speaks of its hint where the pattern matches it or, with `by`, where the model at that address says so.
    """
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"pattern of {name}: got {pattern!r} ({error}); give a regular expression") from None
    judge = judge_of(by, name, HINTED) if by else None
    verdicts, counts = Verdicts(MAX_UNREAD, flag=""), Counter[str]()

    def speaks(text: str) -> bool | None:
        if judge is None or found.search(text) is not None:
            return found.search(text) is not None
        (score,) = verdicts.read([judge.score({"answer": text, "hints match": pattern})])
        return None if score is None else score >= AGREED

    def change(_: Example, record: Record) -> Record | None:
        texts = [whole_text(each.message) for each in record.said]
        answers = [each.message.role == "assistant" for each in record.said]
        for spoke in (speaks(text) for text, is_own in zip(texts, answers, strict=True) if is_own):
            if spoke is None:
                counts[UNREAD] += 1
            if spoke is not False:
                return None
        said = [
            each
            if is_own
            else replace(each, message=replace(each.message, content=as_content(found.sub("", text))))
            for each, text, is_own in zip(record.said, texts, answers, strict=True)
        ]
        return replace(record, said=tuple(said))

    return given.retelling(name, "speaks of its hint", change, counts=None if judge is None else counts)


def verify_by(
    given: EpisodeSet,
    by: str = "world",
    least: float = AGREED,
    environment: str = "",
    *,
    name: str = "verified",
) -> Stage:
    """Keep the episodes that solve their task by the world, which carries them out again, or by a judge.

    `by` is ``world``, or the address of a model that scores an episode from 0 to 1, of which `least` are asked.
    """
    from quintain.environments.catalog import find
    from quintain.rollout.corrections import is_solved_again

    if (judge := judge_of(by, name, SOLVED, others=("world",))) is None:
        again = given.by_world(name, environment, lambda world, _: is_solved_again(find(world)))
        return stages.keep_verified(again, says="is not solved where it is carried out again", name=name)

    verdicts, counts = Verdicts(MAX_UNREAD, flag=""), Counter[str]()

    def apply(examples: Sequence[Example]) -> list[Example]:
        judge.prepare(example.trajectory for example in examples)
        scores = verdicts.read([judge.measure(example.trajectory) for example in examples])
        counts.clear()
        counts.update({UNREAD: num} if (num := scores.count(None)) else {})
        return [e for e, score in zip(examples, scores, strict=True) if score is not None and score >= least]

    return Stage(name=name, says=f"has a score below {least:g} of the judge", apply=apply, counts=counts)


def judge_of(by: str, name: str, rubric: str, *, others: Sequence[str] = ()) -> Judge | None:
    """Return the judge whose address is `by`, with `rubric` unless the address names one; None for one of `others`.

    Raises:
        UsageError: it is neither.
    """
    if by in others:
        return None
    if not is_endpoint(by):
        told = " or ".join((*others, "the address of a model, http://…/v1?model=NAME"))
        raise UsageError(f"by of {name}: got {by!r}; give {told}")
    return Judge(by, usual=rubric)


def mixture(given: EpisodeSet, shares: str, seed: int = 0, *, name: str = "mixture") -> Stage:
    """Draw as many samples as there are, of each file or run its share: ``shares=agent.jsonl:0.2,chats.jsonl:0.8``."""
    whose, example = f"shares of {name}", "NAME:SHARE,NAME:SHARE, such as agent.jsonl:0.2"
    wanted = read_numbers(split_list(shares, whose, example, sign=":"), whose, example)
    for source in wanted:
        if source not in given.origins:
            raise UsageError(f"shares of {name}: got {source!r}; {suggestion(source, given.origins)}")
    return mixtures.mixture(wanted, given.part, seed=seed, name=name)


def perplexity(
    given: EpisodeSet, low: float = 1.0, high: float = float("inf"), by: str = "", *, name: str = "perplexity"
) -> Stage:
    """Keep the episodes whose perplexity is from `low` to `high`, by the log-probs that were recorded, or by a model.

    `by` is a folder, a run, or an address, ``http://…/v1?model=NAME``, that gives the log-probs of a prompt.
    """
    if not by:
        return stages.perplexity(low, high, name=name)
    from quintain.pipelines.likelihood import perplexity_under

    return stages.perplexity(low, high, score=perplexity_under(by, given, name), name=name)


def segment_reward(*, name: str = "segment_reward") -> Stage:
    """Let the turns of a token stream weigh the rewards in it; below 0 counts as 0."""
    return stages.segment_score(lambda turns: sum(turn.reward for turn in turns), name=name)


STAGES: Mapping[str, Callable[..., Stage]] = {
    "solved": stages.keep_solved,
    "threshold": stages.threshold,
    "quantile": stages.quantile,
    "shortest": stages.shortest,
    "best": stages.best,
    "num_turns": stages.num_turns,
    "ended": stages.keep_ended,
    "solved_share": stages.keep_solved_share,
    "group_spread": stages.group_spread,
    "widest": stages.widest,
    "perplexity": perplexity,
    "distinct": stages.distinct,
    "distinct_states": distinct_states,
    "contamination": contamination,
    "executable": executable,
    "verified": verify_by,
    "right_calls": calls,
    "valid_turns": stages.valid_turns,
    "critical": critical,
    "last_turn": stages.last_turn,
    "seat": stages.seat,
    "role": stages.role,
    "segment_reward": segment_reward,
    "turn_discount": stages.turn_discount,
    "without_end": stages.without_end,
    "stripped": strip_pattern,
    "relabelled": relabel_by_world,
    "spliced": splice_corrections,
    "one_transcript": one_transcript,
    "rationales": rationales,
    "negatives": negatives,
    "as_chat": as_chat,
    "refusals": refusals,
    "shuffled_tools": shuffle_tool_order,
    "mixture": mixture,
}


def write_option(option: Option) -> str:
    """Return `option` as ``[share=0.2]``, or as ``share=NUMBER`` where it must be given."""
    kind = parts_of(option.annotation)[0]
    value = {int: "N", float: "NUMBER", bool: "true|false", str: "TEXT"}.get(kind, "VALUE")
    if option.is_required:
        return f"{option.name}={value}"
    return f"[{option.name}={value if option.default is None else show(option.default)}]"


def options_of(make: Callable[..., Stage]) -> dict[str, Option]:
    """Return the options of the stage that `make` makes: all its parameters but what was gathered and its name."""
    found = parameters_of(make, {"EpisodeSet": object})
    return {name: option for name, option in found.items() if name not in ("given", "name")}


def summary(make: Callable[..., Stage]) -> str:
    """Return the first paragraph of what documents `make`, on a line."""
    return " ".join((inspect.getdoc(make) or "").partition("\n\n")[0].split())


def stage_rows() -> list[tuple[str, str, str]]:
    """Return name, options and summary of every stage, as the list and the page show them."""
    return [
        (name, " ".join(map(write_option, options_of(make).values())), summary(make))
        for name, make in STAGES.items()
    ]


def read_stages(specs: Sequence[str], given: EpisodeSet) -> list[Stage]:
    """Return the stages that `specs` name; a second one of a name is called ``solved_2``.

    Raises:
        UsageError: an unknown stage or option, or a value that is none.
    """
    found: list[Stage] = []
    for spec in specs:
        kind = spec.partition("?")[0]
        num = sum(other.name.partition(":")[0].rstrip("_0123456789") == kind for other in found)
        found.append(read_stage(spec, given, name=f"{kind}_{num + 1}" if num else kind))
    return found


def read_stage(spec: str, given: EpisodeSet, *, name: str) -> Stage:
    """Return the stage that ``NAME?option=value&option=value`` names."""
    kind, _, query = spec.partition("?")
    if kind not in STAGES:
        raise UsageError(f"--stage: got {kind!r}; {suggestion(kind, STAGES)}")
    make = STAGES[kind]
    known = options_of(make)
    values = read_options(split_query(query, kind), known, kind)
    for option in known.values():
        if option.is_required and option.name not in values:
            raise UsageError(f"stage {kind}: got no {option.name}; write it as {kind}?{write_option(option)}")
    first = next(iter(inspect.signature(make).parameters), "")
    return make(given, **values, name=name) if first == "given" else make(**values, name=name)
