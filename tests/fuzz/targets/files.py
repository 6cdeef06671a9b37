"""What the broker reads of its own disk and of the operator's configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import cbor2

from broker.config import Config, ConfigError, load
from broker.errors import Fatal, Malformed
from broker.journal import head, header, inspect, segments, snapshot, state
from broker.journal.disk import RealDisk
from broker.journal.header import PayloadsHeader, RecordsHeader
from broker.journal.inspect import Report
from broker.journal.payloads import read_payload
from broker.journal.snapshot import Snapshot
from broker.wire import head as wire_head
from broker.wire.head import Head
from broker.wire.names import Instance
from tests.config.test_page import EXAMPLE
from tests.fuzz.place import folder, put
from tests.fuzz.target import Target
from tests.journal import agreement, page
from tests.vectors.frames import framed
from tests.wire import vectors

_DEMO = Instance("demo")
_FORMAT = b"lever-state 1\ninstance demo\n"
_REAL = RealDisk()
_SNAPSHOT = cbor2.dumps(["lever-snapshot", 1, "demo", 1, 1, bytes(32), 0, 1, 63, 0, b"image"], canonical=True)


def _files() -> dict[str, bytes]:
    """The two segments of the journal that docs/formats/journal.md begins with, and its head."""
    return page.example() | {"format": _FORMAT}


def _with(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Reads a state folder in which one file has these bytes."""
    made = folder(f"state folder, {name}")
    for each, data in _files().items():
        (made / each).parent.mkdir(exist_ok=True)
        (made / each).write_bytes(data)

    def parse(raw: bytes) -> object:
        put(made / name, raw)
        return read(made)

    return parse


def _read_all(made: Path) -> Report:
    """The verdict, the same as by the page alone; and where nothing is wrong, every record and payload can be read."""
    if differs := agreement.difference(made):
        raise AssertionError(differs)
    report = inspect.verify(made)
    if report.whole:
        found = list(inspect.walk(made))
        read = [read_payload(_REAL, made, ref) for record in found for ref in record.payloads]
        if (len(found), len(read)) != (report.records, report.payloads):
            raise AssertionError("verify and walk disagree")
    return report


def _frames(made: Path) -> Sequence[object]:
    return tuple(segments.frames(_REAL, made / "journal/00000001.seg"))


def _snapshot(raw: bytes) -> Snapshot | None:
    """A snapshot whose digest is right, whatever it says."""
    made = folder("snapshot")
    put(made / snapshot.NAME, raw + sha256(raw).digest())
    return snapshot.read(_REAL, made, _DEMO)


def _config(raw: bytes) -> Config:
    path = folder("configuration") / "lever.yaml"
    put(path, raw)
    return load(path)


TARGETS = (
    Target("configuration",
           ("broker.config.reader.read", "broker.config.loading.load", "broker.config.values.unquoted"), _config,
           (EXAMPLE.encode(), b"instance: demo\n", b"instance: demo\ntools: {files: [read_file]}\n"), Config,
           (ConfigError,), tries=160),
    Target("header of a segment", ("broker.journal.header.decode",), header.decode, vectors.taken("headers"),
           RecordsHeader | PayloadsHeader, (Malformed,), again=lambda value: value.encode()),
    Target("head", ("broker.journal.head.read", "broker.wire.head.parse"),
           _with("head", lambda made: head.read(_REAL, made, _DEMO)), (_files()["head"],), Head, (Fatal,),
           again=lambda value: wire_head.encode(value, _DEMO)),
    Target("format of a state folder", ("broker.journal.state.read_instance",), _with("format", state.read_instance),
           (_FORMAT,), str, (Fatal,)),
    Target("record segment", ("broker.journal.segments.frames",), _with("journal/00000001.seg", _frames),
           (_files()["journal/00000001.seg"],), tuple, ()),
    Target("journal", (), _with("journal/00000001.seg", _read_all),
           (_files()["journal/00000001.seg"], b"".join(map(framed, vectors.taken("records")))), Report, (Fatal,),
           tries=400),
    Target("snapshot", ("broker.journal.snapshot.read",), _snapshot, (_SNAPSHOT,), Snapshot, (Fatal,)),
    Target("payloads", ("broker.journal.payloads.read_payload",), _with("payloads/00000001.seg", _read_all),
           (_files()["payloads/00000001.seg"],), Report, (Fatal,), tries=400),
)  # fmt: skip
