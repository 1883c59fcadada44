"""The engine's compiled loops: numba, without the GIL, cached on disk (``NUMBA_CACHE_DIR``, set by the entry point).

May import numpy and numba. Must not import anything else of this package: callers check shapes, kernels trust them.

numba recompiles a cached kernel when *its own* file changes, not when a function that it calls does: a kernel and its
formulas therefore live in one file; after a change of ``compiled.py`` or ``hashing.py`` empty the cache.
"""
