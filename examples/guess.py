import quintain


class Guess(quintain.Environment):
    """Find the hidden number between 1 and 32."""

    def reset(self, task):
        self.secret = task.rng.randint(1, 32)
        return "Find the hidden number between 1 and 32."

    @quintain.tool
    def guess(self, number: int) -> str:
        """Guess the hidden number."""
        if number == self.secret:
            return self.finish("correct", reward=1.0)
        return "higher" if self.secret > number else "lower"


quintain.train("grpo", environment=Guess, model="tiny")
