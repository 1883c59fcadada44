"""How long a test waits for what must come."""

DEADLINE_S = 200.0
"""Never a measurement: it only ends a test that hangs, also on a machine that is ten times slower."""
