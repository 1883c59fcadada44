"""SQL: a statement is parsed, checked, and compiled to an ordinary job; its model is registered by name.

    from elasticdl.api import sql

    sql("SELECT * FROM employee LABEL income INTO my_elasticdl_model")

May import ``elasticdl.shared``, ``elasticdl.zoo`` and ``elasticdl.layers``. Heavy libraries (duckdb, pyarrow, Keras)
are imported where they are used. Prints nothing by itself, and never evaluates text of a statement as Python.
"""
