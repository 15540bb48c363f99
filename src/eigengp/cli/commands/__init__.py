"""The commands of `eigengp`, one file per command.

`app` imports these files to show its help, so they import Typer and little else at their top;
whatever computes is imported when a command runs. Shared: `session` (output and errors), `options`
(command-line options), `methods` (the methods to choose from), `models` (saved models), `training`
(fits and their summaries) and `comparison` (the cross-validation of `compare`).
"""
