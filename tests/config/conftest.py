"""Files to load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.config import Config, ConfigError, load

Read = Callable[[str | bytes], Config]
Told = Callable[[str | bytes], list[str]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Load a lever.yaml with this text."""

    def read(text: str | bytes) -> Config:
        path = tmp_path / "lever.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path)

    return read


@pytest.fixture
def told(read: Read, tmp_path: Path) -> Told:
    """The lines of the error that a text brings, each without `lever.yaml:`."""

    def told(text: str | bytes) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            read(text)
        return [line.removeprefix(f"{tmp_path}/lever.yaml:") for line in str(caught.value).split("\n")]

    return told
