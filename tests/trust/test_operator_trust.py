"""Who the operator is, by real ssh-keygen processes over real files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.errors import Untrusted
from broker.trust.operator import OperatorTrust
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instance, Instant
from broker.wire.verified import NOBODY, VerifiedBytes
from tests.fakes.soft_key import SoftKey
from tests.rig import SECOND, make_key, now, sign

RAW = b'{"a":1}'
BOTH = f'namespaces="{NAMESPACE_DIRECTIVE},{NAMESPACE_ADMIN}"'
DEMO = Instance("demo")


def line(key: Path, principal: str = "operator@demo", options: str = BOTH) -> str:
    return f"{principal} {options} {key.with_suffix('.pub').read_text().strip()}\n".replace("  ", " ")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder / "one"), make_key(folder / "two", "ecdsa")


@pytest.fixture
def signers(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    file = tmp_path / "allowed_signers"
    file.write_text("".join(line(key) for key in keys))
    file.chmod(0o644)
    return file


async def verified(
    signers: Path, key: Path, namespace: str = NAMESPACE_DIRECTIVE, at: Instant | None = None
) -> VerifiedBytes:
    trust = OperatorTrust(signers, DEMO)
    return await trust.verify(RAW, sign(key, namespace, RAW), NAMESPACE_DIRECTIVE, at or now())


async def test_a_good_signature_gives_the_exact_bytes_and_the_key(signers: Path, keys: tuple[Path, Path]) -> None:
    for key in keys:
        accepted = await verified(signers, key)
        assert accepted.raw == RAW
        assert accepted.fingerprint.startswith("SHA256:")


@pytest.mark.promise("P7")
async def test_another_namespace_another_instance_and_a_stranger_are_refused(
    signers: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(Untrusted, match="namespace"):
        await verified(signers, keys[0], NAMESPACE_ADMIN)
    with pytest.raises(Untrusted):
        await verified(signers, make_key(tmp_path / "stranger"))
    other = OperatorTrust(signers, Instance("prod"))
    with pytest.raises(Untrusted):
        await other.verify(RAW, sign(keys[0], NAMESPACE_DIRECTIVE, RAW), NAMESPACE_DIRECTIVE, now())


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("options", "good"),
    [
        (f'{BOTH},valid-before="20200101Z"', False),
        (f'{BOTH},valid-after="20990101Z"', False),
        (f'{BOTH},valid-after="20200101Z",valid-before="20990101Z"', True),
        ('namespaces="file"', False),
        ("no-touch-required", False),
    ],
)
async def test_the_options_of_a_line_count(tmp_path: Path, keys: tuple[Path, Path], options: str, good: bool) -> None:
    file = tmp_path / "allowed_signers"
    file.write_text(line(keys[0], options=options))
    if good:
        await verified(file, keys[0])
        return
    with pytest.raises(Untrusted):
        await verified(file, keys[0])


@pytest.mark.promise("P12")
async def test_a_line_that_is_skipped_does_not_cost_the_others(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    file = tmp_path / "allowed_signers"
    file.write_text(f"operator@demo verify-required {keys[1].with_suffix('.pub').read_text()}{line(keys[0])}")
    await verified(file, keys[0])
    found = await OperatorTrust(file, DEMO).diagnose(now())
    assert "line_skipped" in {finding.code for finding in found}


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (Path.unlink, "signers_missing"),
        (a_folder, "signers_not_a_file"),
        (a_fifo, "signers_not_a_file"),
        (lambda file: file.chmod(0o664), "signers_writable"),
        (lambda file: file.write_bytes(b"# " + b"x" * 300_000), "signers_too_large"),
        (lambda file: file.write_text("# nobody\n"), "signers_empty"),
        (lambda file: file.write_text(file.read_text().replace("@demo", "@prod")), "no_key_for_principal"),
        (lambda file: file.write_text(file.read_text().replace("operator@demo", "*")), "wildcard_principal"),
        (lambda file: file.write_text(file.read_text().replace(BOTH, 'namespaces="file"')), "wrong_namespace"),
        (lambda file: file.write_text(file.read_text().splitlines()[0] + "\n"), "single_key"),
    ],
)
async def test_each_misconfiguration_has_a_name_of_its_own(
    signers: Path, spoil: Callable[[Path], object], code: str
) -> None:
    assert await OperatorTrust(signers, DEMO).diagnose(now()) == []
    spoil(signers)
    found = await OperatorTrust(signers, DEMO).diagnose(now())
    assert code in {finding.code for finding in found}
    assert all(finding.hint and finding.text for finding in found)


async def test_a_security_key_must_have_been_touched(tmp_path: Path) -> None:
    key, file = SoftKey("sk-ed25519"), tmp_path / "allowed_signers"
    file.write_text(f"operator@demo {BOTH} {key.public_line}\n")
    trust = OperatorTrust(file, DEMO)
    await trust.verify(RAW, key.sign(NAMESPACE_DIRECTIVE, RAW, flags=1), NAMESPACE_DIRECTIVE, now())
    with pytest.raises(Untrusted, match="touched"):
        await trust.verify(RAW, key.sign(NAMESPACE_DIRECTIVE, RAW, flags=0), NAMESPACE_DIRECTIVE, now())


async def test_a_passkey_is_refused_with_a_clear_word(tmp_path: Path) -> None:
    key, file = SoftKey("webauthn"), tmp_path / "allowed_signers"
    file.write_text(f"operator@demo {BOTH} {key.public_line}\n")
    with pytest.raises(Untrusted, match="passkey signatures are not supported yet"):
        await OperatorTrust(file, DEMO).verify(RAW, key.sign(NAMESPACE_DIRECTIVE, RAW), NAMESPACE_DIRECTIVE, now())


@pytest.mark.promise("P12")
async def test_standing_is_asked_once_for_a_content_and_follows_the_file(
    signers: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    count, counting = tmp_path / "count", tmp_path / "counting"
    counting.write_text(f'#!/bin/sh\necho x >> {count}\nexec ssh-keygen "$@"\n')
    counting.chmod(0o755)
    trust = OperatorTrust(signers, DEMO, ssh_keygen=str(counting))
    accepted = [
        await trust.verify(RAW, sign(key, NAMESPACE_DIRECTIVE, RAW), NAMESPACE_DIRECTIVE, now()) for key in keys
    ]
    witnesses = {each.signer_digest: each for each in accepted}
    for _ in range(3):
        standing = await trust.standing(now(), witnesses)
        assert standing.good == set(witnesses)
    assert count.read_text().count("x") == 2, "what was verified under this content is known already"
    signers.write_text(line(keys[1]))
    standing = await trust.standing(now(), witnesses)
    assert standing.bad == {accepted[0].signer_digest}
    assert standing.good == {accepted[1].signer_digest}
    signers.unlink()
    assert await trust.standing(now(), witnesses) == NOBODY


async def test_the_example_file_holds_two_keys_that_count_today() -> None:
    example = Path(__file__).parent.parent.parent / "allowed_signers.example"
    at = Instant(1_780_000_000 * SECOND)  # within the validity dates of both lines
    copy = example.read_bytes()
    assert copy.count(b"\noperator@demo ") == 2
    found = [f.code for f in await OperatorTrust(example, DEMO).diagnose(at)]
    assert found in ([], ["signers_writable"])
