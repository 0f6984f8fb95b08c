"""Names of recipes: a literal table from what a user types to the module that trains.

A recipe module has a frozen dataclass `Config` and ``train(config, run)``. The one rule: a recipe is found
here or nowhere.
"""

import importlib
from typing import TYPE_CHECKING, Any, Protocol, cast

from quintain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from quintain.store import Run

RECIPES: dict[str, str] = {
    "act_more": "quintain.methods.rl.act_more",
    "cispo": "quintain.methods.rl.cispo",
    "coso": "quintain.methods.rl.coso",
    "dapo": "quintain.methods.rl.dapo",
    "dpo": "quintain.methods.preference.dpo",
    "dr_grpo": "quintain.methods.rl.dr_grpo",
    "epo": "quintain.methods.rl.epo",
    "gigpo": "quintain.methods.rl.gigpo",
    "glam": "quintain.methods.rl.glam",
    "greedy": "quintain.methods.rl.greedy",
    "grpo": "quintain.methods.rl.grpo",
    "grpo_tcr": "quintain.methods.rl.grpo_tcr",
    "gspo": "quintain.methods.rl.gspo",
    "lite_ppo": "quintain.methods.rl.lite_ppo",
    "loop": "quintain.methods.rl.loop",
    "metaspatial": "quintain.methods.rl.metaspatial",
    "mt_grpo": "quintain.methods.rl.mt_grpo",
    "mucode": "quintain.methods.rl.mucode",
    "openmanus": "quintain.methods.rl.openmanus",
    "otc": "quintain.methods.rl.otc",
    "pag": "quintain.methods.rl.pag",
    "policy_gradient": "quintain.methods.rl.policy_gradient",
    "ppo": "quintain.methods.rl.ppo",
    "quickstart": "quintain.methods.quickstart",
    "reinforce": "quintain.methods.rl.reinforce",
    "reinforce_plus_plus": "quintain.methods.rl.reinforce_plus_plus",
    "rft": "quintain.methods.selftraining.rft",
    "rloo": "quintain.methods.rl.rloo",
    "rlsp": "quintain.methods.rl.rlsp",
    "scaling_inter": "quintain.methods.rl.scaling_inter",
    "sft": "quintain.methods.imitation.sft",
    "spa_rl": "quintain.methods.rl.spa_rl",
    "starpo": "quintain.methods.rl.starpo",
    "swirl": "quintain.methods.rl.swirl",
    "toolrl": "quintain.methods.rl.toolrl",
    "twosome": "quintain.methods.rl.twosome",
    "ui_r1": "quintain.methods.rl.ui_r1",
    "ui_tars2": "quintain.methods.rl.ui_tars2",
    "vine": "quintain.methods.rl.parts.vine",
}


class RecipeModule(Protocol):
    """What a recipe module offers."""

    __doc__: str | None
    Config: type[Any]
    """frozen dataclass of at most 15 fields; the defaults are the reproduced setting"""

    def train(self, config: Any, run: "Run") -> None:
        """Train as `config` says, writing to `run`; a resumed run continues after its newest checkpoint."""
        ...


def recipe_module(name: str) -> RecipeModule:
    """Return the module of recipe `name`.

    Raises:
        UsageError: there is no recipe of that name.
    """
    if name not in RECIPES:
        raise UsageError(f"recipe: got {name!r}; {suggestion(name, RECIPES)}")
    return cast(RecipeModule, importlib.import_module(RECIPES[name]))
