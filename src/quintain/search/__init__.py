"""One tree search: how a state is reached, which one is picked, what ways on are worth, what those above learn."""
