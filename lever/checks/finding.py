"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """How one thing is. hint: the command or the edit that mends it, empty where nothing has to be mended."""

    about: str
    level: Level
    text: str
    hint: str = ""
