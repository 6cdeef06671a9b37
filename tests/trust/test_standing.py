"""Which keys still count: one process for each signer after a change, none while nothing changed."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.trust.operator import OperatorTrust
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Digest, Instance, Instant
from broker.wire.verified import NOBODY, VerifiedBytes
from tests.rig import SECOND, make_key, now, sign
from tests.trust.programs import counted, program, signer

DEMO = Instance("demo")
RAW = b"the statement"
Witnesses = dict[Digest, VerifiedBytes]

pytestmark = pytest.mark.promise("P12")


@pytest.fixture
async def witnesses(allowed: Path, first: Path, second: Path) -> Witnesses:
    """What both keys signed, verified by a trust that has forgotten it."""
    return await witnesses_of(OperatorTrust(allowed, DEMO), first, second)


async def witnesses_of(trust: OperatorTrust, *keys: Path) -> Witnesses:
    signed = [sign(key, NAMESPACE_DIRECTIVE, RAW) for key in keys]
    verified = [await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, now()) for signature in signed]
    return {each.signer_digest: each for each in verified}


async def test_each_signer_is_asked_about_once_however_many_wait(
    allowed: Path, witnesses: Witnesses, tmp_path: Path
) -> None:
    keygen = counted(tmp_path)
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=keygen.executable)
    standings = await asyncio.gather(*(trust.standing(now(), witnesses) for _ in range(50)))
    assert all(standing.good == set(witnesses) for standing in standings)
    assert keygen.runs == 2
    await trust.standing(now(), witnesses)
    assert keygen.runs == 2
    await trust.close()


async def test_a_touched_file_with_the_same_content_costs_nothing_and_a_comment_costs_one_round(
    allowed: Path, witnesses: Witnesses, tmp_path: Path
) -> None:
    keygen = counted(tmp_path)
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=keygen.executable)
    before = await trust.standing(now(), witnesses)
    allowed.write_text(allowed.read_text())
    assert await trust.standing(now(), witnesses) == before
    assert keygen.runs == 2
    allowed.write_text("# a comment\n" + allowed.read_text())
    after = await trust.standing(now(), witnesses)
    assert keygen.runs == 4
    assert after.allowed_digest != before.allowed_digest
    assert after.good == before.good


async def test_a_key_that_comes_back_counts_again(
    allowed: Path, first: Path, second: Path, witnesses: Witnesses
) -> None:
    trust = OperatorTrust(allowed, DEMO)
    whole = allowed.read_text()
    lost = next(iter(witnesses))
    allowed.write_text(signer(second))
    assert (await trust.standing(now(), witnesses)).bad == {lost}
    allowed.write_text(whole)
    assert (await trust.standing(now(), witnesses)).good == set(witnesses)


async def test_a_date_that_passes_is_noticed_without_any_change_of_the_file(
    tmp_path: Path, first: Path, second: Path
) -> None:
    file = tmp_path / "allowed_signers"
    dated = 'valid-after="20300101Z",valid-before="20300201Z"'
    file.write_text(signer(first, options=dated) + signer(second))
    keygen = counted(tmp_path)
    trust = OperatorTrust(file, DEMO, ssh_keygen=keygen.executable)
    inside = moment(2030, 1, 15)
    signed = [sign(key, NAMESPACE_DIRECTIVE, RAW) for key in (first, second)]
    verified = [await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, inside) for signature in signed]
    mine, other = (each.signer_digest for each in verified)
    witnesses = dict(zip((mine, other), verified, strict=True))
    for at, good in [
        (moment(2030, 1, 1) - 1, {other}),
        (moment(2030, 1, 1), {mine, other}),
        (moment(2030, 2, 1) + SECOND - 1, {mine, other}),
        (moment(2030, 2, 1) + SECOND, {other}),
        (moment(2031, 1, 1), {other}),
    ]:
        standing = await trust.standing(Instant(at), witnesses)
        assert standing.good == good, at
        assert standing.bad == {mine, other} - good, at
    # Two at the start; then a round of two for each of three stretches: before, within, after.
    assert keygen.runs == 2 + 3 * 2


async def test_a_verdict_for_one_namespace_says_nothing_about_another(tmp_path: Path, first: Path) -> None:
    file = tmp_path / "allowed_signers"
    file.write_text(signer(first))
    both = OperatorTrust(file, DEMO)
    witnesses = await witnesses_of(both, first)
    file.write_text(signer(first, options=f'namespaces="{NAMESPACE_ADMIN}"'))
    trust = OperatorTrust(file, DEMO)
    await trust.verify(RAW, sign(first, NAMESPACE_ADMIN, RAW), NAMESPACE_ADMIN, now())
    assert (await trust.standing(now(), witnesses)).bad == set(witnesses)


async def test_nobody_stands_while_the_file_cannot_be_believed(allowed: Path, witnesses: Witnesses) -> None:
    trust = OperatorTrust(allowed, DEMO)
    good = await trust.standing(now(), witnesses)
    allowed.chmod(0o666)
    assert await trust.standing(now(), witnesses) == NOBODY
    allowed.chmod(0o600)
    assert await trust.standing(now(), witnesses) == good
    allowed.unlink()
    assert await trust.standing(now(), witnesses) == NOBODY


async def test_a_signer_that_nobody_could_be_asked_about_is_neither_good_nor_bad_and_is_asked_about_again(
    allowed: Path, witnesses: Witnesses, tmp_path: Path
) -> None:
    flag = tmp_path / "broken"
    flag.touch()
    sometimes = program(tmp_path / "sometimes", f'test -e "{flag}" && exit 3\nexec ssh-keygen "$@"')
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=sometimes)
    standing = await trust.standing(now(), witnesses)
    assert standing.good == standing.bad == frozenset()
    flag.unlink()
    assert (await trust.standing(now(), witnesses)).good == set(witnesses)


async def test_a_caller_that_goes_away_does_not_end_the_process_for_the_others(
    allowed: Path, witnesses: Witnesses, tmp_path: Path
) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    for pipe in (started, gate):
        os.mkfifo(pipe)
    # Each process says that it runs, then waits for a line.
    waiting = program(tmp_path / "waiting", f'echo > "{started}"\nread line < "{gate}"\nexec ssh-keygen "$@"')
    trust = OperatorTrust(allowed, DEMO, ssh_keygen=waiting)
    one = dict(list(witnesses.items())[:1])
    leaving, staying = (asyncio.create_task(trust.standing(now(), one)) for _ in range(2))
    await asyncio.to_thread(started.read_bytes)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await asyncio.to_thread(gate.write_bytes, b"go\n")
    assert (await staying).good == set(one)


async def test_a_certificate_is_asked_about_each_time_because_it_ends_by_itself(tmp_path: Path, first: Path) -> None:
    authority = make_key(tmp_path / "authority")
    holder = make_key(tmp_path / "holder")
    await ran("ssh-keygen", "-q", "-s", str(authority), "-I", "x", "-n", "operator@demo", "-V", "20300101Z:20300201Z",
              str(holder.with_suffix(".pub")))  # fmt: skip
    file = tmp_path / "allowed_signers"
    file.write_text(signer(authority, options="cert-authority"))
    keygen = counted(tmp_path)
    trust = OperatorTrust(file, DEMO, ssh_keygen=keygen.executable)
    signature = sign(Path(f"{holder}-cert.pub"), NAMESPACE_DIRECTIVE, RAW)
    verified = await trust.verify(RAW, signature, NAMESPACE_DIRECTIVE, moment(2030, 1, 15))
    witness = {verified.signer_digest: verified}
    assert (await trust.standing(moment(2030, 1, 20), witness)).good == set(witness)
    assert keygen.runs == 2
    assert (await trust.standing(moment(2030, 3, 1), witness)).bad == set(witness)


async def ran(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(*argv)
    assert await process.wait() == 0


def moment(year: int, month: int, day: int) -> Instant:
    return Instant(int(datetime(year, month, day, tzinfo=UTC).timestamp()) * SECOND)
