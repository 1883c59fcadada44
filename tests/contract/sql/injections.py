"""Texts in place of a SELECT that would do something else, if a database ran them."""

from __future__ import annotations

INJECTIONS = (
    "DELETE FROM things",
    "DROP TABLE things",
    "INSERT INTO things (id) VALUES (9)",
    "UPDATE things SET id = 0",
    "SELECT 1; DROP TABLE things",
    "SELECT * FROM things) AS q; DROP TABLE things; --",
    "WITH gone AS (DELETE FROM things RETURNING *) SELECT * FROM gone",
    "COPY things TO '/tmp/elasticdl-must-not-exist.csv'",
    "ATTACH DATABASE '/tmp/elasticdl-must-not-exist.db' AS other",
    "PRAGMA user_version = 7",
    "SET search_path = pg_catalog",
    "INSTALL httpfs",
    "CREATE TABLE other AS SELECT 1 AS a",
    "SELECT 1 AS a INTO other",
    "VACUUM",
    "",
)
