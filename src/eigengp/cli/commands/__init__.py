"""The commands of `eigengp`, one file for each: its options, and what it does.

`cli` imports all of these files to show its help, so at their top they import Typer and little
else; what computes is imported where a command runs. `session` is how they speak and fail,
`options` what several of them understand, `methods` the methods to choose from.
"""
