"""Haggling over a price with a seller who gives way: legal actions, and no expert."""

import quintain


class Trade(quintain.Environment):
    """Buy for as little as you can. The seller gives way a little each time, and leaves if you are too greedy."""

    max_turns = 8

    def reset(self, task):
        self.ask = task.rng.randrange(14, 20)
        self.least = self.ask - task.rng.randrange(5, 9)
        self.first, self.patience = self.ask, task.rng.randrange(3, 6)
        return f"The seller asks {self.ask}."

    def legal_actions(self):
        return ("accept", *(f"offer {price}" for price in range(max(self.ask - 6, 1), self.ask)), "leave")

    def step(self, action):
        word = action.text.strip()
        if word not in self.legal_actions():
            return quintain.StepResult(observation="Say accept, offer PRICE or leave.", is_valid=False)
        if word == "leave":
            return self._end("You left.", None)
        if word == "accept":
            return self._end(f"Sold for {self.ask}.", self.ask)
        offer = int(word.split()[1])
        if offer >= self.least:
            return self._end(f"Sold for {offer}.", offer)
        self.patience -= 1 + (self.least - offer > 3)
        if self.patience <= 0:
            return self._end("The seller left.", None)
        self.ask = max(self.least, self.ask - 2)
        return quintain.StepResult(observation=f"No. The seller asks {self.ask}.")

    def _end(self, said, price):
        saved = 0.0 if price is None else (self.first - price) / (self.first - self.least)
        return quintain.StepResult(
            observation=said, reward=saved, is_terminated=True, is_success=saved >= 0.75
        )


if __name__ == "__main__":
    quintain.train("grpo", environment=Trade)
