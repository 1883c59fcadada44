"""Events, commands and registers as frozen dataclasses, and their encoding.

Cores speak these dataclasses; ``codec.py`` is the only place that turns them into protobuf.
"""
