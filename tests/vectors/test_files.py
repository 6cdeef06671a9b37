"""The generated vectors: the files are what the generator writes, and every case comes out as its file says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.errors import BrokerError, Malformed, Untrusted
from broker.journal import header
from broker.journal.header import PayloadsHeader, RecordsHeader
from broker.trust.csr import parse_csr
from broker.wire import bundle, frame, pointer, record_codec, sshsig
from broker.wire.frame import Damaged, Frame, Torn
from broker.wire.names import DirectiveId
from tests.vectors.case import TAKEN, Case, File
from tests.vectors.files import FILES
from tests.wire import vectors

Said = tuple[str, str, object]


def _of_frame(raw: bytes) -> Said:
    match frame.read(raw, 0):
        case Frame() as whole:
            return TAKEN, "", whole.raw.decode()
        case Torn() | Damaged() as wrong:
            return type(wrong).__name__, "", None
    raise AssertionError("no frame at all")


def _of_header(raw: bytes) -> object:
    match header.decode(raw):
        case RecordsHeader() as found:
            return f"records {found.number}"
        case PayloadsHeader() as found:
            return f"payloads {found.number}"


READERS: dict[str, Callable[[bytes], object]] = {
    "sshsigs": lambda raw: sshsig.parse(raw).key_type,
    "csrs": lambda raw: parse_csr(raw).cn,
    "bundles": lambda raw: bundle.parse(raw) and None,
    "pointers": lambda raw: pointer.sentence(DirectiveId(raw.decode())),
    "headers": _of_header,
    "records": lambda raw: record_codec.kind_of(record_codec.decode(raw).fact),
}


def said(name: str, raw: bytes) -> Said:
    """What comes of these bytes: the outcome, what a refusal names, what a value says."""
    if name == "frames":
        return _of_frame(raw)
    try:
        return TAKEN, "", READERS[name](raw)
    except Malformed as error:
        return "Malformed", error.where, None
    except Untrusted:
        return "Untrusted", "", None
    except BrokerError as error:
        return type(error).__name__, str(error), None


CASES = [
    pytest.param(file.name, Case.of(row), id=f"{file.name}: {row['name']}")
    for file in FILES
    for row in vectors.load(file.name)["cases"]
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_case_comes_out_as_its_file_says(name: str, case: Case) -> None:
    outcome, where, value = said(name, case.raw)
    assert (outcome, where, value or None) == (case.outcome, case.where, case.says)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_is_what_the_generator_writes(file: File) -> None:
    """After a change of a generator: python -m tests.vectors."""
    assert (vectors.FOLDER / f"{file.name}.json").read_text() == file.text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_two_cases_have_one_name_or_the_same_bytes(file: File) -> None:
    assert len({case.name for case in file.cases}) == len({case.raw for case in file.cases}) == len(file.cases)
