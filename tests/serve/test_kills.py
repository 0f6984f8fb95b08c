"""`quintain serve --record` and `environments serve` as programs, ended by each signal; nothing answered is lost."""

import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import openai
import pytest
from tests.serve.test_bounds import WIDE
from transformers import PreTrainedTokenizerFast

from quintain.cli.training import resume
from quintain.errors import INTERRUPTED_EXIT_CODE
from quintain.models.tiny import build_tiny
from quintain.serve.recording import NOT_SCORED
from quintain.store.calls import CALLS
from quintain.store.run import Run
from quintain.types import Failure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
KEY = "s3cret"
SECONDS = 600


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    build_tiny(tokenizer, size="micro", seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    (folder.parent / "key").write_text(KEY)
    return folder


@contextmanager
def program(*words: str) -> Generator[tuple["subprocess.Popen[str]", str]]:
    """Yield a running command and the address that it prints."""
    line = [sys.executable, "-m", "quintain", *words]
    with subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            said = ""
            while " at http://" not in said:
                piece = process.stdout.readline()
                assert piece, said
                said += piece
            yield process, "http://" + re.split("[/,;]", said.rpartition(" at http://")[2])[0].strip()
        finally:
            process.kill()


def served(model: Path, record: Path) -> AbstractContextManager[tuple["subprocess.Popen[str]", str]]:
    return program(
        "serve", str(model), "--record", str(record), "--port", "0", "--token-file", str(model.parent / "key"),
        "--max-tokens", "12",
    )  # fmt: skip


def ask(url: str, name: str, **more: object) -> None:
    with openai.OpenAI(base_url=f"{url}/e/{name}/v1", api_key=KEY, max_retries=0, timeout=SECONDS) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Go."}], **more)  # type: ignore[call-overload] # pyright: ignore


def calls_in(run: Run) -> dict[str, int]:
    return {each.group: len(each.turns) for each in run.trajectories()}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_everything_is_recorded(
    number: signal.Signals, model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "rec"
    with served(model, folder) as (process, url):
        for name in ("one", "two", "one"):
            ask(url, name)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and f"episodes in {folder}" in rest, rest
    with Run.open(folder, writable=False) as run:
        assert run.status == "done" and calls_in(run) == {"one": 2, "two": 1}
    assert not (folder / CALLS).exists()


def test_a_kill_loses_nothing_that_was_answered(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rec"
    with served(model, folder) as (process, url):
        for name in ("one", "two", "one"):
            ask(url, name)
        process.send_signal(signal.SIGKILL)
        assert process.wait(SECONDS) == -signal.SIGKILL
    with Run.open(folder, writable=False) as run:
        assert run.status == "interrupted" and calls_in(run) == {}
    assert resume([str(folder)]) == 0
    with Run.open(folder, writable=False) as run:
        assert run.status == "done" and calls_in(run) == {"one": 2, "two": 1}
        assert {each.outcome for each in run.trajectories()} == {NOT_SCORED}


def test_a_poisoned_request_ends_its_own_episode(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rec"
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": WIDE}}
    with served(model, folder) as (process, url):
        ask(url, "innocent")
        with pytest.raises(openai.BadRequestError, match="following a grammar"):
            for _ in range(20):  # the limit is met where the object is begun
                ask(url, "poisoned", response_format=form)
        ask(url, "innocent")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    with Run.open(folder, writable=False) as run:
        outcomes = {each.group: each.outcome for each in run.trajectories()}
        assert outcomes["innocent"] == NOT_SCORED and calls_in(run)["innocent"] == 2
        failure = outcomes["poisoned"]
        assert isinstance(failure, Failure) and (failure.owner, failure.kind) == ("engine", "grammar")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_environment_that_is_served_ends_by_a_signal(number: signal.Signals) -> None:
    with program("environments", "serve", "guess", "--port", "0") as (process, _):
        process.send_signal(number)
        rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED_EXIT_CODE and "interrupted" in rest
