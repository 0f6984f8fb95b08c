"""A small repository whose tests fail: read, mend, test, hand in.

Family it stands for: SWE-bench (arXiv 2310.06770) and other benchmarks of mending code. Code runs in the sandbox.
What is handed in is graded by calls that the agent never sees, whose results are compared outside of the box. Only
the modules count; tests that are changed or deleted, and files that run by themselves, do not.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import tool
from quintain.errors import DataError, UsageError
from quintain.rewards.localisation import find_changed_places, localise
from quintain.text.patch import apply_patch
from quintain.types import NOTHING, Action, StepResult, Task, ToolSpec, as_text, derive_seed
from quintain.worlds.repo.agents import AGENTS
from quintain.worlds.repo.box import RepoBox, require_sandbox
from quintain.worlds.repo.plan import (
    EVERY,
    MODULES,
    TEMPLATES,
    RepoPlan,
    draw_hidden_cases,
    draw_plan,
    files,
    repair,
    right_files,
)

FILE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}\.py")
MOST_FILES, LONGEST_FILE = 24, 20_000
State = tuple[RepoPlan, tuple[tuple[str, str], ...], frozenset[str], bool, int]


class Repo(Environment):
    """Mend the repository so that its functions do what they say. Change the modules, run the tests, then submit."""

    name = "repo"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "planning", "reasoning", "self-improvement"})

    def __init__(
        self,
        *,
        modules: int = 1,
        functions: int = 2,
        bugs: int = 1,
        report: Literal["call", "vague"] = "call",
        reward: Literal["sparse", "dense"] = "sparse",
        noise: int = 0,
        kind: Literal["plain", "agent"] = "plain",
    ) -> None:
        """Write `modules` modules of `functions` functions each, and break `bugs` of these.

        With `kind` agent they are parts of small agents, and the first observation is the issue of a user, who knows
        neither file nor function. Where what is handed in was changed and whether the visible tests pass it stands in
        `reward_terms` then, unpaid: located_file, located_function, plausible.

        The first observation names one broken function and where it is (`report=call`), or only says that
        tests fail (`vague`). A sparse reward is 1 when everything is right at the end; a dense one the share of
        bugs that are mended, and nothing if something else was broken. `noise` sentences that mean nothing
        follow every observation.

        Raises:
            UsageError: there is no such repository.
            SandboxError: code cannot be isolated on this machine.
        """
        require_sandbox()
        self._templates = AGENTS if kind == "agent" else TEMPLATES
        most = min(modules * functions, len(self._templates))
        if not 1 <= modules <= len(MODULES) or functions < 1 or not 1 <= bugs <= most or noise < 0:
            raise UsageError(
                f"repo: got modules={modules}, functions={functions}, bugs={bugs}, noise={noise}; give 1 to "
                f"{len(MODULES)} modules, at least 1 function in each, 1 to {most} bugs and no negative noise"
            )
        if modules * functions > len(self._templates):
            raise UsageError(
                f"repo: got {modules * functions} functions; there are {len(self._templates)}: use fewer modules or "
                "functions"
            )
        self._shape = (modules, functions, bugs)
        self._is_vague, self._is_dense, self._noise = report == "vague", reward == "dense", noise
        self.max_turns = 6 + 2 * modules + 3 * bugs
        self._plan = RepoPlan(modules=(), seed=0)
        self._files: dict[str, str] = {}
        self._seen: frozenset[str] = frozenset()
        self._is_tested = False
        self._turn = 0
        self._is_refused = False
        self._terms: Mapping[str, float] = NOTHING
        self._box = RepoBox()

    def reset(self, task: Task) -> str:
        """Write the repository of the task."""
        self._box.close()
        modules, functions, bugs = self._shape
        self._plan = split_draw(
            task,
            lambda rng: draw_plan(
                rng, modules=modules, functions=functions, bugs=bugs, templates=self._templates
            ),
        )
        self._files = files(self._plan)
        self._seen, self._is_tested, self._turn = frozenset(), False, 0
        module, piece = self._plan.broken[0]
        if self._is_vague:
            told = "Some tests fail."
        else:
            told = EVERY[piece.template].issue or f"{piece.name} in {module}.py is wrong."
        self._terms = NOTHING
        return f"{told} Files: {', '.join(self._files)}.{self._chatter()}"

    def step(self, action: Action) -> StepResult:
        """Carry out the calls of `action`; one that is refused changes nothing."""
        self._turn += 1
        self._is_refused = False
        result = super().step(action)
        if self._is_refused or self._noise:
            is_valid = result.is_valid and not self._is_refused
            result = replace(
                result, observation=f"{as_text(result.observation)}{self._chatter()}", is_valid=is_valid
            )
        return replace(result, reward_terms=self._terms) if self._terms else result

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools; patches are for small agents, as the benchmarks that they stand for have them."""
        has_patches = self._templates is AGENTS
        return tuple(spec for spec in super().tools() if has_patches or spec.name != "apply_patch")

    def close(self) -> None:
        """End the box."""
        self._box.close()

    @tool
    def list_files(self) -> str:
        """List the files."""
        return ", ".join(self._files)

    @tool
    def read_file(self, path: str) -> str:
        """Read a file.

        Args:
            path: its name
        """
        if path not in self._files:
            return self._refuse(f"there is no file {path[:40]!r}; files: {', '.join(self._files)}")
        self._seen |= {path}
        return self._files[path]

    @tool
    def write_file(self, path: str, text: str) -> str:
        """Write a file, or write over it.

        Args:
            path: its name, such as extra.py
            text: all of its text
        """
        if not FILE_NAME.fullmatch(path):
            return self._refuse(
                f"{path[:40]!r} is no name for a file; give one such as extra.py, without folders"
            )
        if len(text) > LONGEST_FILE or len({*self._files, path}) > MOST_FILES:
            return self._refuse(f"a repository has {MOST_FILES} files of {LONGEST_FILE} letters at most")
        self._change(path, text)
        return f"Wrote {path}."

    @tool
    def replace(self, path: str, old: str, new: str) -> str:
        """Replace a text that stands once in a file.

        Args:
            path: the file's name
            old: the text to replace
            new: the text to put there
        """
        if path not in self._files:
            return self._refuse(f"there is no file {path[:40]!r}; files: {', '.join(self._files)}")
        count = self._files[path].count(old) if old else 0
        if count != 1:
            return self._refuse(
                f"the old text stands {count} times in {path}; give one that stands there once"
            )
        text = self._files[path].replace(old, new)
        if len(text) > LONGEST_FILE:
            return self._refuse(f"a file has {LONGEST_FILE} letters at most")
        self._change(path, text)
        return f"Changed {path}."

    @tool
    def apply_patch(self, diff: str) -> str:
        """Change files by a unified diff.

        Args:
            diff: lines --- a/FILE, +++ b/FILE, @@ -1,3 +1,3 @@, and what is kept, taken away and put there
        """
        try:
            found = apply_patch(self._files, diff)
        except DataError as error:
            return self._refuse(str(error))
        bad = [name for name in found if name not in self._files and not FILE_NAME.fullmatch(name)]
        if bad or len(found) > MOST_FILES or any(len(text) > LONGEST_FILE for text in found.values()):
            return self._refuse(
                f"a repository has {MOST_FILES} files of {LONGEST_FILE} letters at most, in no folders"
            )
        changed = sorted(
            name for name in {**self._files, **found} if self._files.get(name) != found.get(name)
        )
        self._files, self._is_tested = found, False
        return f"Changed {', '.join(changed) or 'nothing'}."

    @tool
    def run_tests(self) -> str:
        """Run the tests."""
        self._is_tested = True
        return self._box.tests(self._files)

    @tool
    def submit(self) -> str:
        """Hand in the repository as it is; this ends the work."""
        value = self._grade()
        if self._templates is AGENTS:
            self._terms = self._locate()
        said = "All hidden tests pass." if value == 1 else "Some hidden tests fail."
        return self.finish(said, reward=value if self._is_dense else float(value == 1), success=value == 1)

    def expert_action(self) -> Action:
        """Return the next action of one who tests, reads, mends, tests again and hands in."""
        if not self._is_tested and not self._seen and self._files == files(self._plan):
            return tool_action("run_tests")
        for name, right in right_files(self._plan).items():
            text = self._files.get(name, "")
            if text == right:
                continue
            mended = repair(text, self._plan, name.removesuffix(".py"))
            if name not in self._seen:
                return tool_action("read_file", path=name)
            if mended is None:
                return tool_action("write_file", path=name, text=right)
            return tool_action("replace", path=name, old=mended[0], new=mended[1])
        return tool_action("submit" if self._is_tested else "run_tests")

    def mistaken_action(self, rng: Random) -> Action:
        """Return a typical mistake: handing in too early, spoiling a line, or the tests."""
        name, text = rng.choice(sorted(self._files.items()))
        lines = [line for line in text.splitlines() if line.strip() and text.count(line) == 1]
        kinds = ["submit", "tests", *(["line"] if lines else [])]
        kind = rng.choice(kinds)
        if kind == "line":
            return tool_action("replace", path=name, old=rng.choice(lines), new="    pass")
        if kind == "tests":
            tests = sorted(name for name in files(self._plan) if name.startswith("test_"))
            return tool_action("write_file", path=rng.choice(tests), text="")
        return tool_action("submit")

    def snapshot(self) -> State:
        """Return the repository, and what was read and tested; the box holds no state."""
        return self._plan, tuple(self._files.items()), self._seen, self._is_tested, self._turn

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._plan, kept, self._seen, self._is_tested, self._turn = state
        self._files = dict(kept)

    def state_key(self) -> str:
        """Return a key of the files."""
        return f"{derive_seed(*(part for pair in sorted(self._files.items()) for part in pair)):x}"

    def _grade(self) -> float:
        """Return the share of broken functions that are right, or 0 if one that was right is not."""
        plan = self._plan
        if self._modules(self._files) == self._modules(files(plan)):
            return 0.0  # nothing was changed, so that nothing is mended
        cases = draw_hidden_cases(plan)
        box = RepoBox()  # not the box of the episode, in which the agent's code has run
        try:
            results = box.results(self._modules(self._files), cases)
        finally:
            box.close()
        wrong = {
            (case.module, case.function, case.was_broken)
            for case, is_right in zip(cases, results, strict=True)
            if not is_right
        }
        if any(not was_broken for _, _, was_broken in wrong):
            return 0.0
        return 1 - len(wrong) / len(plan.broken)

    def _locate(self) -> dict[str, float]:
        """Return whether the change is where it should be, and whether the visible tests, as they were, pass it."""
        before, after = (self._modules(texts) for texts in (files(self._plan), self._files))
        found = localise(
            find_changed_places(before, after),
            find_changed_places(before, {**before, **right_files(self._plan)}),
        )
        tests = {name: text for name, text in files(self._plan).items() if name.startswith("test_")}
        box = RepoBox()
        try:
            is_plausible = "FAILED" not in (said := box.tests({**after, **tests})) and "tests pass" in said
        finally:
            box.close()
        return {
            "located_file": float(found.file),
            "located_function": float(found.function),
            "plausible": float(is_plausible),
        }

    def _modules(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the files that are graded: all but tests."""
        return {name: text for name, text in texts.items() if not name.startswith("test_")}

    def _change(self, path: str, text: str) -> None:
        """Write a file; what the tests said holds no longer."""
        self._files[path] = text
        self._is_tested = False

    def _refuse(self, why: str) -> str:
        """Refuse a call."""
        self._is_refused = True
        return f"Error: {why}."

    def _chatter(self) -> str:
        """Return the sentences that follow this turn's observation."""
        return chatter(self._noise, self._plan.seed, self._turn)
