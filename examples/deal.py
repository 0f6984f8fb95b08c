"""A price between what a seller and a buyer each know alone: a world for a team that negotiates."""

from dataclasses import replace

import quintain


class Deal(quintain.Environment):
    """Agree on a price: not below what the thing cost the seller, not above what it is worth to the buyer."""

    max_turns = 2

    def task(self, split, index):
        task = super().task(split, index)
        cost = task.rng.randint(1, 8)
        worth = cost + task.rng.randint(0, 1)
        return replace(
            task,
            data={"cost": cost, "worth": worth, "seller": f"it cost {cost}", "buyer": f"it is worth {worth}"},
        )

    def reset(self, task):
        self.low, self.high = task.data["cost"], task.data["worth"]
        return "A thing is for sale."

    def step(self, action):
        said = action.text.strip()
        if not said.isdigit():
            return quintain.StepResult(observation="Say a price, as 5.", is_valid=False)
        agreed = self.low <= int(said) <= self.high
        told = "Agreed." if agreed else "One of you says no."
        return quintain.StepResult(
            observation=told, reward=float(agreed), is_terminated=True, is_success=agreed
        )

    def expert_action(self):
        return quintain.Action(text=str(self.low))
