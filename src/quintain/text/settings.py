"""What belongs to a model's chat format beside its template: options, date, ends.

It is kept with the tokenizer, in ``tokenizer_config.json``, so that training, resuming, serving and whoever loads the
trained folder show the model the same: `template_options` are given to every rendering, `template_date` is the date of
templates that write one, `end_token_ids` are those that the model's configuration names. `response_template`, which
transformers, vLLM and SGLang read as well, says how answers are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from quintain.errors import ModelError, UsageError
from quintain.types.json_text import load_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST_TEMPLATE = 1 << 20
"""Characters of a chat template."""
OPTIONS, DATE, ENDS = "template_options", "template_date", "end_token_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """What was stored with a tokenizer: ``ChatSettings(template_options={"enable_thinking": False})``."""

    template_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    today: date | None = None
    """The date of the template; None for that of the clock."""
    end_ids: tuple[int, ...] = ()
    """Tokens that end an answer by the model's configuration."""
    response_template: Mapping[str, Any] | None = None
    """How answers are read, if the model's folder says so."""


def settings_of(tokenizer: PreTrainedTokenizerBase) -> ChatSettings:
    """Return what is stored with `tokenizer`.

    Raises:
        ModelError: something of it is of the wrong kind.
    """
    stored = cast("dict[str, Any]", tokenizer.init_kwargs)
    options, day, ends = stored.get(OPTIONS) or {}, stored.get(DATE), stored.get(ENDS) or []
    if not isinstance(options, dict):
        raise _refusal(OPTIONS, options, "an object of names and values")
    if not isinstance(ends, list) or not all(
        type(each) is int and each >= 0 for each in cast("list[Any]", ends)
    ):
        raise _refusal(ENDS, ends, "a list of token ids")
    try:
        today = date.fromisoformat(day) if day else None
    except (TypeError, ValueError):
        raise _refusal(DATE, day, "a date such as 2026-01-31") from None
    table = getattr(tokenizer, "response_template", None)
    return ChatSettings(
        template_options=cast("dict[str, Any]", options),
        today=today,
        end_ids=tuple(cast("list[int]", ends)),
        response_template=cast("dict[str, Any]", table) if isinstance(table, dict) else None,
    )


def store_settings(
    tokenizer: PreTrainedTokenizerBase,
    *,
    template_options: Mapping[str, Any] | None = None,
    today: date | None = None,
    end_ids: Sequence[int] | None = None,
) -> None:
    """Store with `tokenizer` what is given; `save_pretrained` writes it."""
    stored = cast("dict[str, Any]", tokenizer.init_kwargs)
    if template_options is not None:
        stored[OPTIONS] = dict(template_options)
    if today is not None:
        stored[DATE] = today.isoformat()
    if end_ids is not None:
        stored[ENDS] = sorted(set(end_ids))


def read_options(written: str) -> dict[str, Any]:
    """Return options of a template written as ``enable_thinking=false,reasoning_effort=low``; values are JSON or text.

    Raises:
        UsageError: one of them has no name or no value.
    """
    options: dict[str, Any] = {}
    for part in filter(None, (each.strip() for each in written.split(","))):
        name, found, value = part.partition("=")
        if not found or not name.strip().isidentifier():
            raise UsageError(
                f"template options: got {part!r}; write name=value, several with commas: enable_thinking=false"
            )
        try:
            options[name.strip()] = load_json(value)
        except ValueError:
            options[name.strip()] = value.strip()
    return options


def read_template(path: str) -> str:
    """Return the chat template in the file `path`.

    Raises:
        UsageError: it cannot be read, or is too long.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"chat template {path!r}: got {error}; give a file of text in Jinja") from error
    if len(text) > LONGEST_TEMPLATE:
        raise UsageError(
            f"chat template {path!r}: got {len(text)} characters; at most {LONGEST_TEMPLATE} are read"
        )
    return text


def set_template(tokenizer: PreTrainedTokenizerBase, *, template: str = "", options: str = "") -> None:
    """Give `tokenizer` the chat template in a file and the options that a user asked for; what is empty stays.

    Raises:
        UsageError: the file or the options cannot be read.
    """
    if template:
        tokenizer.chat_template = read_template(template)
    if options:
        store_settings(
            tokenizer, template_options={**settings_of(tokenizer).template_options, **read_options(options)}
        )


def writes_date(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the chat template of `tokenizer` asks for the date of the day."""
    return "strftime_now" in str(tokenizer.chat_template)


def _refusal(name: str, got: object, wanted: str) -> ModelError:
    return ModelError(f"{name} of tokenizer_config.json: got {got!r:.80}; give {wanted}, or remove it")
