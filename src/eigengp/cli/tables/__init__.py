"""Tables with columns of any kind, and how they become the numbers that a model learns from.

`read_table` reads CSV, TSV, Parquet and Arrow files; `TableEncoding` is what was learned of the
columns of one table, and turns any other with the same columns into an array.
"""

from eigengp.cli.tables.columns import Column
from eigengp.cli.tables.encoding import TableEncoding, labelled
from eigengp.cli.tables.errors import TableError, TableWarning
from eigengp.cli.tables.reading import as_table, read_table
from eigengp.cli.tables.summary import summary

__all__ = [
    "Column",
    "TableEncoding",
    "TableError",
    "TableWarning",
    "as_table",
    "labelled",
    "read_table",
    "summary",
]
