"""The datasets of reasoning-gym (arXiv 2505.24760; package reasoning-gym) as episodes of one turn.

Questions and graders are the package's own. The score is what the package's grader gives; a grader that breaks is the
judge's failure, never a 0.
"""

from typing import Any, ClassVar, Self, cast

from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.environments.splitting import is_eval
from quintain.environments.tools import GraderFault
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, StepResult, Task

UNANSWERED = frozenset({"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
"""Datasets whose stored answer, where there is one, does not get full marks: they have no expert."""
SEED_BITS = 31
MAX_DRAWS = 64
"""Questions drawn for a task before one of the other split is taken: some datasets have only a few."""
Entry = dict[str, Any]


class ReasoningGym(Environment):
    """Answer the question. Write only the answer, or put it between <answer> and </answer>."""

    tags: ClassVar[frozenset[str]] = frozenset({"reasoning"})
    max_turns = 1

    def __new__(cls, dataset: str = "chain_sum", **_options: Any) -> Self:
        """Return an environment with an expert where the dataset stores answers that get full marks."""
        is_known = cls is ReasoningGym and dataset not in UNANSWERED
        return super().__new__(cast("type[Self]", Answered) if is_known else cls)

    def __init__(self, dataset: str = "chain_sum", *, pass_mark: float = 1.0, **options: Any) -> None:
        """Take questions of `dataset`; `options` go to ``reasoning_gym.create_dataset``.

        An answer with `pass_mark` or more counts as a success; the reward is the score itself.

        Raises:
            MissingExtra: reasoning-gym is not installed.
            UsageError: there is no such dataset, or an option does not fit.
        """
        if not 0 < pass_mark <= 1:
            raise UsageError(
                f"pass_mark of reasoning-gym: got {pass_mark:g}; give a score above 0, at most 1"
            )
        self._package = package()
        names = self._package.factory.DATASETS
        if dataset not in names:
            raise UsageError(f"reasoning-gym dataset: got {dataset!r}; {_near(dataset, names)}")
        self.name = f"reasoning-gym/{dataset}"
        self._dataset, self._options, self._pass_mark = dataset, options, pass_mark
        self._entry: Entry = {}
        self._questions(0)

    def reset(self, task: Task) -> str:
        """Draw the question of the task; equal questions are never in both splits."""
        for _ in range(MAX_DRAWS):
            self._questions(task.rng.getrandbits(SEED_BITS))
            if is_eval((self._dataset, self.state_key())) == (task.split == "eval"):
                break
        return self.state_key()

    def step(self, action: Action) -> StepResult:
        """Grade the answer; the episode is over."""
        if action.error is not None:
            return StepResult(observation=f"Error: {action.error}", is_valid=False, is_success=False)
        score = self._score(answer_in(action.text))
        return StepResult(
            observation=f"score {score:g}",
            reward=score,
            is_terminated=True,
            is_success=score >= self._pass_mark,
        )

    def snapshot(self) -> Entry:
        """Return the question with its answer, which nothing changes."""
        return self._entry

    def restore(self, state: Entry) -> None:
        """Go back to a question of the same dataset."""
        self._entry = state

    def state_key(self) -> str:
        """Return the question."""
        return str(self._entry["question"])

    def _questions(self, seed: int) -> None:
        """Draw the question of `seed`; the grader may depend on the dataset that drew it."""
        try:
            self._source = self._package.create_dataset(self._dataset, seed=seed, size=1, **self._options)
            self._entry = cast(Entry, self._source[0])
        except (TypeError, ValueError, AssertionError) as error:
            reason = " ".join(str(error).split())
            raise UsageError(
                f"reasoning-gym dataset: got {self._dataset!r} with {self._options}, which fails: {reason}; mend it"
            ) from error

    def _score(self, answer: str) -> float:
        """Return the grader's score of `answer`, 0 to 1.

        Raises:
            GraderFault: there is none.
        """
        try:
            score = float(self._source.score_answer(answer=answer, entry=self._entry))
        except Exception as error:
            raise GraderFault(
                f"grader of {self.name}: got {type(error).__name__}: {error} for the answer {answer[:60]!r}; "
                "leave this dataset out"
            ) from error
        if not 0 <= score <= 1:
            raise GraderFault(f"grader of {self.name}: got the score {score}; leave this dataset out")
        return score


class Answered(ReasoningGym):
    """A dataset that stores an answer with full marks."""

    is_variant = True

    def expert_action(self) -> Action:
        """Return the stored answer.

        Raises:
            EnvironmentFault: none is stored with this question.
        """
        answer = self._entry["answer"]
        if answer is None:
            raise EnvironmentFault(f"expert of {self.name}: got no stored answer; skip its demonstration")
        return Action(text=str(answer))


def package() -> Any:
    """Return the module ``reasoning_gym``.

    Raises:
        MissingExtra: it is not installed.
    """
    return extra_module(
        "reasoning_gym",
        package="reasoning-gym",
        extra="reasoning-gym",
        feature="the environment reasoning-gym",
    )


def answer_in(text: str) -> str:
    """Return the answer in `text`: what the last pair of answer tags holds, or all of it.

    Example: ``answer_in("2 + 2 ... <answer>4</answer>")`` is ``"4"``.
    """
    _, opening, rest = text.rpartition("<answer>")
    return (rest.partition("</answer>")[0] if opening else text).strip()


def _near(name: str, names: Any) -> str:
    """Return the name like `name`, or where all of them are listed."""
    near = suggestion(name, [str(each) for each in names])
    return near if len(near) < 80 else "see sorted(reasoning_gym.factory.DATASETS)"
