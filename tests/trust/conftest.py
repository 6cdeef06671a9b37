"""Keys made once, and an allowed_signers file for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig import make_key
from tests.trust.programs import signer


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's key."""
    return make_key(tmp_path_factory.mktemp("first") / "first")


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's other key."""
    return make_key(tmp_path_factory.mktemp("second") / "second")


@pytest.fixture
def allowed(tmp_path: Path, first: Path, second: Path) -> Path:
    """allowed_signers with both keys, one to a line."""
    file = tmp_path / "allowed_signers"
    file.write_text(signer(first) + signer(second))
    file.chmod(0o600)
    return file
