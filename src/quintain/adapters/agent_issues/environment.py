"""AgentIssue-Bench: mend an agent of the world outside; its test runs in the benchmark's container.

For evaluation only. Docker and the images must be there: each look at the code and each test is a container of its own,
without a network. A container that cannot be run is a fault of the judge and no score.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

from quintain.adapters.agent_issues.layout import Issue, find_changed, is_solved, read_issues
from quintain.environments.extras import extra_program
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.tools import GraderFault, tool
from quintain.types import Action, Split, StepResult, Task, derive_seed

SECONDS = 300
"""A test may take that long; the benchmark's own limit."""
LONGEST, NO_CONTAINER = 8000, 125
ENTRY = "/usr/local/bin/run_test_entrypoint.sh"


class AgentIssues(Environment):
    """Mend the agent so that the issue is gone. Look at its code, then submit one unified diff, as git makes it."""

    name = "agent-issues"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "planning", "reasoning"})
    evaluation_only = True
    max_turns = 40
    parallel = 1

    def __init__(self, folder: str) -> None:
        """Take the issues of the checkout `folder`.

        Raises:
            DataError: it is no checkout of the benchmark.
            MissingExtra: there is no docker.
        """
        self.issues = read_issues(Path(folder).expanduser())
        self._docker = extra_program(("docker",), package="docker.io", feature="the environment agent-issues")
        self._issue: Issue = self.issues[0]
        self._located = 0.0

    def task(self, split: Split, index: int) -> Task:
        """Return issue number `index`, around and around; the splits have the same ones."""
        issue = self.issues[index % len(self.issues)]
        seed = derive_seed(self.name, index) % (1 << 52) << 1 | (split == "eval")
        return Task(
            id=f"{self.name}/{issue.tag}/{split}/{index}", environment=self.name, seed=seed, split=split,
            data={"issue": issue.tag}, tags=self.tags,
        )  # fmt: skip

    def reset(self, task: Task) -> str:
        """Tell the issue of the task."""
        self._issue = next(each for each in self.issues if each.tag == task.data["issue"])
        self._located = 0.0
        return f"{self._issue.title}\n{self._issue.description}\nRepository: {self._issue.repository}"

    def step(self, action: Action) -> StepResult:
        """Carry out the calls of `action`; whether a patch is in the right files stands beside its verdict."""
        result = super().step(action)
        if not result.is_terminated:
            return result
        return StepResult(
            observation=result.observation, reward=result.reward, is_terminated=True, is_success=result.is_success,
            reward_terms={"located_file": self._located},
        )  # fmt: skip

    @tool
    def look(self, command: str) -> str:
        """Run a shell command in the agent's folder, in a fresh container; nothing that it changes is kept.

        Args:
            command: such as grep -rn timeout .
        """
        code, output = self._run(f"cd /app/source_code_buggy && {command}")
        return f"exit code {code}\n{output[-LONGEST:]}"

    @tool
    def submit_patch(self, diff: str) -> str:
        """Hand in the patch; this ends the work.

        Args:
            diff: unified, with a/FILE and b/FILE, as git diff prints it
        """
        right = find_changed(self._issue.gold)
        self._located = float(bool(right) and right <= find_changed(diff))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "patch.patch").write_text(diff if diff.endswith("\n") else f"{diff}\n", "utf-8")
            Path(folder).chmod(0o755)
            tested = f"{ENTRY} apply_patch /patches/patch.patch && {ENTRY} test_patched"
            code, output = self._run(tested, "-v", f"{folder}:/patches:ro")
        is_right = is_solved(output, code)
        return self.finish("solved" if is_right else "not solved", reward=float(is_right), success=is_right)

    def expert_action(self) -> Action:
        """Return the patch of the people who mended it."""
        return tool_action("submit_patch", diff=self._issue.gold)

    def _run(self, command: str, *options: str) -> tuple[int, str]:
        """Return how `command` ended in a container of the issue's image, and what it said; a slow one with code 124.

        Raises:
            GraderFault: no container could be run.
        """
        line = [
            self._docker, "run", "--rm", "--network", "none", "--pull", "never", "--entrypoint", "bash", *options,
            self._issue.image, "-c", command,
        ]  # fmt: skip
        try:
            done = subprocess.run(line, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return 124, ""
        output = (done.stdout + done.stderr).decode("utf-8", "replace")
        if done.returncode == NO_CONTAINER:
            raise GraderFault(
                f"container of {self._issue.tag}: got {output.strip()[-200:]!r}; docker pull {self._issue.image}"
            )
        return done.returncode, output
