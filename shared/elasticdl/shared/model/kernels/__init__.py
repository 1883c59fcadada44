"""Compiled loops that workers and ps share: numba, without the GIL, cached on disk (``NUMBA_CACHE_DIR``).

May import numpy and numba. Must not import anything else: callers check shapes, kernels trust them.
"""
