"""Import every module below a folder: numba compiles the kernels in it and keeps them in its cache."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

code = Path(sys.argv[1])
for file in sorted(code.rglob("*.py")):
    importlib.import_module(".".join(file.relative_to(code).with_suffix("").parts).removesuffix(".__init__"))
