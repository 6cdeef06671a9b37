"""What the operator is told of a key that does not work, where the file itself looks right."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.trust.diagnosis import CODES, Finding
from broker.trust.operator import OperatorTrust
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instance, Instant
from tests.rig import SECOND, make_key, now, sign
from tests.trust.programs import program, signer

DEMO = Instance("demo")
RAW = b"the statement"
AT = Instant(int(datetime(2030, 7, 1, tzinfo=UTC).timestamp()) * SECOND)

pytestmark = pytest.mark.promise("P12")


async def diagnosed(file: Path, **signed: bytes) -> list[Finding]:
    found = await OperatorTrust(file, DEMO).diagnose(AT, **signed)  # type: ignore[arg-type]
    assert {finding.code for finding in found} <= set(CODES)
    return found


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        ('valid-before="20300630Z"', "key_expired", "2030-06-30T00:00:00Z"),
        ('valid-after="20300702Z"', "key_not_yet_valid", "2030-07-02T00:00:00Z"),
        (f'namespaces="{NAMESPACE_DIRECTIVE}"', "wrong_namespace", NAMESPACE_ADMIN),
        ("verify-required", "line_skipped", "unknown option"),
    ],
)
async def test_a_line_that_does_not_count_is_named_with_the_reason(
    tmp_path: Path, first: Path, second: Path, options: str, code: str, word: str
) -> None:
    file = tmp_path / "allowed_signers"
    third = make_key(tmp_path / "third")
    file.write_text(signer(first) + "\n# the bad one\n" + signer(second, options=options) + signer(third))
    (found,) = await diagnosed(file)
    assert (found.code, found.blocks) == (code, True)
    assert "line 4" in found.text
    assert word in found.text


async def test_a_signature_is_tried_too_and_its_refusal_explained(allowed: Path, first: Path, tmp_path: Path) -> None:
    assert await diagnosed(allowed, raw=RAW, signature=sign(first, NAMESPACE_DIRECTIVE, RAW)) == []
    stranger = make_key(tmp_path / "stranger")
    for signature, word in [
        (sign(stranger, NAMESPACE_DIRECTIVE, RAW), "not in allowed_signers"),
        (sign(first, NAMESPACE_ADMIN, RAW), "namespace"),
        (sign(first, NAMESPACE_DIRECTIVE, b"something else"), "incorrect signature"),
        (b"nothing", "signature"),
    ]:
        (found,) = await diagnosed(allowed, raw=RAW, signature=signature)
        assert found.code == "key_not_accepted"
        assert word in found.text


async def test_what_ssh_keygen_writes_cannot_disguise_the_reason(allowed: Path, first: Path, tmp_path: Path) -> None:
    hostile = program(tmp_path / "hostile", r"printf '/dev/fd/9:3: \033[2Jkey has expired\nand more\n' >&2; exit 255")
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=hostile)
    (found,) = await trust.diagnose(now(), raw=RAW, signature=sign(first, NAMESPACE_DIRECTIVE, RAW))
    assert found.text == "allowed_signers line 3: \\x1b[2Jkey has expired; and more"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_a_file_of_another_user_is_not_believed(allowed: Path) -> None:
    os.chown(allowed, 65534, -1)
    (found,) = await diagnosed(allowed)
    assert found.code == "signers_owner"
    assert "65534" in found.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_a_file_that_may_not_be_read_says_so(allowed: Path) -> None:
    allowed.chmod(0)
    (found,) = await diagnosed(allowed)
    assert found.code == "signers_unreadable"


async def test_a_loop_of_links_says_that_it_cannot_be_read(tmp_path: Path) -> None:
    link = tmp_path / "allowed_signers"
    link.symlink_to(link)
    (found,) = await diagnosed(link)
    assert found.code == "signers_unreadable"


async def test_one_key_on_two_lines_is_still_one_key(tmp_path: Path, first: Path) -> None:
    file = tmp_path / "allowed_signers"
    file.write_text(signer(first) * 2)
    assert [(found.code, found.blocks) for found in await diagnosed(file)] == [("single_key", False)]
