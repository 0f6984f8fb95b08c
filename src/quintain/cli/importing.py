"""``quintain import FILE``: settings of verl or TRL as a configuration of ours, and what became of every key."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from quintain.cli.arguments import Parser
from quintain.errors import UsageError
from quintain.types.terminal import write_command, write_line


def read_foreign(argv: Sequence[str]) -> int:
    """Write what settings of another trainer are here, and say what they are not."""
    from quintain.methods.find import find_method
    from quintain.pipelines.foreign_settings import read_settings

    parser = Parser(
        "import",
        "Read settings of verl (ppo_trainer.yaml, a script), TRL (GRPOConfig), OpenRLHF (a script) or ms-swift (a "
        "script, YAML), and say what they are here.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="YAML: a whole configuration, or what is set over its defaults; or a shell script with the command",
    )
    parser.flag("--out", "configuration to write, .toml, which must be new", "FILE")
    parser.switch("--all", "print the keys that are no option here as well")
    arguments = parser.read(argv)
    out = None if arguments.out is None else Path(arguments.out)
    if out is not None and (out.exists() or out.suffix != ".toml"):
        raise UsageError(f"--out: got {arguments.out!r}; give a new file that ends in .toml")

    def options_of(method: str) -> frozenset[str]:
        return frozenset(field.name for field in fields(find_method(method).config_class))

    found = read_settings(Path(arguments.file), options_of)
    become = [line for line in found.lines if line.became]
    others = [line for line in found.lines if not line.became]
    for line in become:
        write_line(f"{line.key} = {line.value}  →  {line.became}")
    for line in others if arguments.all else []:
        write_line(f"{line.key} = {line.value}  ·  {line.reason}")
    if not arguments.all:
        write_line(f"{len(others)} more keys of {found.tool} are no option here: --all says why")
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in found.options.items())
    if out is not None:
        out.write_text(text, encoding="utf-8")
    words = [
        "quintain",
        "train",
        found.method,
        "--config",
        out or "FILE.toml",
        *(["--run", found.run] if found.run else []),
    ]
    write_line(f"train: {write_command(*words)} --environment E")
    return 0
