from __future__ import annotations

from tests.unit.worker_model.conftest import write_module

__all__ = ["write_module"]
