from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.pods.platforms import MemoryPlatform, Platform, local


@pytest.fixture(params=["memory", "local"])
async def platform(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Platform]:
    if request.param == "memory":
        yield MemoryPlatform()
    else:
        async for platform in local(tmp_path):
            yield platform
