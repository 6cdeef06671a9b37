"""A file of expected decisions: calls, and what the policies named in it are to make of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.config import policy_file, reader
from broker.config.reader import ConfigError, Place, Problem
from broker.errors import Malformed
from broker.wire import catalogue, names
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn
from broker.wire.notes import Notes
from broker.wire.policy import Policy
from broker.wire.strict_json import JsonObject, JsonValue

HINT = "docs/formats/policy.md explains the file of expected decisions"
REGIMES = ("automatic", "lease", "act")
REFUSALS = (
    "unknown_tool",
    "denied_by_rule",
    "denied_by_default",
    "invalid_arguments",
    "unknown_account",
    "ambiguous_operand",
    "missing_resource",
    "denied_by_argument",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One call and what is to come of it. line: where it stands; expect: a regime, or the code of a refusal."""

    line: int
    agent: Cn
    tool: str
    arguments: JsonObject
    expect: str


@dataclass(frozen=True, slots=True)
class Expected:
    """layers: the instance's policy first; tools: None where the file names no catalogue."""

    layers: tuple[Policy, ...]
    tools: dict[str, PinnedTool] | None
    cases: tuple[Case, ...]


def load(path: Path) -> Expected:
    """The expected decisions in a file, with the policies and the catalogue that it names. Raises ConfigError."""
    document = policy_file.read(path, HINT)
    notes = Notes()
    top = notes.fields(policy_file.json_value(document), (), ("policies", "cases"), ("catalogue",))
    listed = {name: notes.items(top[name], (name,), least=1) for name in ("policies", "cases") if name in top}
    files = [_file(notes, item, ("policies", at), path) for at, item in enumerate(listed.get("policies", []))]
    pins = _file(notes, top["catalogue"], ("catalogue",), path) if "catalogue" in top else None
    cases = [_case(notes, item, at, document.places) for at, item in enumerate(listed.get("cases", []))]
    if notes.problems or document.problems:
        raise policy_file.problems_of(path, document, notes.problems, HINT)
    layers = tuple(policy_file.load(file) for file in files)
    return Expected(layers, load_catalogue(pins) if pins else None, tuple(cases))


def load_catalogue(path: Path) -> dict[str, PinnedTool]:
    """The tools in a catalogue's file, by qualified name. Raises ConfigError."""
    try:
        return catalogue.read(policy_file.read_bytes(path, catalogue.MAX_FILE_BYTES + 1))
    except Malformed as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(str(path), [Problem(None, str(error))], 'it holds {"server": [definition, ...]}') from error


def _file(notes: Notes, value: JsonValue, path: reader.Path, beside: Path) -> Path:
    if isinstance(value, str) and value and "\0" not in value:
        return beside.parent / value
    notes.wrong(path, "a file, relative to this one", value)
    return beside


def _case(notes: Notes, value: JsonValue, number: int, places: Mapping[reader.Path, Place]) -> Case:
    path: reader.Path = ("cases", number)
    members = notes.fields(value, path, ("tool", "expect"), ("agent", "arguments"))
    tool, expect = members.get("tool", ""), members.get("expect", "act")
    if not isinstance(tool, str):
        notes.wrong((*path, "tool"), "a tool like server.tool", tool)
    if expect not in REGIMES + REFUSALS:
        notes.wrong((*path, "expect"), f"one of {', '.join(REGIMES + REFUSALS)}", expect)
    agent = notes.taken(names.cn, members.get("agent", "any"), (*path, "agent"))
    arguments = notes.mapping(members.get("arguments", {}), (*path, "arguments"))
    return Case(places[path].line, agent or Cn("any"), str(tool), arguments, str(expect))
