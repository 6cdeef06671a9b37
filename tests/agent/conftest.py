"""An agent's folder and a broker to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lever.agent.folder import IdentityFolder
from tests.agent.setting import enrol
from tests.fakes.fake_broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> IdentityFolder:
    return IdentityFolder(tmp_path / "identity", lock_wait_s=20)


@pytest.fixture
def enrolled(broker: FakeBroker, folder: IdentityFolder) -> IdentityFolder:
    enrol(folder, broker)
    return folder
