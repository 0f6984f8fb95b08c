"""Where the episodes of a run come from: tasks of the curriculum, played by its policies, written to the journal
first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quintain.agents.catalog import AUTO, is_outside
from quintain.agents.protocol import Agent
from quintain.credit.layout import TokenArrays
from quintain.curriculum.contamination import HeldOutTasks
from quintain.curriculum.streams import TaskStream
from quintain.engines.protocol import Request, Sampling
from quintain.environments.noisy import NoisyExpert
from quintain.environments.protocol import Environment, Factory, Privileged, begin
from quintain.environments.recorded import Recordings, WithRecordedExpert
from quintain.errors import UsageError
from quintain.rollout.answers import answer_contexts
from quintain.rollout.collect import Rollout
from quintain.rollout.hindsight import hindsight
from quintain.rollout.initial_states import read_initial_states
from quintain.rollout.progress import Display
from quintain.rollout.proposals import Proposer, propose_tasks
from quintain.rollout.replay import ReplayedEpisode
from quintain.rollout.request import EpisodeRequest, Limits, Options
from quintain.rollout.samplers import DialogueTeacher, sample_all
from quintain.rollout.views import Prefix
from quintain.runs.prefetch import RolloutPrefetcher
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import (
    ALONE,
    Action,
    Completion,
    Group,
    Message,
    Pair,
    Task,
    Trajectory,
    as_content,
    derive_seed,
)
from quintain.warm_start.expert_episodes import ExpertSource
from quintain.warm_start.start import expert_action

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(slots=True)
class Spent:
    """What training episodes have cost so far."""

    env_steps: int = 0
    tokens: int = 0

    def count(
        self, trajectories: Sequence[Trajectory], *, num_known: int = 0, is_answered: bool = True
    ) -> None:
        """Count `trajectories`, but for their first `num_known` turns; only tokens, where nobody had to answer."""
        fresh = [turn for t in trajectories for turn in t.turns[num_known:]]
        self.env_steps += len(fresh) if is_answered else 0
        self.tokens += sum(len(turn.completion.token_ids) for turn in fresh)


class Collector:
    """Where a method's episodes come from; everything that is sampled is recorded in the journal first."""

    def __init__(
        self,
        run: Run,
        rollout: Rollout,
        curriculum: TaskStream,
        apart: HeldOutTasks,
        tokenizer: PreTrainedTokenizerBase,
        display: Display,
        *,
        environment: str,
        seed: int,
        teach: Callable[..., list[Trajectory]],
        prefer: Callable[[], list[Pair]] = list,
        label: Callable[[], list[Trajectory]] = list,
        corpus: Callable[[bool], list[Trajectory]] = lambda _: [],
        expert: Callable[[], ExpertSource] | None = None,
        score: Callable[[str, Sequence[Trajectory]], TokenArrays] = lambda _, __: [],
        value: Callable[[str, Sequence[Trajectory]], Sequence[Sequence[float]]] = lambda _, __: [],
        prefetcher: RolloutPrefetcher | None = None,
        is_lockstep: bool = True,
    ) -> None:
        self.run, self.rollout, self.curriculum, self.apart = run, rollout, curriculum, apart
        self.environment, self.display = environment, display
        """spec of the training environment, and what the terminal shows"""
        self.spent = Spent()
        self.recorded: list[Trajectory] = []
        """Episodes of the step so far, as the journal has them: a method may turn them into others to learn from."""
        self.num_repeated = self.num_lost = 0
        """episodes that were carried out again in this step to be taken up: those that came to the same states, and
        those that did not"""
        self._tokenizer, self._seed, self._teach, self._prefer = tokenizer, seed, teach, prefer
        self._expert, self._score, self._value, self._corpus = expert, score, value, corpus
        self._prefetcher, self._is_lockstep, self._label = prefetcher, is_lockstep, label

    def seed(self, *parts: int | str) -> int:
        """Return the seed of the run that `parts` name."""
        return derive_seed("run", self._seed, *parts)

    def tasks(self, step: int, count: int) -> list[Task]:
        """Return the `count` training tasks of `step`."""
        return list(self.curriculum.draw(step, count))

    def sample(
        self,
        step: int,
        tasks: Sequence[Task],
        *,
        size: int,
        max_turns: int | None = None,
        agent: Callable[[Agent], Agent] | None = None,
        later_turns: Callable[[int], int | None] | None = None,
        again: int = 0,
    ) -> list[Group]:
        """Return `size` episodes of each of `tasks`; `agent` wraps the harness for these episodes alone.

        `again` counts the times that some of these tasks were sampled in this step before: the episodes are others,
        and stand in groups of their own. In lockstep only.

        `later_turns` says that later steps ask for the same of tasks of their own, as many, with so many turns at most:
        an asynchronous rollout with a `max_staleness` then begins them while the last episodes of this step end.
        """
        self.apart.check(tasks)
        self.display.phase("episodes", len(tasks) * size)
        acting = None if agent is None else agent(self.rollout.agent)
        if self._is_lockstep:
            groups = self.rollout.groups(
                tasks,
                size=size,
                seed=self.seed("step", step, *([again] if again else [])),
                on_episode=lambda _: self.display.advance(),
                options=self._options(max_turns, acting),
            )
            return self._record(_rename_groups(groups, again) if again else groups, step, "train")
        if again:
            raise UsageError(f"tasks sampled again in step {step}: got rollout=async; use rollout=lockstep")
        if self._prefetcher is None or later_turns is None:
            return self._sample_apart(step, tasks, size, self._options(max_turns, acting))

        def requests(of: int) -> list[EpisodeRequest]:
            drawn = tasks if of == step else self.tasks(of, len(tasks))
            turns = max_turns if of == step else later_turns(of)
            self.apart.check(drawn)
            asked = self.rollout.requests(drawn, size, self.seed("step", of), Options(agent=acting))
            return [replace(request, max_turns=turns) for request in asked]

        found = self._prefetcher.collect(step, requests, known=self._journal_episodes, on_episode=self._keep)
        return self._take(tasks, requests(step), found, size)

    def continue_from(
        self,
        step: int,
        prefixes: Sequence[Prefix],
        *,
        size: int,
        seed: int | None = None,
        max_turns: int | None = None,
        phase: str = "branch",
        teacher: NoisyExpert | DialogueTeacher | None = None,
        by: str = "",
        again: int = 0,
        is_answered: bool = True,
    ) -> list[Group]:
        """Return `size` ways on from each of `prefixes`, as whole episodes.

        They are sampled by the policy `by`, where that is given, or played by the `teacher`. They are recorded under
        `phase`, which a state is told again if it is ``train``; `again` as in `sample`. Where one turn is all that is
        looked at, and not what comes of it, say that it is not `is_answered`: it counts as tokens, not as a step.
        """
        seed = self.seed("step", step) if seed is None else seed
        options = replace(self._options(max_turns), seats={ALONE: by} if by else None)
        rollout = self.rollout
        if teacher is None or isinstance(teacher, DialogueTeacher) or self._is_own(self.expert_environment):
            groups = rollout.continuations(
                prefixes, size=size, seed=seed, options=options, demonstrator=teacher
            )
        else:
            make = self.expert_environment
            groups = continue_by_expert(rollout, make, prefixes, size, seed, options, teacher)
        known = [len(prefix.turns) for prefix in prefixes]
        return self._record(
            _rename_groups(groups, again) if again else groups, step, phase, known, is_answered
        )

    def answers(self, step: int, contexts: Sequence[Trajectory], *, size: int) -> list[Group]:
        """Return `size` answers of the policy to the prompt of the one turn of each of `contexts`, in no environment.

        What an answer does is read, and not carried out: outcomes are 0. They are recorded as branches of the step.
        """
        groups = answer_contexts(self.rollout, contexts, size=size, seed=self.seed("step", step))
        return self._record(groups, step, "branch", [0] * len(groups), is_answered=False)

    def relabel_episodes(self, trajectories: Sequence[Trajectory]) -> list[Trajectory | None]:
        """Return each episode under the task that it solved; None where it solved none."""
        relabel = hindsight(self.rollout.make_environment, self.rollout.agent)
        return [relabel(trajectory) for trajectory in trajectories]

    def replay_episodes(self, trajectories: Sequence[Trajectory]) -> list[ReplayedEpisode]:
        """Carry out recorded episodes again, to continue them at any of their turns.

        One that does not repeat, such as a page with a clock, is no error: nothing goes on from it (its groups in
        `continue_from` are empty), and the share of such is the metric ``branch/lost``. States are compared by their
        keys, where the environment has them and the method ``Needs(branches=True)``, else by what is shown.
        """
        found = self.rollout.replay_episodes(trajectories, may_differ=True)
        self.num_repeated += sum(walk.is_repeated for walk in found)
        self.num_lost += sum(not walk.is_repeated for walk in found)
        return found

    def branch_metrics(self) -> dict[str, float]:
        """Return the share of episodes that were to be taken up again in this step and did not repeat; {} of none."""
        total = self.num_repeated + self.num_lost
        return {"branch/lost": self.num_lost / total} if total else {}

    def begin_step(self) -> None:
        """Forget what is counted by step."""
        self.recorded.clear()
        self.num_repeated = self.num_lost = 0

    def demonstrations(self, *teachers: NoisyExpert, agent: str = "") -> list[Trajectory]:
        """Return what the configuration imitates: episodes of the teacher, or conversations; a resumed run repeats it
        exactly.

        Where `teachers` are given, each of them shows as many tasks, the same ones, in the place of the
        configuration's; the index of an episode is the number of its teacher. With `agent`, the same as the prompts of
        another harness show it; these are not recorded.
        """
        return self._teach(*teachers, agent=agent)

    @property
    def expert(self) -> ExpertSource:
        """Who shows how tasks are done."""
        assert self._expert is not None, "a run has one"
        return self._expert()

    @property
    def expert_environment(self) -> Factory:
        """What makes an environment whose `expert_action` is the expert's: the environment's own, or a recorded one."""
        return self.expert.make_environment

    def expert_tasks(self, step: int, count: int) -> list[Task]:
        """Return the training tasks of `step` that the expert can show, at most `count`: of a recorded one, its own."""
        return self.expert.tasks(step, count)

    def expert_episodes(
        self, tasks: Sequence[Task], *, by: Mapping[str, Sequence[Action]] | None = None
    ) -> list[Trajectory]:
        """Return the scored ones of an episode of the expert on each of `tasks`; they are not recorded.

        It is the environment's, or somebody whose episodes `demonstrations` names; see `expert_tasks`. Where it is
        known what is to be done, it is that, `by` the id of the task.
        """
        self.apart.check(tasks)
        if by is None:
            return self.expert.episodes(tasks)
        make = WithRecordedExpert(self.rollout.make_environment, Recordings(by))
        limits = without_bounds(self.rollout.limits)
        with closing(Rollout(self.rollout.agent, make, None, limits=limits)) as beside:
            groups = beside.demonstrations(tasks, expert_action, seed=self.seed("shown"))
        return [trajectory for group in groups for trajectory in group.scored]

    def propose_tasks(
        self, step: int, tasks: Sequence[Task], by: Proposer | None = None
    ) -> list[Task | None]:
        """Return what is proposed in the place of each of `tasks`, by how it begins; None where that is no task.

        `by` is a model that is asked; without one the environment draws it. Whether it can be solved is not known.
        """
        seed = self.seed("proposals", step)
        return propose_tasks(self.rollout.make_environment, tasks, by, seed=seed)

    def privileged_info(self, tasks: Sequence[Task]) -> list[str]:
        """Return what the environment hides from agents at the beginning of each of `tasks`."""
        with closing(self.rollout.make_environment()) as environment:
            return [read_hidden(environment, task) for task in tasks]

    def logprobs(self, trajectories: Sequence[Trajectory], *, by: str) -> TokenArrays:
        """Return the log-probs of the sampled tokens by the policy `by`: [trajectory][turn] → [tokens]."""
        return self._score(by, trajectories)

    def initial_states(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """Return how each of `tasks` begins, as an episode of one turn in which nothing is said; none is recorded."""
        return read_initial_states(self.rollout.make_environment, self.rollout.agent, tasks)

    def values(self, trajectories: Sequence[Trajectory], *, by: str) -> Sequence[Sequence[float]]:
        """Return what the critic `by` says before each turn of `trajectories`: [trajectory][turn]."""
        return self._value(by, trajectories)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of `text`, in the tokenizer of the policy."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def preferences(self) -> list[Pair]:
        """Return the preferences that the configuration names; a resumed run repeats them exactly."""
        return self._prefer()

    def label_answers(self) -> list[Trajectory]:
        """Return the answers of the configuration's preferences one by one, solved where they are good."""
        return self._label()

    def corpus(self, *, is_apart: bool = False) -> list[Trajectory]:
        """Return the conversations that the configuration names as its corpus; a resumed run repeats them exactly.

        If it `is_apart`, they are not written for the environment: they have tools of their own, or none.
        """
        return self._corpus(is_apart)

    def starting_groups(self, *, tasks: int, size: int, are_shown: bool = False) -> list[Group]:
        """Return `size` episodes of each of `tasks` tasks by the starting policy; a resumed run reads its journal.

        With `are_shown` they are tasks that the expert can show.
        """
        known = read_groups(self.run, 0)
        if self.run.next_step == 0 or not known:
            drawn = self.expert_tasks(0, tasks) if are_shown else self.tasks(0, tasks)
            return self.sample(0, drawn, size=size)
        return known

    @property
    def chat(self) -> Chat:
        """How the policy is talked to, for what a method puts around its harness."""
        return Chat(self._tokenizer)

    def ask(
        self, instructions: str, questions: Sequence[str], *, seed: int, max_tokens: int = 96
    ) -> list[str]:
        """Return what the policy answers to each of `questions` under `instructions`, in no environment.

        Nothing is recorded or trained on. An answer for which there is no room, or that fails, is empty.
        """
        engine, chat = self.rollout.engine, self.chat
        assert engine is not None, "a run has an engine"
        requests: list[Request] = []
        for number, question in enumerate(questions):
            messages = [
                Message(role="system", content=as_content(instructions)),
                Message(role="user", content=as_content(question)),
            ]
            ids = chat.conversation().prompt(messages).token_ids
            if len(ids) + max_tokens <= engine.max_length:
                sampling = Sampling(max_tokens=max_tokens, stop_ids=chat.stop_ids)
                name, drawn = f"question/{number}", derive_seed(seed, number)
                requests.append(Request(session=name, prompt_ids=ids, seed=drawn, sampling=sampling))
        found = sample_all(engine, requests, patience=self.rollout.limits.reply_timeout)
        replies = [found.get(f"question/{number}") for number in range(len(questions))]
        return [chat.text(each.token_ids).strip() if isinstance(each, Completion) else "" for each in replies]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, in the tokenizer of the policy."""
        return str(self._tokenizer.decode(list(token_ids)))

    def _sample_apart(self, step: int, tasks: Sequence[Task], size: int, options: Options) -> list[Group]:
        """Return `size` episodes of each of `tasks`, each recorded as soon as it ends."""
        asked = self.rollout.requests(tasks, size, self.seed("step", step), options)
        seeds = {(request.group, request.index): request.seed for request in asked}
        known = [t for t in self._journal_episodes(step) if seeds.get((t.group, t.index)) == t.seed]
        found = {(t.group, t.index): t for t in known}

        def keep(trajectory: Trajectory) -> None:
            found[trajectory.group, trajectory.index] = self._keep(step, trajectory)

        self.rollout.groups(
            tasks, size=size, seed=self.seed("step", step), on_episode=keep, options=options, known=known
        )
        return self._take(tasks, asked, found, size)

    def _journal_episodes(self, step: int) -> list[Trajectory]:
        """Return the episodes of `step` that the journal has: those that were taken back, or played ahead."""
        return list(self.run.trajectories(step=step, phase="train"))

    def _keep(self, step: int, trajectory: Trajectory) -> Trajectory:
        """Record an episode of `step` that has just ended, and return it with the journal's name."""
        self.display.advance()
        (name,) = self.run.append([trajectory], step=step, phase="train")
        return replace(trajectory, id=name)

    def _take(
        self,
        tasks: Sequence[Task],
        requests: Sequence[EpisodeRequest],
        found: Mapping[tuple[str, int], Trajectory],
        size: int,
    ) -> list[Group]:
        """Return the recorded episodes `found` as the groups of a step, and count what they cost."""
        episodes = [found[request.group, request.index] for request in requests]
        self.spent.count(episodes)
        self.recorded += episodes
        return [
            Group(task=task, trajectories=tuple(episodes[place * size : (place + 1) * size]))
            for place, task in enumerate(tasks)
        ]

    def _is_own(self, make_environment: Factory) -> bool:
        """Return whether `make_environment` is what episodes are played in, with the expert that it has."""
        return make_environment is self.rollout.make_environment

    def _options(self, max_turns: int | None, agent: Agent | None = None) -> Options:
        """Return how episodes are played otherwise than usual."""
        limits = None if max_turns is None else replace(self.rollout.limits, max_turns=max_turns)
        return Options(limits=limits, agent=agent)

    def _record(
        self,
        groups: Sequence[Group],
        step: int,
        phase: str,
        num_known: Sequence[int] | None = None,
        is_answered: bool = True,
    ) -> list[Group]:
        """Write `groups` to the journal, count what they cost, and return them with the journal's names."""
        names = iter(
            self.run.append([t for group in groups for t in group.trajectories], step=step, phase=phase)
        )
        for place, group in enumerate(groups):
            known = 0 if num_known is None else num_known[place]
            self.spent.count(group.trajectories, num_known=known, is_answered=is_answered)
        named = [
            replace(group, trajectories=tuple(replace(t, id=next(names)) for t in group.trajectories))
            for group in groups
        ]
        self.recorded += [t for group in named for t in group.trajectories]
        return named


def without_bounds(limits: Limits) -> Limits:
    """Return `limits` under which any share may fail: where somebody gave up is no fault of the environment."""
    return replace(limits, max_failure_share=1.0, max_broken_share=1.0, attempts=1)


def continue_by_expert(
    rollout: Rollout,
    make_environment: Factory,
    prefixes: Sequence[Prefix],
    size: int,
    seed: int,
    options: Options,
    teacher: NoisyExpert,
) -> list[Group]:
    """Return how an expert who is not the environment's own goes on from each of `prefixes`.

    It follows all that was done from the first turn on, so that saved states are not taken up.
    """
    with closing(Rollout(rollout.agent, make_environment, None, limits=rollout.limits)) as beside:
        return beside.continuations(
            [replace(prefix, state=None) for prefix in prefixes],
            size=size,
            seed=seed,
            options=replace(options, limits=without_bounds(options.limits or rollout.limits)),
            demonstrator=teacher,
        )


def read_hidden(environment: Environment, task: Task) -> str:
    """Return what `environment` hides from agents at the beginning of `task`."""
    assert isinstance(environment, Privileged), "the method has asked for that"
    begin(environment, task)
    return environment.privileged()


def _rename_groups(groups: Sequence[Group], again: int) -> list[Group]:
    """Return `groups` under names that tell them from those of the same tasks before."""
    return [
        replace(
            group,
            trajectories=tuple(replace(t, group=f"{t.group}+{again}") for t in group.trajectories),
        )
        for group in groups
    ]


def read_groups(run: Run, step: int) -> list[Group]:
    """Return the training groups of `step` as the journal has them.

    Episodes that were recorded as they ended are put in order first: by number of the group and in it.
    """
    members: dict[str, list[Trajectory]] = {}
    found = list(run.trajectories(step=step, phase="train"))
    if run.config.get("rollout") == "async" or is_outside(str(run.config.get("agent", AUTO))):
        found.sort(key=lambda t: (int(t.group.partition(":")[0]), t.group, t.index))
    for trajectory in found:
        members.setdefault(trajectory.group, []).append(trajectory)
    return [Group(task=found[0].task, trajectories=tuple(found)) for found in members.values()]
