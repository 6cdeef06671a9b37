"""What counts as the operator's word, asked of the real ssh-keygen."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.errors import Unavailable, Untrusted
from broker.trust.operator import OperatorTrust
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instance, Instant
from tests.fakes.soft_key import SoftKey, armor
from tests.rig import SECOND, now, sign
from tests.trust.programs import counted, signer

DEMO = Instance("demo")
RAW = b'{"v":1,"instance":"demo","directive_id":"d-1"}'


def moment(year: int, month: int, day: int, second: int = 0) -> Instant:
    return Instant(int(datetime(year, month, day, tzinfo=UTC).timestamp() + second) * SECOND)


async def refusal(attempt: Awaitable[object]) -> str:
    """The reason of a refusal; fails when there is none."""
    with pytest.raises(Untrusted) as refused:
        await attempt
    return refused.value.why


def dearmored(signature: bytes) -> bytes:
    return base64.b64decode(b"".join(signature.splitlines()[1:-1]))


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.promise("P1")
async def test_one_flipped_bit_anywhere_in_statement_or_signature_is_refused(allowed: Path, first: Path) -> None:
    trust = OperatorTrust(allowed, DEMO)
    good = sign(first, NAMESPACE_DIRECTIVE, RAW)
    blob = dearmored(good)
    assert (await trust.verify(RAW, armor(blob), NAMESPACE_DIRECTIVE, now())).raw == RAW
    statements = [(flipped(RAW, at), good) for at in range(0, len(RAW), 9)]
    # Steps of 7 land in each part of the blob: magic, version, key, namespace, hash name, signature.
    signatures = [(RAW, armor(flipped(blob, at))) for at in {*range(0, len(blob), 7), len(blob) - 1}]
    texts = [(RAW, flipped(good, at)) for at in (0, 20, 40, len(good) // 2, len(good) - 10)]
    changed = [*statements, *signatures, *texts, (RAW + b"\n", good), (RAW[:-1], good), (RAW, good + b"x")]
    reasons = await asyncio.gather(
        *(refusal(trust.verify(raw, signature, NAMESPACE_DIRECTIVE, now())) for raw, signature in changed)
    )
    assert len(reasons) == len(changed)
    assert all(reasons)
    await trust.close()


@pytest.mark.promise("P12")
async def test_a_removed_key_stops_at_once_and_the_other_goes_on(allowed: Path, first: Path, second: Path) -> None:
    trust = OperatorTrust(allowed, DEMO)
    mine, other = (sign(key, NAMESPACE_DIRECTIVE, RAW) for key in (first, second))
    await trust.verify(RAW, mine, NAMESPACE_DIRECTIVE, now())
    allowed.write_text(signer(second))
    assert "not in allowed_signers" in await refusal(trust.verify(RAW, mine, NAMESPACE_DIRECTIVE, now()))
    await trust.verify(RAW, other, NAMESPACE_DIRECTIVE, now())


@pytest.mark.promise("P12")
async def test_validity_dates_count_at_the_given_time_to_the_second(tmp_path: Path, first: Path) -> None:
    file = tmp_path / "allowed_signers"
    file.write_text(signer(first, options='valid-after="20300101Z",valid-before="20300201Z"'))
    trust = OperatorTrust(file, DEMO)
    signature = sign(first, NAMESPACE_DIRECTIVE, RAW)

    async def at(instant: Instant) -> object:
        return await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, instant)

    assert "not yet valid" in await refusal(at(moment(2030, 1, 1, -1)))
    await at(moment(2030, 1, 1))
    await at(Instant(moment(2030, 2, 1) + SECOND - 1))
    assert "expired" in await refusal(at(moment(2030, 2, 1, 1)))


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    ("principal", "options", "reason"),
    [
        ("operator@prod", "", r"does not stand under operator@demo .*line 1"),
        ("someone@demo,operator@demo.example", "", "does not stand under operator@demo"),
        ("!operator@demo,*", "", "does not stand under operator@demo"),
        ("operator@demo", 'namespaces="file,git"', "line 1: .*not permitted for use in signature namespace"),
        ("operator@demo", 'valid-before="20200101Z"', "line 1: .*expired"),
        ("operator@demo", "cert-authority", "did not accept"),
        ("operator@demo", "touch-required", "line 1: .*unknown key option"),
    ],
)
async def test_the_refusal_names_the_line_and_what_is_wrong_with_it(
    tmp_path: Path, first: Path, principal: str, options: str, reason: str
) -> None:
    file = tmp_path / "allowed_signers"
    file.write_text(signer(first, principal, options))
    signature = sign(first, NAMESPACE_DIRECTIVE, RAW)
    why = await refusal(OperatorTrust(file, DEMO).verify(RAW, signature, NAMESPACE_DIRECTIVE, now()))
    assert re.search(reason, why), why
    assert "/dev/fd" not in why


@pytest.mark.parametrize("flags", [0x00, 0x04, 0xFE])
@pytest.mark.parametrize("kind", ["sk-ed25519", "sk-ecdsa"])
async def test_a_security_key_that_was_not_touched_is_refused_whatever_else_it_says(
    tmp_path: Path, kind: str, flags: int
) -> None:
    key = SoftKey(kind)  # type: ignore[arg-type]
    file = tmp_path / "allowed_signers"
    file.write_text(f"operator@demo {key.public_line}\n")
    trust = OperatorTrust(file, DEMO)
    for touched in (0x01, 0x05):
        await trust.verify(RAW, key.sign(NAMESPACE_DIRECTIVE, RAW, flags=touched), NAMESPACE_DIRECTIVE, now())
    signature = key.sign(NAMESPACE_DIRECTIVE, RAW, flags=flags)
    assert "without being touched" in await refusal(trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now()))


@pytest.mark.promise("P12")
async def test_the_example_works_with_ones_own_keys_in_it(tmp_path: Path, first: Path, second: Path) -> None:
    text = (Path(__file__).parents[2] / "allowed_signers.example").read_text()
    strangers = re.findall(r"^operator@demo \S+ (ssh-ed25519 \S+)", text, re.MULTILINE)
    file = tmp_path / "allowed_signers"
    for key, line in zip((first, second), strangers, strict=True):
        text = text.replace(line, " ".join(key.with_suffix(".pub").read_text().split()[:2]))
    file.write_text(text)
    trust = OperatorTrust(file, DEMO)
    for key in (first, second):
        for namespace in (NAMESPACE_DIRECTIVE, NAMESPACE_ADMIN):
            await trust.verify(RAW, sign(key, namespace, RAW), namespace, moment(2026, 6, 1))
    signature = sign(first, NAMESPACE_DIRECTIVE, RAW)
    assert "expired" in await refusal(trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, moment(2027, 6, 1)))
    assert await trust.diagnose(moment(2026, 6, 1), raw=RAW, signature=signature) == []


async def test_a_link_is_followed_to_a_file_that_is_checked_itself(allowed: Path, first: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(allowed)
    trust = OperatorTrust(link, DEMO)
    signature = sign(first, NAMESPACE_DIRECTIVE, RAW)
    await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now())
    allowed.chmod(0o620)
    with pytest.raises(Unavailable, match="written by others"):
        await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now())


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
async def test_a_file_that_others_can_write_is_not_believed(allowed: Path, first: Path, mode: int) -> None:
    allowed.chmod(mode)
    with pytest.raises(Unavailable, match=f"mode 0{mode:o}"):
        await OperatorTrust(allowed, DEMO).verify(
            RAW, sign(first, NAMESPACE_DIRECTIVE, RAW), NAMESPACE_DIRECTIVE, now()
        )


@pytest.mark.promise("P7")
async def test_a_signature_for_another_namespace_is_named_as_such_before_any_process_runs(
    allowed: Path, first: Path, tmp_path: Path
) -> None:
    keygen = counted(tmp_path)
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=keygen.executable)
    signature = sign(first, NAMESPACE_ADMIN, RAW)
    why = await refusal(trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now()))
    assert f'is for the namespace "{NAMESPACE_ADMIN}"' in why
    assert keygen.runs == 0


async def test_each_change_of_the_content_is_told_once_with_its_keys(allowed: Path, first: Path, second: Path) -> None:
    told: list[tuple[bytes, tuple[str, ...]]] = []
    trust = OperatorTrust(allowed, DEMO, on_change=lambda digest, keys: told.append((digest, keys)))
    signature = sign(first, NAMESPACE_DIRECTIVE, RAW)
    fingerprint = (await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now())).fingerprint
    seen = (await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now())).allowed_digest
    assert len(told) == 1
    assert told[0][0] == seen
    assert len(told[0][1]) == 2
    assert told[0][1][0] == fingerprint
    allowed.write_text(signer(first))
    await trust.standing(now(), {})
    assert [keys for _, keys in told[1:]] == [(fingerprint,)]


async def test_what_the_journal_has_seen_is_no_change(allowed: Path, first: Path) -> None:
    signature = sign(first, NAMESPACE_DIRECTIVE, RAW)
    seen = (await OperatorTrust(allowed, DEMO).verify(RAW, signature, NAMESPACE_DIRECTIVE, now())).allowed_digest
    told: list[bytes] = []
    again = OperatorTrust(allowed, DEMO, seen=seen, on_change=lambda digest, _keys: told.append(digest))
    await again.verify(RAW, signature, NAMESPACE_DIRECTIVE, now())
    assert told == []
