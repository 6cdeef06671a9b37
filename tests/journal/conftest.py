"""What the journal's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal import setting


@pytest.fixture
async def journal(tmp_path: Path) -> Path:
    """The path of a small, whole journal that nobody holds."""
    return await setting.small_journal(tmp_path / "state")
