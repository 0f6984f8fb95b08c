"""Who acts in an evaluation or a collection, and the folder in which an evaluation is kept as it goes on.

An evaluation that is kept is a run without steps of training: round 0 holds the first attempt at each task, and so on.
Broken off, it is continued by the same command: what was played is not played again, and what was sampled would be the
same. `quintain compare` takes it as it takes a run.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.agents.teacher import Teacher
from quintain.config.trust import files_named
from quintain.engines.build import build_engine
from quintain.engines.chat_client import is_endpoint
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import ask, require_expert
from quintain.environments.catalog import EnvironmentSpec
from quintain.environments.noisy import noisy
from quintain.errors import UsageError
from quintain.eval.evaluate import evaluate
from quintain.learning.saved import load_policy
from quintain.models.fingerprint import fingerprint
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.samplers import Demonstrator, DialogueTeacher
from quintain.rollout.trials import Trial, trials
from quintain.search.agent import Searcher, is_search, refuse_unsearchable
from quintain.serve.agent_source import find_source
from quintain.store.creation import is_run
from quintain.store.managed_run import looked_after
from quintain.store.manifest import in_words
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import Score, Task, Trajectory
from quintain.warm_start.demonstrations import TOKENIZERS
from quintain.warm_start.start import build_agent, expert_action, new_tokenizer, valid_action

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TEACHERS = {"expert": expert_action, "random": valid_action}
"""Agents that need no model."""
AT_ONCE = 8
"""Questions that a teacher behind an endpoint is asked at the same time."""
PER_NODE = 0.1
"""Seconds that a search may take for each action that it tries."""
EVALUATION, PHASE = "evaluation", "eval"
"""Recipe of a folder that holds an evaluation, and the phase of its episodes."""
Keep = Callable[[int, Trajectory], None]
"""(round, episode) → it is kept"""
Known = Callable[[int], Iterable[Trajectory]]
"""round → its episodes that are kept already"""


def is_script(target: str) -> bool:
    """Whether `target` names who acts without a model here: expert, random, a search, or a teacher elsewhere."""
    return target in TEACHERS or is_search(target) or is_endpoint(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Who acts: a rollout, and where no model of ours is asked, the demonstrator."""

    rollout: Rollout
    tokenizer: PreTrainedTokenizerBase
    demonstrator: Demonstrator | DialogueTeacher | None = None
    model: PreTrainedModel | None = None

    def find_weights(self) -> str:
        """Return what names the weights of the model; empty where there is none."""
        return "" if self.model is None else fingerprint(self.model)

    def play(
        self,
        tasks: Sequence[Task],
        *,
        size: int = 1,
        seed: int,
        on_episode: Callable[[Trajectory], None],
        known: Iterable[Trajectory] = (),
    ) -> list[Trajectory]:
        """Return `size` episodes of each of `tasks`; what is `known` is not played again."""
        if self.demonstrator is None:
            groups = self.rollout.groups(tasks, size=size, seed=seed, on_episode=on_episode, known=known)
        else:
            repeated = [task for task in tasks for _ in range(size)]
            groups = self.rollout.demonstrations(
                repeated, self.demonstrator, seed=seed, on_episode=on_episode, known=known
            )
        return [trajectory for group in groups for trajectory in group.trajectories]

    def play_rounds(
        self,
        tasks: Sequence[Task],
        *,
        rounds: int,
        seed: int,
        reflects: bool,
        shows_attempt: bool = False,
        shows_errors: bool = False,
        max_repeats: int | None = None,
        on_episode: Keep,
        known: Known = lambda _round: (),
    ) -> list[Trial]:
        """Return up to `rounds` attempts of a model at each of `tasks`, by round; none after a solved one."""
        return trials(
            self.rollout,
            Chat(self.tokenizer),
            tasks,
            rounds=rounds,
            seed=seed,
            reflects=reflects,
            shows_attempt=shows_attempt,
            shows_errors=shows_errors,
            max_repeats=max_repeats,
            on_episode=on_episode,
            known=known,
        )


