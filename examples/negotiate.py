"""Two seats divide three things whose worth each knows for itself alone; each is paid for what it gets."""

from itertools import combinations

import quintain

THINGS = ("hat", "book", "ball")
SETS = [set(chosen) for size in range(4) for chosen in combinations(THINGS, size)]


class Negotiate(quintain.Environment):
    """Divide a hat, a book and a ball: say what you would keep, or accept what the other leaves you."""

    max_turns = 4

    def reset(self, task):
        self.worth = {seat: {thing: task.rng.randint(1, 5) for thing in THINGS} for seat in self.seats()}
        self.acting, self.offer = "left", None
        return self._shown()

    def seats(self):
        return ("left", "right")

    def seat(self):
        return self.acting

    def legal_actions(self):
        offers = tuple(" ".join(["keep", *(t for t in THINGS if t in kept)]) for kept in SETS[1:-1])
        return offers if self.offer is None else ("accept", *offers)

    def step(self, action):
        word = action.text.strip()
        if word not in self.legal_actions():
            return quintain.StepResult(observation="Say accept or keep THINGS.", is_valid=False)
        other = "right" if self.acting == "left" else "left"
        if word == "accept":
            paid = {self.acting: 1 - self._share(self.acting), other: self._share(other)}
            return quintain.StepResult(
                observation="Agreed.", rewards=paid, is_terminated=True, is_success=min(paid.values()) >= 0.5
            )
        self.acting, self.offer = other, set(word.split()[1:])
        return quintain.StepResult(observation=self._shown())

    def expert_action(self):
        if self.offer is not None and self._share(self.acting) <= 0.5:
            return quintain.Action(text="accept")
        own = self.worth[self.acting]
        enough = [kept for kept in SETS[1:-1] if 2 * sum(own[t] for t in kept) >= sum(own.values())]
        least = min(enough, key=lambda kept: (sum(own[t] for t in kept), len(kept)))
        return quintain.Action(text=" ".join(["keep", *(t for t in THINGS if t in least)]))

    def _share(self, seat):
        """What the things of the offer are worth to `seat`, as a share of all."""
        return sum(self.worth[seat][t] for t in self.offer) / sum(self.worth[seat].values())

    def _shown(self):
        own = ", ".join(f"{thing} {value}" for thing, value in self.worth[self.acting].items())
        left = [thing for thing in THINGS if self.offer is not None and thing not in self.offer]
        said = "Begin." if self.offer is None else f"You would get {' '.join(left)}."
        return f"Worth to you: {own}. {said}"


if __name__ == "__main__":
    quintain.train("grpo", environment=Negotiate)
