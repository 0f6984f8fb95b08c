"""Small games of chance and inference: arms that pay, mastermind, tic-tac-toe. Start at `game`."""
