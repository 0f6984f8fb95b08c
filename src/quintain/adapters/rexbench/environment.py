"""RExBench: extend the experiment of a repository as its instructions say; its numbers decide.

For evaluation only. Tasks come from a folder (`layout`); code runs in the sandbox, without a network or a GPU, so that
tasks which need one cannot be played here. Whether the commands ended well and how many of the right files were
changed stand beside success, unpaid.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from quintain.adapters.rexbench.judging import (
    LONGEST,
    find_changed,
    gold_files,
    judge,
    run_command,
)
from quintain.adapters.rexbench.layout import MOST_FILES, Extension, cut_hints, is_inside, read_extensions
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.tools import tool
from quintain.errors import DataError, UsageError
from quintain.safety.isolation import require
from quintain.text.patch import apply_patch
from quintain.types import NOTHING, Action, Split, StepResult, Task, derive_seed

LONGEST_FILE = 200_000
LISTED = 60
"""Files that are listed."""


class RexBench(Environment):
    """Extend the experiment of the repository as you are told. Read and change its files, run it, then submit: it is
    run again, and its numbers decide."""

    name = "rexbench"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "planning", "reasoning"})
    evaluation_only = True

    def __init__(self, folder: str, *, hints: int = 0, task: str = "", max_turns: int = 60) -> None:
        """Take the tasks of `folder`, or `task` alone, with hints of a level from 0 to 2, and so many turns at most.

        Raises:
            DataError: the folder has no tasks that can be judged.
            UsageError: there is no such task or level, or no turn.
            SandboxError: code cannot be isolated on this machine.
        """
        require()
        found = read_extensions(Path(folder).expanduser())
        self.extensions = [each for each in found if task in ("", each.name)]
        if not self.extensions:
            raise UsageError(
                f"task of rexbench: got {task!r}; give one of {', '.join(each.name for each in found)}"
            )
        if max_turns < 1:
            raise UsageError(f"max_turns of rexbench: got {max_turns}; give 1 or more")
        self.max_turns = max_turns
        self._told = {each.name: cut_hints(each.instructions, hints) for each in self.extensions}
        self._extension: Extension = self.extensions[0]
        self._files: dict[str, str] = {}
        self._terms: Mapping[str, float] = NOTHING

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index`, around and around; the splits have the same ones."""
        extension = self.extensions[index % len(self.extensions)]
        seed = derive_seed(self.name, index) % (1 << 52) << 1 | (split == "eval")
        return Task(
            id=f"{self.name}/{extension.name}/{split}/{index}", environment=self.name, seed=seed, split=split,
            data={"task": extension.name}, tags=self.tags,
        )  # fmt: skip

    def reset(self, task: Task) -> str:
        """Tell the instructions of the task."""
        self._extension = next(each for each in self.extensions if each.name == task.data["task"])
        self._files, self._terms = dict(self._extension.repository), NOTHING
        command = " ".join(self._extension.judging.command)
        return f"{self._told[self._extension.name]}\nIt is run by: {command}\nFiles: {self._list()}"

    def step(self, action: Action) -> StepResult:
        """Carry out the calls of `action`; what else is found of a patch stands beside its verdict."""
        result = super().step(action)
        return replace(result, reward_terms=self._terms) if result.is_terminated else result

    @tool
    def list_files(self) -> str:
        """List the files."""
        return self._list()

    @tool
    def read_file(self, path: str, first: int = 1, count: int = 400) -> str:
        """Read lines of a file.

        Args:
            path: its name
            first: number of the first line, from 1
            count: how many lines
        """
        if path not in self._files:
            return self.failure(f"Error: there is no file {path[:80]!r}; list the files.")
        return "\n".join(self._files[path].split("\n")[max(first, 1) - 1 :][: max(count, 0)])

    @tool
    def write_file(self, path: str, text: str) -> str:
        """Write a file, or write over it.

        Args:
            path: its name, such as scripts/run.py
            text: all of its text
        """
        return self._change({**self._files, path: text})

    @tool
    def apply_patch(self, diff: str) -> str:
        """Change files by a unified diff.

        Args:
            diff: lines --- a/FILE, +++ b/FILE, @@ -1,3 +1,3 @@, and what is kept, taken away and put there
        """
        try:
            return self._change(apply_patch(self._files, diff))
        except DataError as error:
            return self.failure(f"Error: {error}.")

    @tool
    def run(self) -> str:
        """Run the experiment as it is now, on what you can see, and return the end of what it prints."""
        ran = run_command(self._extension, self._files)
        ended = "It ended well." if ran.has_ended_well else f"It failed{ran.reason and f' ({ran.reason})'}."
        return f"{ran.files[''][-LONGEST:]}\n{ended}"

    @tool
    def submit(self) -> str:
        """Hand in the repository as it is; this ends the work."""
        verdict = judge(self._extension, self._files)
        self._terms = {
            "executed": float(verdict.has_executed),
            "file_recall": verdict.file_recall,
        }
        said = (
            "in range" if verdict.is_success else "out of range" if verdict.has_executed else "failed to run"
        )
        return self.finish(said, reward=float(verdict.is_success), success=verdict.is_success)

    def expert_action(self) -> Action:
        """Return the gold patch, and then that it is handed in."""
        is_done = self._files == gold_files(self._extension)
        return tool_action("submit") if is_done else tool_action("apply_patch", diff=self._extension.gold)

    def snapshot(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return the task and the files."""
        return self._extension.name, tuple(self._files.items())

    def restore(self, state: tuple[str, tuple[tuple[str, str], ...]]) -> None:
        """Continue from a snapshot."""
        name, files = state
        self._extension = next(each for each in self.extensions if each.name == name)
        self._files, self._terms = dict(files), NOTHING

    def _list(self) -> str:
        """Return the names of files, those that were changed first where there are many."""
        changed = find_changed(self._extension, self._files)
        names = sorted(self._files, key=lambda path: (path not in changed, path.count("/"), path))
        rest = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
        return ", ".join(names[:LISTED]) + rest

    def _change(self, files: dict[str, str]) -> str:
        """Take `files` for the repository; what leads out of it, or is too much, changes nothing."""
        changed = sorted(
            path for path in {**self._files, **files} if self._files.get(path) != files.get(path)
        )
        bad = [path for path in changed if not is_inside(path)]
        big = [path for path in changed if len(files.get(path, "")) > LONGEST_FILE]
        if bad or big or len(files) > MOST_FILES:
            return self.failure(
                f"Error: {', '.join([*bad, *big])[:200] or f'{len(files)} files'} cannot be; paths lead into the "
                f"repository, which has {MOST_FILES} files of {LONGEST_FILE} letters at most."
            )
        self._files = files
        return f"Changed {', '.join(changed) or 'nothing'}."
