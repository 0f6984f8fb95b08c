"""Other people's text on a terminal, and commands to copy: neither does anything to who reads it.

Every line that a command prints goes through `write_line`, every text that is drawn otherwise through `spell_out`, and
every command that is advised is made by `write_command`.
"""

import re
import shlex
import sys

INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What moves a cursor, changes a title or a direction, or is not seen: everything but line feeds and tabs."""


def spell_out(text: object) -> str:
    r"""Return `text` with what is not seen, or would move the cursor, as ``\u001b``; lines and tabs stay."""
    return INVISIBLE.sub(_write_code, str(text))


def spell_out_line(text: object) -> str:
    """Return `text` as one line: as `spell_out` has it, with every gap as a space."""
    return spell_out(" ".join(str(text).split()))


def write_line(text: object = "", *, is_error: bool = False) -> None:
    """Print `text`, spelled out, to standard output, or to standard error where it `is_error` or a note."""
    print(spell_out(text), file=sys.stderr if is_error else sys.stdout, flush=True)


def write_command(*words: object) -> str:
    """Return the command of `words` as a shell takes it: each is quoted where it must be.

    Example: ``write_command("quintain", "eval", "my runs/a")`` is ``quintain eval 'my runs/a'``.
    """
    return shlex.join(spell_out(str(word).replace("\n", "\\n")) for word in words)


def _write_code(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
