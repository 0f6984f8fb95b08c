"""Write which chat templates of others are followed into docs/chat-templates.md.

    python -m tests.text.template_table

It fetches what `tests.text.foreign` names. Each template is gone through with the probe chats: followed (and what it
cannot show itself), or refused (and why). `verdicts` is what the tests hold.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

from tests.text.foreign import byte_tokenizer, load_templates, render_template

from quintain.errors import QuintainError
from quintain.text.chat import Chat
from quintain.text.template_check import check_template

PAGE = Path(__file__).resolve().parents[2] / "docs" / "chat-templates.md"
BEGIN, END = "<!-- templates: begin -->", "<!-- templates: end -->"
ENDS: Mapping[str, str] = {
    "Solar-Open": "<|endoftext|>", "muse": "<|eot|>", "Hy3": "<｜hy_eos:opensource｜>",
    "Nemotron-Nano-v2": "<SPECIAL_12>", "phi": "<|endoftext|>", "Phi": "<|endoftext|>",
}  # fmt: skip
"""Ends that the models' own tokenizers name and that cannot be told from the template."""
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
)
CHATS = (
    [{"role": "user", "content": "Q"}],
    [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "Q"},
    ],
)


def chat_of(name: str, source: str) -> Chat:
    """Return the chat format of a template over a tokenizer of bytes that knows its markup."""
    eos = next((end for part, end in ENDS.items() if part in name), "")
    renderings: list[str] = []
    for messages, tools in product(CHATS, ((), TOOLS)):
        try:
            renderings.append(render_template(source, messages, tools, prompt=True))
        except Exception:  # templates raise what they like
            continue
    return Chat(byte_tokenizer(source, renderings, eos=eos))


def verdicts(names: list[str] | None = None) -> Iterator[tuple[str, bool, str]]:
    """Yield (name, is it followed, what is to be said) of each template."""
    for name, source in load_templates().items():
        if names is not None and name not in names:
            continue
        try:
            report = check_template(chat_of(name, source))
        except QuintainError as error:
            yield name, False, f"refused: {str(error).partition('got ')[2].partition(';')[0][:110]}"
            continue
        if report.is_followed:
            cannot = report.line.partition("the template cannot show ")[2]
            yield name, True, "followed" + (f"; itself cannot show {cannot}" if cannot else "")
        else:
            yield name, False, f"refused: {report.line.partition('DIFFERS from the template in ')[2][:150]}"


def lines() -> Iterator[str]:
    """Yield the table."""
    found = list(verdicts())
    yield f"{sum(followed for _, followed, _ in found)} of {len(found)} are followed byte for byte."
    yield ""
    yield "| template | what of it |"
    yield "|---|---|"
    for name, _, said in found:
        text = said.replace("|", "\\|").replace("\n", "⏎")
        yield f"| `{name}` | {text} |"


def main() -> None:
    """Write the table between its marks."""
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines()) + f"\n\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
