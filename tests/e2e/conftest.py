"""Instances for end-to-end tests: one shared by a module, and one of its own for a test that kills or breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import Agent, Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A running instance; tests of the module share it and use names of their own."""
    made = Rig.create(tmp_path_factory.mktemp("instance")).start()
    yield made
    made.close()


@pytest.fixture
def own_rig(tmp_path: Path) -> Iterator[Rig]:
    """A running instance that this test may break."""
    made = Rig.create(tmp_path / "instance").start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def agents(rig: Rig) -> Iterator[tuple[Agent, Agent]]:
    """worker-a and worker-b, enrolled once for the module."""
    pair = rig.enrol("worker-a"), rig.enrol("worker-b")
    yield pair
    for agent in pair:
        agent.close()
