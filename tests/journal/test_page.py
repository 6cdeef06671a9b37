"""docs/formats/journal.md: a broker writes its example, a reader made from it reads it, its tables are whole."""

from __future__ import annotations

import dataclasses
import re
import typing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from broker.journal import header, segments, state
from broker.journal.state import StateFolder
from broker.wire import frame, record_codec, records
from broker.wire.names import Digest, Fingerprint
from broker.wire.records import Draft, EnvelopeAccepted, Fact
from tests.journal import decoder, setting
from tests.journal.setting import LATER

PAGE = (Path(__file__).parents[2] / "docs/formats/journal.md").read_text(encoding="utf-8")
HEX, SAYS, HEAD = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)[:3]
TYPES = {
    "Digest": "digest",
    "Instant": "time",
    "int": "number",
    "Generation": "number",
    "tuple": "texts",
}


def example() -> dict[str, bytes]:
    """The files of the page's first block."""
    files: dict[str, bytes] = {}
    for name, lines in re.findall(r"^(\S+\.seg)\n((?:  .*\n?)+)", HEX, re.MULTILINE):
        files[name] = bytes.fromhex("".join(re.sub(r"^  at \d+:", "", line) for line in lines.splitlines()))
    return files


def say(value: Any) -> str:
    """CBOR's diagnostic notation."""
    match value:
        case bytes():
            return f"h'{value.hex()}'"
        case str():
            return f'"{value}"'
        case list():
            return f"[{', '.join(map(say, value))}]"
        case dict():
            return f"{{{', '.join(f'{say(key)}: {say(inner)}' for key, inner in value.items())}}}"
        case _:
            return str(value)


def test_the_page_starts_with_its_example() -> None:
    assert PAGE.startswith("# Journal\n\n```text\njournal/00000001.seg\n")


async def test_the_example_is_what_a_broker_writes(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder) as desk:
            envelope = b"envelope"
            fact = EnvelopeAccepted("list", Digest(sha256(envelope).digest()), LATER, Fingerprint("SHA256:example"))
            desk.writer.append(LATER, [Draft(fact, (envelope, b"signature"))])
            await desk.writer.durable()
    written = {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in folder.path.glob("*/*.seg")}
    assert example() == written
    assert (folder.path / "head").read_text() == HEAD + "\n"


def test_a_reader_made_from_the_page_reads_the_example(tmp_path: Path) -> None:
    for name, data in example().items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    found = decoder.records(tmp_path)
    assert [decoder.payload(tmp_path, ref) for ref in found[1][5]] == [b"envelope", b"signature"]
    headers = [decoder.frames(data)[0].value for data in example().values()]
    words = [say(value) for value in [headers[0], *found, headers[1]]]
    assert " ".join(SAYS.split()) == " ".join(" ".join(words).split())


def test_a_broker_starts_on_the_example(tmp_path: Path) -> None:
    with StateFolder.create(tmp_path / "state", setting.DEMO) as folder:
        for name, data in example().items():
            (folder.path / name).write_bytes(data)
        (folder.path / "head").write_text(HEAD + "\n")
        assert [record.seq for record in setting.read(folder)[1]] == [1, 2]


def fields_of(cls: type) -> str:
    hints = typing.get_type_hints(cls, vars(records))
    names = [(field.name, getattr(hints[field.name], "__name__", "")) for field in dataclasses.fields(cls)]
    return ", ".join(f"`{name}` {TYPES.get(kind, 'text')}" for name, kind in names) or "none"


@pytest.mark.parametrize("cls", typing.get_args(Fact), ids=lambda cls: cls.__name__)
def test_every_kind_has_its_row_with_every_field(cls: type) -> None:
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    assert f"| `{kind}` | {fields_of(cls)} |" in PAGE


def test_no_row_is_of_a_kind_that_does_not_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`|none)", PAGE.split("## Kinds")[1].split("\n## ")[0], re.MULTILINE)
    assert len(rows) == len(typing.get_args(Fact))


@pytest.mark.parametrize(
    "said",
    [
        f"at most {frame.MAX_FRAME_BYTES:,} bytes",
        f"at most {record_codec.MAX_RECORD_BYTES:,} bytes",
        f"reached {segments.SEGMENT_BYTES:,} bytes",
        f'"{header.RECORDS_MAGIC}", {header.FORMAT}',
        f'"{header.PAYLOADS_MAGIC}", {header.FORMAT}',
        f"lever-state {state.FORMAT}",
    ],
)
def test_numbers_and_words_are_those_of_the_code(said: str) -> None:
    assert said in PAGE
