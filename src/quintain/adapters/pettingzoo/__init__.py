"""PettingZoo's classic games (arXiv 2009.14471; package pettingzoo): tictactoe, connect_four and rps.

Start at `environment`.
"""
