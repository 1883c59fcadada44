"""``python -m elasticdl script.py`` is ``elasticdl run script.py``; with a command, it is ``elasticdl``."""

from __future__ import annotations

import sys
from pathlib import Path

from elasticdl.cli.__main__ import main

if __name__ == "__main__":
    first = "".join(sys.argv[1:2])
    is_option = first.startswith("-") and first not in ("-h", "--help", "--version")
    if is_option or Path(first).suffix or Path(first).is_file():
        sys.argv[1:1] = ["run"]
    main()
