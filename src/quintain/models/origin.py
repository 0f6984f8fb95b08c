"""Whether a model was made here from nothing or pretrained elsewhere, and how many parameters it has.

The mark is a key of ``config.json`` that `quintain.models.tiny.build_tiny` writes and that stays in the folder of
whatever is trained from such a model.
"""

from dataclasses import dataclass
from typing import Any, cast

from quintain.models.load import outline
from quintain.models.tiny import COPIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a model comes from: ``Origin(is_pretrained=True, num_parameters=134_515_008)``."""

    is_pretrained: bool
    num_parameters: int


def is_pretrained(model: object) -> bool:
    """Whether `model` was pretrained elsewhere, and not made by `build_tiny`, however much was learned since."""
    return not hasattr(cast("Any", model).config, COPIES)


def find_origin(path_or_id: str) -> Origin:
    """Return the origin of the model that `path_or_id` names; its weights are not read.

    Raises:
        ModelError: it is missing or broken.
    """
    model = outline(path_or_id)
    return Origin(
        is_pretrained=is_pretrained(model), num_parameters=sum(each.numel() for each in model.parameters())
    )
