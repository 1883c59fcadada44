"""``python -m elasticdl script.py`` is ``elasticdl run script.py``."""

from __future__ import annotations

import sys

from elasticdl.cli.__main__ import main

if __name__ == "__main__":
    sys.argv[1:1] = ["run"]
    main()
