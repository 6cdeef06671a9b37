"""What holds for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.forked import ForkServer
from tests.rig import Rig


@pytest.fixture(scope="session", autouse=True)
def journals_agree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every journal that the tests left behind, whole or damaged, is judged by a reader made from the page as well."""
    yield
    from tests.journal import agreement

    found = filter(None, map(agreement.difference, agreement.states(tmp_path_factory.getbasetemp())))
    assert list(found) == []


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> Iterator[None]:
    """Instances have their processes from a server of the session's own, which starts with the first of them."""
    Rig.server = server = ForkServer()
    yield
    Rig.server = None
    server.close()
