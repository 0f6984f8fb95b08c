"""Every setting of the newest verl, TRL, OpenRLHF and ms-swift has a line: their wheels are fetched and read, not run.

`make test-templates` runs it. A version that adds a setting fails here, and is refused by `quintain import` meanwhile.
"""

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from transformers import TrainingArguments

from quintain.pipelines.foreign import openrlhf, swift, trl, verl
from quintain.pipelines.foreign.rules import Trainer, reason_of
from quintain.pipelines.foreign_settings import flatten

SWIFT = (
    r"swift/(arguments/(base_args/\w+|rlhf_args|sft_args|tuner_args)|rlhf_trainers/(args_mixin|arguments)"
    r"|trainers/arguments|ray_utils/arguments)\.py$"
)


def fetch(folder: Path, requirement: str) -> zipfile.ZipFile:
    """The wheel of a package; the test is skipped where it cannot be had."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--quiet"]
    done = subprocess.run(
        [*pip, "--only-binary", ":all:", requirement],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"{requirement} could not be fetched: {done.stderr.strip().splitlines()[-1:]}")
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def fields_in(wheel: zipfile.ZipFile, pattern: str) -> Iterator[str]:
    """The annotated names of all classes in the files whose names fit."""
    for name in filter(re.compile(pattern).search, wheel.namelist()):
        for found in ast.walk(ast.parse(wheel.read(name))):
            if isinstance(found, ast.ClassDef):
                for line in found.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        yield line.target.id


def flags_in(wheel: zipfile.ZipFile, pattern: str) -> Iterator[str]:
    """The flags that argument parsers of the files have, those with a prefix as the actor's."""
    for name in filter(re.compile(pattern).search, wheel.namelist()):
        for call in ast.walk(ast.parse(wheel.read(name))):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "add_argument"
            ):
                for given in call.args:
                    text = ast.unparse(given).removeprefix("f").strip("'").replace("{prefix}", "actor")
                    yield text.removeprefix("--")


def unknown(trainer: Trainer, names: Iterator[str] | set[str]) -> list[str]:
    return sorted(
        {name for name in names if name not in trainer.rules and not reason_of(name, trainer.reasons)}
    )


def test_every_argument_of_transformers_has_a_line() -> None:
    """TRL's and ms-swift's stand on them; of the version that is installed here."""
    names = {field.name for field in fields(TrainingArguments)}
    assert unknown(trl.TRAINER, names) == [] == unknown(swift.TRAINER, names)


@pytest.mark.templates
def test_every_field_of_trl_has_a_line(tmp_path: Path) -> None:
    names = set(fields_in(fetch(tmp_path, "trl"), r"trl/trainer/(grpo_config|base_config)\.py$"))
    assert len(names) > 60 and unknown(trl.TRAINER, names) == []


@pytest.mark.templates
def test_every_argument_of_ms_swift_has_a_line(tmp_path: Path) -> None:
    names = set(fields_in(fetch(tmp_path, "ms-swift"), SWIFT))
    assert len(names) > 300 and unknown(swift.TRAINER, names) == []


@pytest.mark.templates
def test_every_flag_of_openrlhf_has_a_line(tmp_path: Path) -> None:
    names = set(flags_in(fetch(tmp_path, "openrlhf"), r"cli/train_(ppo_ray|sft|dpo|rm)\.py$"))
    assert len(names) > 150 and unknown(openrlhf.TRAINER, names) == []


@pytest.mark.templates
def test_every_key_of_verl_has_a_line(tmp_path: Path) -> None:
    wheel = fetch(tmp_path, "verl")
    (name,) = (
        each for each in wheel.namelist() if each.endswith("trainer/config/_generated_ppo_trainer.yaml")
    )
    keys = {key for key, _ in flatten(yaml.safe_load(wheel.read(name))) if not key.endswith("_target_")}
    assert len(keys) > 500 and unknown(verl.TRAINER, keys) == []
