"""Tool definitions before a person accepts them: judged by the broker's own rules, told line by line, compared."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from broker.errors import Malformed
from lever import show
from lever.exits import CliError, Exit

if TYPE_CHECKING:
    from broker.wire.catalogue import PinnedTool

Row = dict[str, Any]
UNACCEPTABLE = "unacceptable"


def name_of(row: Row) -> str:
    """A tool's name without its server's, as the broker tells it."""
    return str(row.get("tool")).partition(".")[2]


def judged(server: str, row: Row) -> Row:
    """The row; as that of a tool which must not be accepted, where no call could be judged by its schema: each would be
    refused. A definition that hides something is told of when it is to be accepted."""
    from broker import offline
    from broker.wire import catalogue, server_identity

    if not row.get("definition"):
        return row
    try:
        tool = catalogue.pin(server, row["definition"], server_identity.read(row.get("identity")))
    except Malformed:
        return row
    try:
        offline.check_tool(tool)
    except Malformed as error:
        why = f"every call of it would be refused: {error}"
        return row | {"state": UNACCEPTABLE, "why": why, "digest": None, "identity": None, "definition": None}
    return row


def chosen(server: str, rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Those of these names; without names all that are not accepted as they stand. Raises CliError for unknown ones,
    and for those that must not be accepted."""
    there = {name_of(row): row for row in rows if row.get("definition")}
    wrong = {name_of(row): row.get("why") for row in rows if row.get("state") == UNACCEPTABLE}
    for name in names:
        if name in wrong:
            raise CliError(f"{server}.{name} must not be accepted: {wrong[name]}", exit=Exit.REFUSED)
        if name not in there:
            known = ", ".join(there) or "none"
            raise CliError(
                f"{server} defines no tool {name}; there are: {known}",
                hint=f"lever tools list {server}",
                exit=Exit.REFUSED,
            )
    if names:
        return [there[name] for name in dict.fromkeys(names)]
    return [row for row in there.values() if row.get("state") != "accepted"]


def pinned(server: str, rows: Sequence[Row]) -> list[PinnedTool]:
    """What is to be accepted, each fit for it. Raises CliError with a line for each that must not be."""
    from broker import offline
    from broker.wire import catalogue, server_identity

    tools, wrong = [], []
    for row in rows:
        try:
            tool = catalogue.pin(server, row["definition"], server_identity.read(rows[0].get("identity")))
            offline.check_tool(tool)
            tools.append(tool)
        except Malformed as error:
            wrong.append(f"{server}.{name_of(row)} must not be accepted: {error}")
    if wrong:
        raise CliError(
            wrong[0], more=wrong[1:], hint=f"name the others: lever tools accept {server} TOOL...", exit=Exit.REFUSED
        )
    return tools


def whole(row: Row, before: str = "") -> Row:
    """A definition and whose it is. before: `accepted_` for that which was accepted."""
    identity, definition = row.get(f"{before}identity"), row.get(f"{before}definition")
    return {**({"server": identity} if identity else {}), **(definition or {})}


def told(definition: Row) -> list[str]:
    """A definition in lines: its texts as they would be read, the rest as JSON."""
    lines = []
    for name, value in definition.items():
        if isinstance(value, str):
            first, *more = value.split("\n")
            lines += [f"{name}: {first}", *(f"  {line}" for line in more)]
        else:
            first, *more = _json(value)
            lines += [f"{name}: {first}", *more]
    return lines


def differences(row: Row) -> Iterator[str]:
    """What changed between the accepted definition and the one that the server gives now, as a diff."""
    if row.get("state") == UNACCEPTABLE:
        yield f"must not be accepted: {row.get('why')}"
        return
    old, new = (told(whole(row, before)) for before in ("accepted_", ""))
    if old == new:
        yield "as you accepted it; it was seen changed in between"
    for line in difflib.unified_diff(old, new, lineterm="", n=2):
        if not line.startswith(("---", "+++")):
            yield line


def _json(value: object) -> list[str]:
    text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
    return [show.safe_json(line) for line in text.split("\n")]
