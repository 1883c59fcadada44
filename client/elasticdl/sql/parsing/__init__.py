"""Text to statements: tokens, the clauses of ElasticDL, and errors that show the place.

The SELECT is cut out and left as it is: the database reads it. May import ``elasticdl.sql.statements`` and
``elasticdl.shared``. Knows no database, no model and no attribute.
"""

from elasticdl.sql.parsing.faults import render
from elasticdl.sql.parsing.script import ParsedStatement, parse, parse_one

__all__ = ["ParsedStatement", "parse", "parse_one", "render"]
