"""The dashboard: a read-only web page about jobs, live or replayed, and the small server behind it.

``app`` answers requests, ``job_view`` reads a log and follows it, ``panels`` turns folds into JSON. All of them only
present what ``elasticdl.views`` has found. ``static`` holds the page, which ``make web`` builds from ``web/``.

May import ``elasticdl.views``, ``elasticdl.shared`` and Starlette. Must not import the command line, a service or NATS.
"""
