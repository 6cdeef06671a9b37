"""The generated vectors: the files are what the generator writes, and every case comes out as its file says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

import pytest

from broker.config import ConfigError, load, policy_file
from broker.errors import BrokerError, Malformed, Untrusted
from broker.journal import header
from broker.journal.header import PayloadsHeader, RecordsHeader
from broker.trust.csr import parse_csr
from broker.wire import bundle, envelope, frame, pointer, policy, record_codec, sshsig, statement, times
from broker.wire.frame import Damaged, Frame, Torn
from broker.wire.json_pointer import show
from broker.wire.names import DirectiveId
from broker.wire.policy import NotAPolicy
from tests.vectors.case import TAKEN, Case, File
from tests.vectors.files import FILES
from tests.wire import vectors

T = TypeVar("T")


@dataclass(frozen=True)
class Said:
    """What comes of bytes: the outcome, what a refusal names and in which words, what a value says."""

    outcome: str
    where: str = ""
    why: str = ""
    value: object = None


def _of_frame(raw: bytes) -> Said:
    match frame.read(raw, 0):
        case Frame() as whole:
            return Said(TAKEN, value=whole.raw.decode())
        case Torn() | Damaged() as wrong:
            return Said(type(wrong).__name__)
    raise AssertionError("no frame at all")


def _of_header(raw: bytes) -> object:
    match header.decode(raw):
        case RecordsHeader() as found:
            return f"records {found.number}"
        case PayloadsHeader() as found:
            return f"payloads {found.number}"


def _of_statement(raw: bytes) -> object:
    value = statement.read(raw)
    return f"{value.action.kind} until {times.show(value.expires_at).partition('T')[2]}"


def _of_envelope(raw: bytes) -> object:
    value = envelope.read(raw)
    return " ".join([value.op, *value.params])


def _of_file(load: Callable[[Path], T]) -> Callable[[bytes], T]:
    def read(raw: bytes) -> T:
        with NamedTemporaryFile() as file:
            file.write(raw)
            file.flush()
            return load(Path(file.name))

    return read


READERS: dict[str, Callable[[bytes], object]] = {
    "statements": _of_statement,
    "envelopes": _of_envelope,
    "sshsigs": lambda raw: sshsig.parse(raw).key_type,
    "csrs": lambda raw: parse_csr(raw).cn,
    "bundles": lambda raw: bundle.parse(raw) and None,
    "pointers": lambda raw: pointer.sentence(DirectiveId(raw.decode())),
    "headers": _of_header,
    "records": lambda raw: record_codec.kind_of(record_codec.decode(raw).fact),
    "configs": _of_file(lambda path: load(path).instance),
    "policies": lambda raw: policy.parse(raw).name,
    "policy_files": _of_file(lambda path: policy_file.load(path).name),
}


def said(name: str, raw: bytes) -> Said:
    """What comes of these bytes. Of a document with several problems, all their places."""
    if name == "frames":
        return _of_frame(raw)
    try:
        return Said(TAKEN, value=READERS[name](raw))
    except ConfigError as error:
        places = ("" if one.place is None else f"{one.place.line}:{one.place.column}" for one in error.problems)
        return Said("ConfigError", _once(places), str(error))
    except NotAPolicy as error:
        words = "\n".join(one.text for one in error.problems)
        return Said("NotAPolicy", _once(show(one.path) for one in error.problems), words)
    except Malformed as error:
        return Said("Malformed", error.where, error.why)
    except Untrusted:
        return Said("Untrusted")
    except BrokerError as error:
        return Said(type(error).__name__, str(error))


def _once(places: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(places))


CASES = [
    pytest.param(file.name, Case.of(row), id=f"{file.name}: {row['name']}")
    for file in FILES
    for row in vectors.load(file.name)["cases"]
]


@pytest.mark.promise("P7", "P9", "P19")
@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_case_comes_out_as_its_file_says(name: str, case: Case) -> None:
    found = said(name, case.raw)
    assert (found.outcome, found.where, found.value or None) == (case.outcome, case.where, case.says)
    assert case.why in found.why


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_is_what_the_generator_writes(file: File) -> None:
    """After a change of a generator: python -m tests.vectors."""
    assert (vectors.FOLDER / f"{file.name}.json").read_text() == file.text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_two_cases_have_one_name_or_the_same_bytes(file: File) -> None:
    assert len({case.name for case in file.cases}) == len({case.raw for case in file.cases}) == len(file.cases)
