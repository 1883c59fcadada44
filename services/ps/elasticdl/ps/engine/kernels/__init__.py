"""The engine's compiled loops: numba, without the GIL, cached on disk (``NUMBA_CACHE_DIR``, set by the entry point).

May import numpy, numba and ``elasticdl.shared.model.kernels``. Must not import anything else of this package: callers
check shapes, kernels trust them.

numba recompiles a cached kernel when *its own* file changes, not when a function that it calls does. So a kernel and
its formulas are in one file; after a change of ``compiled.py`` or ``mix64.py`` empty the cache.
"""
