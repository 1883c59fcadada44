"""Indexes many or large files with several processes: Python code that cuts and checks records holds the GIL.

``scanning`` hands groups of files to processes, each of which runs ``python -m elasticdl.cli.indexing``.
``fetching`` reads the next files of object storage meanwhile.

May import ``elasticdl.shared`` and how the launcher starts processes. Must not know jobs, flags or plans.
"""
