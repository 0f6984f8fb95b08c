"""Twenty questions: find a hidden thing by asking what it is like. Start at `game`; `things` has what is asked."""
