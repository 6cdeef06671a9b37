"""No parser without a target: what looks like one is found by its name or by what it takes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import broker.config
import broker.doors
import broker.effects.tool_servers
import broker.journal
import broker.trust
import broker.wire
import lever.agent.answers
from tests.fuzz.targets import TARGETS

ROOMS = (broker.wire, broker.trust, broker.config, broker.journal, broker.doors, broker.effects.tool_servers)
NAMED = re.compile(r"(parse|decode|read|load)")
RAW = {"raw", "pem", "der", "armored", "content"}
EXEMPT = {
    "broker.wire.answers.certificate": "writes an answer from a certificate that the authority has just made",
    "broker.wire.answers.consumed": "reads a statement again that was read strictly when it was admitted",
    "broker.wire.frame.digest": "hashes",
    "broker.wire.frame.encode": "writes",
    "broker.wire.names.is_directive_id": "one regular expression, which names.directive_id shares",
    "broker.trust.operator.OperatorTrust.verify": "hands bytes to ssh-keygen, and a signature to sshsig.parse first",
    "broker.trust.authority.CertificateAuthority.sign": "signs",
    "broker.trust.unlinked.unlinked": "writes",
    "broker.doors.agent.AgentDoor.stands": "calls agents.caller_of, which has a target",
    "broker.doors.agent.Authority.caller_of": "a protocol without code",
    "broker.doors.agent.Authority.read_request": "a protocol without code",
    "broker.trust.agents.AgentTrust.caller_of": "calls agents.caller_of, which has a target",
    "broker.trust.authority_file.write_new": "writes",
    "broker.journal.disk.Disk.read": "opens a file: a protocol without code",
    "broker.journal.disk.Disk.read_at": "reads bytes of whatever kind: a protocol without code",
    "broker.journal.disk.RealDisk.read": "opens a file",
    "broker.journal.disk.RealDisk.read_at": "reads bytes of whatever kind",
    "broker.journal.recovery.Recovered.read_payload": "calls payloads.read_payload, which has a target",
}


def modules() -> Iterator[ModuleType]:
    yield lever.agent.answers
    for room in ROOMS:
        yield room
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            yield importlib.import_module(found.name)


def _is_function(member: object) -> bool:
    return inspect.isroutine(member) and callable(member)


def functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions of a module, and the public methods of its public classes, by their dotted names."""
    for name, member in vars(module).items():
        if name.startswith("_") or getattr(member, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(member):
            methods = {each: getattr(member, each) for each in vars(member) if not each.startswith("_")}
            yield from ((f"{module.__name__}.{name}.{each}", it) for each, it in methods.items() if _is_function(it))
        elif _is_function(member):
            yield f"{module.__name__}.{name}", member


def parsers() -> set[str]:
    """Whatever is called parse, decode, read or load, and whatever takes raw bytes first."""
    found = set()
    for module in modules():
        for name, function in functions(module):
            takes = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
            if NAMED.match(name.rpartition(".")[2]) or (takes and takes[0] in RAW):
                found.add(name)
    return found


def test_every_parser_has_a_target_or_a_reason_for_none() -> None:
    covered = {name for target in TARGETS for name in target.covers}
    assert parsers() - covered - EXEMPT.keys() == set()


def test_no_target_and_no_reason_is_about_what_does_not_exist() -> None:
    there = {name for module in modules() for name, _ in functions(module)}
    assert EXEMPT.keys() <= there
    assert {name for target in TARGETS for name in target.covers if "._" not in name} <= there
    assert not EXEMPT.keys() & {name for target in TARGETS for name in target.covers}


def test_the_search_finds_parsers_of_every_room() -> None:
    assert {
        "broker.wire.bundle.parse",
        "broker.wire.bodies.report_body",
        "broker.trust.csr.parse_csr",
        "broker.trust.agents.caller_of",
        "broker.config.loading.load",
        "broker.journal.header.decode",
        "broker.doors.headers.query",
    } <= parsers()


def test_names_are_given_once() -> None:
    assert len({target.name for target in TARGETS}) == len(TARGETS)
