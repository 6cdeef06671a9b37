"""What the operator allows, through the real doors of a real broker with real tool servers behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.authority.desk import Desk, desk, watched
from tests.authority.table import Table


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A running instance with a policy and accepted tools; tests of the module use agents of their own."""
    made = desk(tmp_path_factory.mktemp("office")).open()
    yield made
    made.rig.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A running instance whose one server is watched; tests of the module use agents of their own."""
    made = watched(tmp_path_factory.mktemp("house"))
    yield made
    made.rig.close()


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[Desk]:
    """The same, for a test that kills it or changes what all stand under."""
    made = watched(tmp_path)
    yield made
    made.rig.close()


@pytest.fixture
def table() -> Iterator[Table]:
    """The rules alone. Whatever a test does, what a start or a snapshot would read of it is the same."""
    made = Table()
    yield made
    made.check()
