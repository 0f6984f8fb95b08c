"""The chat format of a run: template and options that were asked for, its date, and whether it is followed.

What a run begins with is stored with its tokenizer (`quintain.text.settings`): a resumed run, the trained folder
and whoever serves it show the model the same. A pretrained model's template is checked before anything is trained.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, cast

from quintain.errors import ModelError
from quintain.learning.sections import ModelSection
from quintain.text.chat import Chat
from quintain.text.reading import PLAIN, attach_table
from quintain.text.settings import set_template, settings_of, store_settings, writes_date
from quintain.text.template_check import TemplateReport, check_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def settle_chat_format(
    config: ModelSection, tokenizer: PreTrainedTokenizerBase, today: date, *, is_new: bool
) -> TemplateReport | None:
    """Give `tokenizer` the template, options and date of `config`, ends and table of answers; return the check of it.

    The template of a model that `is_new` is our own, which needs none unless the config gives another.

    Raises:
        UsageError: template or options cannot be read.
        ModelError: the stream would differ from what the template writes, and the config does not allow it.
    """
    set_template(tokenizer, template=config.chat_template, options=config.template_options)
    if writes_date(tokenizer) and settings_of(tokenizer).today is None:
        store_settings(tokenizer, today=today)
    chat = Chat(tokenizer)
    eos = cast("int | None", tokenizer.eos_token_id)
    if eos is not None and chat.stop_ids - {*chat.settings.end_ids, eos}:
        # whoever loads the trained folder stops where the answers that it learned stop
        store_settings(tokenizer, end_ids=[*chat.stop_ids])
        chat = Chat(tokenizer)
    if chat.format is not None and chat.format.name != PLAIN and chat.template.takes_tools:
        attach_table(tokenizer, chat.format)
    if is_new and not config.chat_template:
        return None
    report = check_template(chat)
    if not report.is_followed and config.template_differs == "refuse":
        raise ModelError(
            f"chat template of {config.model}: got {report.line}; give another with --chat-template FILE or other "
            "--template-options, or train all the same with --template-differs allow"
        )
    return report


def describe_template(report: TemplateReport, tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the line for the start of a run."""
    stored = settings_of(tokenizer)
    given = [f"{name}={value}" for name, value in stored.template_options.items()]
    given += [] if stored.today is None else [f"date {stored.today.isoformat()}"]
    return f"chat format: {report.line}" + (f" ({', '.join(given)})" if given else "")
