"""What docs/formats/journal.md says in its tables, as data for readers and writers made from the page alone."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/formats/journal.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `(\w+)` \| ((?:`\w+` \w+(?:, )?)+|none) \|", re.MULTILINE)


def _kinds() -> dict[str, dict[str, str]]:
    rows = _ROW.findall(PAGE.split("\n## Kinds\n")[1].split("\n## ")[0])
    return {kind: dict(re.findall(r"`(\w+)` (\w+)", fields)) for kind, fields in rows}


KINDS = _kinds()
"""Each kind's fields in order, each with what it is: text, digest, time, number or texts."""


def example() -> dict[str, bytes]:
    """The files of the page's first block, and of its last: a whole journal."""
    in_hex, _, head = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)[:3]
    files: dict[str, bytes] = {"head": head.encode() + b"\n"}
    for name, lines in re.findall(r"^(\S+\.seg)\n((?:  .*\n?)+)", in_hex, re.MULTILINE):
        files[name] = bytes.fromhex("".join(re.sub(r"^  at \d+:", "", line) for line in lines.splitlines()))
    return files
