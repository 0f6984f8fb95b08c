"""Read Python out of completions, and write it the way it is read: fenced blocks, or CodeAct's tags.

Several blocks in one answer are one action, in their order (CodeAct, arXiv 2402.01030); what stands between them is
thought. A parser never raises and never guesses.
"""

import re
from typing import Literal

from quintain.errors import DataError
from quintain.text.parse import LONGEST_READ, quote
from quintain.types import Action

Style = Literal["fence", "tag"]
FENCE, TAG, END_TAG = "```", "<execute>", "</execute>"
FORMS: dict[Style, str] = {"fence": "```python\nCODE\n```", "tag": "<execute>\nCODE\n</execute>"}
_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*(?:python|py|Python)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$|<execute>(.*?)</execute>",
    re.DOTALL | re.MULTILINE,
)


def parse_code(text: str, style: Style = "fence") -> Action:
    """Return the Python in `text` as the action: the bodies of its blocks, one below the other."""
    if len(text) > LONGEST_READ:
        return Action(error=f"the answer is {len(text)} characters long; at most {LONGEST_READ} are read")
    bodies = [(fenced if fenced is not None else tagged).strip("\n") for fenced, tagged in _bodies(text)]
    form = FORMS[style].replace("\n", " ")
    if not bodies:
        is_open = FENCE in text or TAG in text
        problem = (
            "a block of code is not closed" if is_open else f"there is no code: got {quote(text.strip())}"
        )
        return Action(text=text.strip(), error=f"{problem}; write {form}")
    code = "\n".join(bodies).strip("\n")
    if not code.strip():
        return Action(error=f"the block of code is empty; write {form}")
    return Action(text=code)


def write_code(code: str, style: Style = "fence") -> str:
    """Return `code` as a block that `parse_code` reads.

    Raises:
        DataError: the code holds what would end the block.
    """
    written = FORMS[style].replace("CODE", code, 1)
    if parse_code(written, style).text != code:
        raise DataError(
            f"writing code as a {style} block: got {quote(code)}, which would not be read back; change it"
        )
    return written


def _bodies(text: str) -> list[tuple[str | None, str]]:
    """Return the blocks of `text`: the body of a fence, or None and the body between tags."""
    return [(found[1], found[2] or "") for found in _BLOCK.finditer(text)]
