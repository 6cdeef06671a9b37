"""What the proofs on real daemons share: one process that the others are forked from, and a seed that is told."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.failing_disk import COMPILER, FailingDisk
from tests.proof.forge import Forge


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> FailingDisk | None:
    """Loaded into all of the forge's processes; it does nothing where nothing is planned."""
    return FailingDisk(tmp_path_factory.mktemp("failing")) if COMPILER else None


@pytest.fixture(scope="session")
def forge(disk: FailingDisk | None) -> Iterator[Forge]:
    with Forge(disk.loaded if disk else None) as made:
        yield made


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Another one for each test and each run; it stands in every failure's words."""
    return random.Random(f"{random.random()} {request.node.name}").getrandbits(32)


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    """An empty folder."""
    (tmp_path / "instance").mkdir()
    return tmp_path / "instance"
