"""Data in columns, and programs of a few lines that make features of them and fit the target.

The environment is in `game`, what tables are drawn from in `table`, how a program is read and run in `program`.
"""