def find_acting(
    target: str,
    make_environment: EnvironmentSpec,
    *,
    agent: str,
    temperature: float,
    seed: int,
    limits: Limits,
    expert_noise: float = 0.0,
) -> Acting:
    """Return who acts as `target` in the environment: a model through the harness `agent`, or who needs none.

    Raises:
        UsageError: there is no expert, or nothing that can be searched.
    """
    teacher = Teacher.read(target) if is_endpoint(target) else None
    searcher = Searcher.read(target) if is_search(target) else None
    if target == "expert":
        require_expert(make_environment, target)
    if searcher is not None:
        ask(make_environment, refuse_unsearchable)
        limits = replace(limits, step_timeout=limits.step_timeout + searcher.nodes * PER_NODE)
    if teacher is not None:
        wait = teacher.client.deadline + limits.step_timeout
        limits = replace(limits, num_workers=AT_ONCE, step_timeout=wait)
    loaded = None if is_script(target) else load_policy(target)
    tokenizer = new_tokenizer(make_environment, seed=seed) if loaded is None else loaded.tokenizer
    acting = build_agent(tokenizer, make_environment, temperature=temperature, agent=agent)
    engine = None if loaded is None else build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    rollout = Rollout(acting, make_environment, engine, limits=limits, source=find_source(acting))
    if loaded is not None:
        return Acting(rollout=rollout, tokenizer=tokenizer, model=loaded.model)
    demonstrator = noisy(expert_noise) if expert_noise else teacher or searcher or TEACHERS[target]
    return Acting(rollout=rollout, tokenizer=tokenizer, demonstrator=demonstrator)


@contextmanager
def keep_evaluation(
    folder: Path | None, settings: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
) -> Generator[tuple[Keep, Known]]:
    """Keep episodes in `folder`, and yield what keeps one, and what is there of an evaluation that was broken off.

    Without a folder nothing is kept. The rounds are closed at the end, unless an error ends the block. What broke is
    played again, and files that the settings name must be what they were.

    Raises:
        UsageError: the folder holds something else, or an evaluation of other settings or files.
    """
    if folder is None:
        yield lambda _round, _trajectory: None, lambda _round: ()
        return
    is_new = not folder.exists()
    run = _open_evaluation(folder, settings)
    added: dict[int, list[Trajectory]] = {}
    with looked_after(run, start=TOKENIZERS[0], is_new=is_new, is_continued=False):
        if is_new:
            tokenizer.save_pretrained(str(folder / TOKENIZERS[0]))
            run.record_files(TOKENIZERS[0], *files_named(settings), *find_own_python())
        is_repeated = settings.get("attempts", 1) > 1  # then what broke is attempted again in the next round
        run.take_back(lambda each: is_repeated or isinstance(each.outcome, Score), phase=PHASE)
        kept = [(each.step, each.trajectory) for each in run.read_rows(phase=PHASE)]
        names = {(step, each.group, each.index) for step, each in kept}
        for step, each in kept:
            added.setdefault(step, []).append(each)

        def keep(number: int, trajectory: Trajectory) -> None:
            if (number, trajectory.group, trajectory.index) not in names:
                run.append([trajectory], step=number, phase=PHASE)
                added.setdefault(number, []).append(trajectory)

        yield keep, lambda number: [each for step, each in kept if step == number]
        for number, episodes in sorted(added.items()):
            scored = any(isinstance(each.outcome, Score) for each in episodes)
            found = {} if is_repeated and not scored else evaluate(episodes).metrics()
            run.commit(number, found, phase=PHASE)
        run.finish()


def find_own_python() -> list[Path]:
    """Return the Python files that were imported and belong to no installed package: environments, what they import."""
    theirs = [
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    theirs.append(Path(__file__).resolve().parents[1])
    found: set[Path] = set()
    for name, module in list(sys.modules.items()):
        text = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(text, str) or not text.endswith(".py"):
            continue
        place = Path(text).resolve()
        is_installed = any(place.is_relative_to(each) for each in theirs) or "site-packages" in place.parts
        if not is_installed and place.is_file():
            found.add(place)
    return sorted(found)


def _open_evaluation(folder: Path, settings: Mapping[str, Any]) -> Run:
    """Return the evaluation of these `settings` in `folder`, to be written on; a new one where there is none."""
    if not folder.exists():
        return Run.create(folder, recipe=EVALUATION, config=settings)
    check_kept(folder, settings)
    return Run.open(folder)


def check_kept(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise a `UsageError` where `folder` is there and holds no evaluation of these `settings` and files."""
    if not folder.exists():
        return
    if not is_run(folder):
        raise UsageError(f"--out: got {folder}, which holds no evaluation; choose another name")
    with Run.open(folder, writable=False) as run:
        recipe, before, changes = run.recipe, run.config, run.find_changes()
    differing = sorted(name for name in {*settings, *before} if settings.get(name) != before.get(name))
    if recipe != EVALUATION or differing:
        other = ", ".join(f"{name} {before.get(name)!r}, not {settings.get(name)!r}" for name in differing)
        raise UsageError(
            f"--out: got {folder}, which holds {other or f'a run of {recipe}'}; choose another name, or ask for "
            "the same"
        )
    if changes:
        raise UsageError(
            f"--out: got {folder}, which was played with other files: {in_words(changes)}; bring them back, or choose "
            "another name"
        )
