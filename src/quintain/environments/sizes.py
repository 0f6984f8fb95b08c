"""How much text of an environment is read: what is longer is cut, or refused.

Text costs most when it is made tokens, and whatever wrote it (a page, a file, a server) may be of any length. So it is
bounded before anything else looks at it, and far above what models read.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from quintain.errors import EnvironmentFault
from quintain.types import Content, Text

MAX_CHARACTERS = 1 << 20
"""Characters of one observation, of all instructions, tools or legal actions, or of a task's prompt."""
MAX_PARTS = 4096
"""Parts of one observation."""
NOTE = re.compile(r"\n\[[\d,]{1,30} more characters were cut\]")
"""What stands behind a text that was cut."""


def cut_text(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return `text`, of a longer one its first `most` characters and how many were cut.

    A text that was cut so before, as in an environment inside of another, is left as it is.
    """
    if len(text) <= most or NOTE.fullmatch(text, most):
        return text
    return f"{text[:most]}\n[{len(text) - most:,} more characters were cut]"


def cut_parts(parts: Sequence[Content]) -> tuple[Content, ...]:
    """Return `parts` of an observation, whose texts are cut where they are longer together than one may be."""
    if sum(len(part.text) for part in parts if isinstance(part, Text)) <= MAX_CHARACTERS:
        return tuple(parts)
    room = MAX_CHARACTERS
    found: list[Content] = []
    for part in parts:
        if isinstance(part, Text):
            cut = cut_text(part.text, room)
            room -= min(room, len(part.text))
            part = part if cut is part.text else replace(part, text=cut)
        found.append(part)
    return tuple(found)


def check_size(what: str, num_characters: int) -> None:
    """Raise where `what` an environment says once, and no agent can do without a part of, is longer than is read.

    Raises:
        EnvironmentFault: as said.
    """
    if num_characters > MAX_CHARACTERS:
        raise EnvironmentFault(f"{what}: got {num_characters:,} characters; give at most {MAX_CHARACTERS:,}")
