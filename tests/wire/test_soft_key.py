"""The contract of the software security key: real ssh-keygen takes what it signs, and nothing else for it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from broker.wire import sshsig
from tests.fakes.soft_key import HashName, Kind, SoftKey
from tests.wire import ssh

MESSAGE = b'{"v":1}'
KINDS = get_args(Kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hash_name", get_args(HashName))
def test_ssh_keygen_verifies_what_it_signs(tmp_path: Path, kind: Kind, hash_name: HashName) -> None:
    key = SoftKey(kind)
    armored = key.sign(ssh.NAMESPACE, MESSAGE, hash_name=hash_name)
    assert ssh.verifies(tmp_path, key.public_line, armored, MESSAGE)


@pytest.mark.parametrize("kind", KINDS)
def test_ssh_keygen_refuses_it_for_other_words_keys_and_namespaces(tmp_path: Path, kind: Kind) -> None:
    key = SoftKey(kind)
    armored = key.sign(ssh.NAMESPACE, MESSAGE)
    assert not ssh.verifies(tmp_path, key.public_line, armored, MESSAGE + b" ")
    assert not ssh.verifies(tmp_path, SoftKey(kind).public_line, armored, MESSAGE)
    assert not ssh.verifies(tmp_path, key.public_line, armored, MESSAGE, "other@lever.dev")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [0, sshsig.USER_PRESENT, sshsig.USER_PRESENT | sshsig.USER_VERIFIED])
def test_ssh_keygen_does_not_look_at_the_flags_and_our_parser_reports_them(
    tmp_path: Path, kind: Kind, flags: int
) -> None:
    key = SoftKey(kind)
    armored = key.sign(ssh.NAMESPACE, MESSAGE, flags=flags)
    assert ssh.verifies(tmp_path, key.public_line, armored, MESSAGE)
    assert sshsig.parse(armored).flags == flags


def test_ssh_keygen_takes_a_passkey_of_any_origin(tmp_path: Path) -> None:
    key = SoftKey("webauthn")
    armored = key.sign(ssh.NAMESPACE, MESSAGE, origin="https://evil.example")
    assert ssh.verifies(tmp_path, key.public_line, armored, MESSAGE)


def test_a_browser_that_signed_another_challenge_is_refused(tmp_path: Path) -> None:
    key = SoftKey("webauthn")
    lie = b'{"type":"webauthn.get","challenge":"AAAA","origin":"https://broker.example"}'
    armored = key.sign(ssh.NAMESPACE, MESSAGE, client_data=lie)
    assert not ssh.verifies(tmp_path, key.public_line, armored, MESSAGE)
