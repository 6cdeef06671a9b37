"""Our reading of allowed_signers, held to ssh-keygen's: each line alone in a file, and what both make of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.trust.signer_lines import SignerLine, SkippedLine, matches, read_lines
from broker.trust.signers_file import SignersFile
from broker.trust.ssh_keygen import Outcome, Question, SshKeygen
from broker.wire.names import NAMESPACE_DIRECTIVE, Digest, Instant
from tests.rig import SECOND, sign

RAW = b"the statement"
AT_S = int(datetime(2030, 7, 1, tzinfo=UTC).timestamp())
LINES = [
    "operator@demo KEY",
    "operator@demo KEY with a comment",
    "\toperator@demo\t \tKEY",
    '"operator@demo" KEY',
    "other@demo,operator@demo KEY",
    "operator@* KEY",
    "operator@dem? KEY",
    "*,!operator@demo KEY",
    "!operator@demo KEY",
    "operator@prod KEY",
    "operator@DEMO KEY",
    "# operator@demo KEY",
    "operator@demo",
    "operator@demo namespaces=",
    "operator@demo ssh-ed25519",
    "operator@demo ssh-ed25519 AAAA",
    "operator@demo ssh-rsa BLOB",
    "operator@demo ssh-ed25519 BLOB",
    "operator@demo ssh-ed25519 BLOB=",
    f'operator@demo namespaces="{NAMESPACE_DIRECTIVE}" KEY',
    f'operator@demo NAMESPACES="{NAMESPACE_DIRECTIVE}" KEY',
    'operator@demo namespaces="file" KEY',
    'operator@demo namespaces="lever-*" KEY',
    'operator@demo namespaces="lever-*,!lever-operator-directive@lever.dev" KEY',
    f'operator@demo namespaces="file,{NAMESPACE_DIRECTIVE}",valid-after="20300101Z" KEY',
    'operator@demo namespaces="a",namespaces="b" KEY',
    "operator@demo namespaces=file KEY",
    "operator@demo namespaces KEY",
    "operator@demo cert-authority KEY",
    "operator@demo cert-authority,cert-authority KEY",
    'operator@demo CERT-AUTHORITY="x" KEY',
    "operator@demo touch-required KEY",
    'operator@demo valid-before="20300702Z" KEY',
    'operator@demo valid-before="20300701Z" KEY',
    'operator@demo valid-before="203007010000Z" KEY',
    'operator@demo valid-before="20300630235959Z" KEY',
    'operator@demo valid-after="20300701000001Z" KEY',
    'operator@demo valid-after="20300701Z" KEY',
    'operator@demo valid-before="20300101Z",valid-after="20300201Z" KEY',
    'operator@demo valid-before="2030-07-02" KEY',
    'operator@demo valid-before="20301301Z" KEY',
    'operator@demo valid-before="" KEY',
    'operator@demo valid-before="20310101Z",valid-before="20320101Z" KEY',
    'operator@demo valid-before="20310101Z" ,valid-after="20290101Z" KEY',
]


@pytest.fixture
def keygen() -> SshKeygen:
    return SshKeygen()


async def ask(keygen: SshKeygen, content: bytes, key: Path, at_s: int) -> Outcome:
    signature = sign(key, NAMESPACE_DIRECTIVE, RAW)
    question = Question(content, "operator@demo", NAMESPACE_DIRECTIVE, RAW, signature, Instant(at_s * SECOND))
    return await keygen.verify(question)


def counts(line: SignerLine | SkippedLine, at_s: int) -> bool:
    """Whether a key on this line signs directives at that second, as we read it."""
    return (
        isinstance(line, SignerLine)
        and line.is_for("operator@demo")
        and line.allows(NAMESPACE_DIRECTIVE)
        and not line.is_authority
        and (line.valid_after_s is None or line.valid_after_s <= at_s)
        and (line.valid_before_s is None or at_s <= line.valid_before_s)
    )


@pytest.mark.parametrize("template", LINES)
async def test_a_line_means_to_us_what_it_means_to_ssh_keygen(keygen: SshKeygen, first: Path, template: str) -> None:
    kind, blob, _ = first.with_suffix(".pub").read_text().split()
    content = f"{template.replace('KEY', f'{kind} {blob}').replace('BLOB', blob)}\n".encode()
    outcome = await ask(keygen, content, first, AT_S)
    lines = read_lines(content)
    assert any(counts(line, AT_S) for line in lines) == (outcome.status == 0), outcome
    skipped = re.search(rb"bad options|invalid key|missing key|bad principals", outcome.stderr)
    # ssh-keygen complains only about lines whose principal it looks for.
    assert any(isinstance(line, SkippedLine) for line in lines) == bool(skipped), (lines, outcome)


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The daemon's time zone, in which ssh-keygen reads dates without a Z."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.promise("P12")
@pytest.mark.parametrize("date", ["20300701", "20300101", "203007011230", "20301231235959"])
async def test_a_date_without_a_zone_ends_for_us_in_the_second_in_which_it_ends_for_ssh_keygen(
    zone: str, first: Path, date: str
) -> None:
    keygen = SshKeygen()
    content = f'operator@demo valid-before="{date}" {first.with_suffix(".pub").read_text()}'.encode()
    (line,) = read_lines(content)
    assert isinstance(line, SignerLine)
    end_s = line.valid_before_s
    assert end_s is not None
    last, after = [await ask(keygen, content, first, end_s + offset) for offset in (0, 1)]
    assert (last.status, after.status) == (0, 255)
    file = SignersFile(content, Digest(b""))
    eras = [file.era(Instant(at_s * SECOND)) for at_s in (end_s - 1, end_s, end_s + 1)]
    assert eras[0] == eras[1] != eras[2]


def test_dates_in_a_line_that_we_can_not_read_still_part_the_time() -> None:
    content = b'operator@demo unheard-of="x",VALID-BEFORE="20300701Z",valid-after="20300601Z" whatever\n'
    file = SignersFile(content, Digest(b""))
    assert isinstance(file.lines[0], SkippedLine)
    june, july = (int(datetime(2030, month, 1, tzinfo=UTC).timestamp()) for month in (6, 7))
    eras = [file.era(Instant(at_s * SECOND)) for at_s in (june - 1, june, july, july + 1)]
    assert len(set(eras)) == 3


def test_bytes_that_are_no_text_are_a_skipped_line_and_nothing_worse() -> None:
    lines = read_lines(b"\xff\xfe \x00 ssh-ed25519 AAAA\n\n# comment\r\n\r\noperator@demo\r\n")
    assert [(line.number, type(line)) for line in lines] == [(1, SkippedLine), (5, SkippedLine)]


def test_a_pattern_of_many_stars_is_matched_at_once() -> None:
    assert not matches("operator@" + "a" * 63, "*a" * 30 + "*b")
    assert not matches("operator@demo", "*o*e*@*d[")
    assert matches("operator@[d]", "operator@[d]")
