"""Tools that nobody knows: what one takes is told by its line or by its error (ToolBench, LAM Simulator).

Start at `game`.
"""
