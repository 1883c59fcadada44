"""Databases that a statement reads from and writes to: DuckDB, SQLite, Postgres, folders of files, the shipped tables.

A database runs nothing but one SELECT at a time, read-only. It imports its driver when it is opened, and translates the
driver's errors into ours. Must not know statements, columns of a model, or jobs.
"""

from elasticdl.sql.databases.opening import open_database
from elasticdl.sql.databases.port import Database

__all__ = ["Database", "open_database"]
