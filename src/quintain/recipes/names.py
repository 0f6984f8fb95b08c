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
    "act_more": "quintain.recipes.rl.act_more",
    "cispo": "quintain.recipes.rl.cispo",
    "coso": "quintain.recipes.rl.coso",
    "dapo": "quintain.recipes.rl.dapo",
    "dpo": "quintain.recipes.preference.dpo",
    "dr_grpo": "quintain.recipes.rl.dr_grpo",
    "epo": "quintain.recipes.rl.epo",
    "gigpo": "quintain.recipes.rl.gigpo",
    "glam": "quintain.recipes.rl.glam",
    "greedy": "quintain.recipes.rl.greedy",
    "grpo": "quintain.recipes.rl.grpo",
    "grpo_tcr": "quintain.recipes.rl.grpo_tcr",
    "gspo": "quintain.recipes.rl.gspo",
    "lite_ppo": "quintain.recipes.rl.lite_ppo",
    "loop": "quintain.recipes.rl.loop_ppo",
    "metaspatial": "quintain.recipes.rl.metaspatial",
    "mt_grpo": "quintain.recipes.rl.mt_grpo",
    "mucode": "quintain.recipes.rl.mucode",
    "openmanus": "quintain.recipes.rl.openmanus",
    "otc": "quintain.recipes.rl.otc",
    "pag": "quintain.recipes.rl.pag",
    "policy_gradient": "quintain.recipes.rl.policy_gradient",
    "ppo": "quintain.recipes.rl.ppo",
    "quickstart": "quintain.recipes.quickstart",
    "reinforce": "quintain.recipes.rl.reinforce",
    "reinforce_plus_plus": "quintain.recipes.rl.reinforce_plus_plus",
    "rft": "quintain.recipes.selftraining.rft",
    "rloo": "quintain.recipes.rl.rloo",
    "rlsp": "quintain.recipes.rl.rlsp",
    "scaling_inter": "quintain.recipes.rl.scaling_inter",
    "sft": "quintain.recipes.imitation.sft",
    "spa_rl": "quintain.recipes.rl.spa_rl",
    "starpo": "quintain.recipes.rl.starpo",
    "swirl": "quintain.recipes.rl.swirl",
    "toolrl": "quintain.recipes.rl.toolrl",
    "twosome": "quintain.recipes.rl.twosome",
    "ui_r1": "quintain.recipes.rl.ui_r1",
    "ui_tars2": "quintain.recipes.rl.ui_tars2",
    "vine": "quintain.recipes.rl.vine",
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
