"""Everyday work on attached files, graded by a rubric with penalties.

Family it stands for: AgentIF-OneDay (arXiv 2601.20613), whose three kinds of tasks are here in small: a workflow whose
steps are all said, a rule that only an attachment says, and an edit of a finished file that leaves the rest as it was.
Items are checked by code; with a judge, a note to the customer is asked for and judged as well.
"""

from random import Random
from typing import ClassVar, Literal

from quintain.engines.judge import Judge
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import GraderFault, tool
from quintain.errors import UsageError
from quintain.rewards.rubric import find_failed, score_rubric
from quintain.types import Action, Failure, Task
from quintain.worlds.files.plan import KINDS, FilesPlan, Kind, draws
from quintain.worlds.files.rubrics import check_files, weights_of

LONGEST_FILE, MOST_FILES = 20_000, 24
NOTE_FILE = "note.md"
RUBRIC = (
    "The work is a note to a customer who asked for a report: friendly, short, and it says that this is done."
)
HALF = 0.5
"""What a judge must give for the note to count."""
State = tuple[FilesPlan, tuple[tuple[str, str], ...], frozenset[str]]


class FilesWorld(Environment):
    """Do what is asked for with the attached files: read them, write the files that are wanted, then submit."""

    name = "files"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "planning", "reasoning"})
    max_turns = 10

    def __init__(
        self,
        *,
        kind: Literal["any", "workflow", "latent", "refine"] = "any",
        rules: Literal["hidden", "none"] = "hidden",
        judge: str = "",
    ) -> None:
        """Take tasks of one `kind` or of any; with ``rules=none`` no attachment says anything that matters.

        The reward is the score of the rubric, at least 0; success is a whole score. `judge` is an endpoint that judges
        the note that workflows then ask for; where it does not answer, the episode is broken and has no score.

        Raises:
            UsageError: the judge is no endpoint.
        """
        self._kinds: tuple[Kind, ...] = KINDS if kind == "any" else (kind,)
        self._draws = draws(is_ruled=rules == "hidden")
        if judge and kind not in ("workflow", "any"):
            raise UsageError(
                f"files: got a judge and kind={kind}, of which nothing is judged; take kind=workflow"
            )
        self._judge = Judge(judge, usual=RUBRIC) if judge else None
        self._plan = self._draws[self._kinds[0]](Random(0))
        self._files: dict[str, str] = {}
        self._read: frozenset[str] = frozenset()
        self.failed: tuple[str, ...] = ()

    def reset(self, task: Task) -> str:
        """Attach the files of the task and say what is wanted."""
        self._plan = split_draw(task, lambda rng: self._draws[rng.choice(self._kinds)](rng))
        self._files, self._read, self.failed = dict(self._plan.attached), frozenset(), ()
        more = f" Also write {NOTE_FILE}, a friendly note to the customer." if self._is_judged else ""
        return f"{self._plan.request}{more} Attached: {', '.join(self._files)}."

    @property
    def plan(self) -> FilesPlan:
        """The task as it was drawn."""
        return self._plan

    @property
    def _is_judged(self) -> bool:
        return self._judge is not None and self._plan.kind == "workflow"

    @tool
    def read_file(self, path: str) -> str:
        """Read a file.

        Args:
            path: its name
        """
        if path not in self._files:
            return f"Error: there is no file {path[:40]!r}; files: {', '.join(self._files)}"
        self._read |= {path}
        return self._files[path]

    @tool
    def write_file(self, path: str, text: str) -> str:
        """Write a file, or write over it.

        Args:
            path: its name, such as report.csv
            text: all of its text
        """
        if not path or "/" in path or len(path) > 60:
            return f"Error: {path[:40]!r} is no name for a file; give one such as report.csv, without folders"
        if len(text) > LONGEST_FILE or len({*self._files, path}) > MOST_FILES:
            return f"Error: there are {MOST_FILES} files of {LONGEST_FILE} letters at most"
        self._files[path] = text
        return f"wrote {path}"

    @tool
    def submit(self) -> str:
        """Hand in the files as they are."""
        held = check_files(self._plan, self._files, may_write=(NOTE_FILE,) if self._is_judged else ())
        if self._is_judged:
            held["note"] = self._ask_judge()
        weights = weights_of(self._plan.kind, is_judged=self._is_judged)
        score = score_rubric(weights, held, is_floored=True)
        self.failed = find_failed(weights, held)
        told = f"score {score:.2f}" + (f"; failed: {', '.join(self.failed)}" if self.failed else "")
        return self.finish(told, reward=score, success=not self.failed)

    def expert_action(self) -> Action:
        """Return the next step of who reads every attachment, writes what is wanted and submits."""
        for name, _ in self._plan.attached:
            if name not in self._read:
                return tool_action("read_file", path=name)
        more = ((NOTE_FILE, "It is done. Have a nice day!\n"),) if self._is_judged else ()
        for name, text in (*self._plan.wanted, *more):
            if self._files.get(name) != text:
                return tool_action("write_file", path=name, text=text)
        return tool_action("submit")

    def snapshot(self) -> State:
        """Return the task, its files and which were read."""
        return self._plan, tuple(self._files.items()), self._read

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._plan, files, self._read = state
        self._files, self.failed = dict(files), ()

    def state_key(self) -> str:
        """Return the files as they are, and which were read."""
        return repr((tuple(sorted(self._files.items())), sorted(self._read)))

    def _ask_judge(self) -> bool:
        """Return whether the judge finds the note good enough.

        Raises:
            GraderFault: it does not answer, or not with a score.
        """
        assert self._judge is not None, "asked only where there is one"
        note = self._files.get(NOTE_FILE, "")
        if not note.strip():
            return False
        found = self._judge.score({"request": self._plan.request, "note": note})
        if isinstance(found, Failure):
            raise GraderFault(found.message)
        return found >= HALF
