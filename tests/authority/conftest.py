from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.authority.desk import Desk, desk


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A running instance with a policy and accepted tools; tests of the module use agents of their own."""
    made = desk(tmp_path_factory.mktemp("office")).open()
    yield made
    made.rig.close()
