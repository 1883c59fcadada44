"""A job in the formats of other tools: metrics for Prometheus, a trace for Perfetto, a page for a browser. Pure.

The rules are those of ``elasticdl.views``.
"""
