"""The identity folder: who may have touched it, what stands in its files, and what is said when it can't be used."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from broker.errors import Malformed
from lever.agent import enrolment, identity
from lever.agent.disk import Disk
from lever.agent.enrolment import Outcome
from lever.agent.failures import Damaged, DiskFailed, NoIdentity, NotReachable, Unsafe
from lever.agent.folder import IdentityFolder, Purpose
from tests.agent.setting import content, enrol, enrol_or_renew, keys_asked_for, now
from tests.fakes.fake_broker import FakeBroker, FakeCa


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _link(path: Path) -> None:
    moved = path.rename(path.parent.parent / "moved")
    path.symlink_to(moved)


UNSAFE: dict[str, tuple[str, Callable[[IdentityFolder], object]]] = {
    "folder open to a group": ("has mode 750, expected 700", lambda f: f.path.chmod(0o750)),
    "folder writable by all": ("has mode 707, expected 700", lambda f: f.path.chmod(0o707)),
    "file readable by others": ("has mode 604, expected 600", lambda f: f.file.chmod(0o604)),
    "file writable by a group": ("has mode 620, expected 600", lambda f: f.file.chmod(0o620)),
    "file is a symbolic link": ("symbolic link", lambda f: _link(f.file)),
    "file is a folder": ("regular file", lambda f: _folder(f.file)),
    "file is a pipe": ("regular file", lambda f: _pipe(f.file)),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_what_others_could_have_touched_is_not_used(broker: FakeBroker, enrolled: IdentityFolder, case: str) -> None:
    words, spoil = UNSAFE[case]
    spoil(enrolled)
    broker.calls.clear()
    for act in enrol_or_renew(enrolled, broker):
        with pytest.raises(Unsafe, match=words) as failure:
            act()
        assert failure.value.hint
    assert broker.calls == []


def test_a_pending_key_that_others_can_read_is_not_sent(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    broker.drops["/renew"] = 1
    with pytest.raises(NotReachable):
        enrolment.renew(enrolled, now=now(), force=True)
    (enrolled.path / Purpose.RENEW).chmod(0o644)
    broker.calls.clear()
    with pytest.raises(Unsafe):
        enrolment.renew(enrolled, now=now(), force=True)
    assert broker.calls == []


def test_a_damaged_pending_key_is_not_replaced_in_silence(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    broker.drops["/renew"] = 1
    with pytest.raises(NotReachable):
        enrolment.renew(enrolled, now=now(), force=True)
    waiting = enrolled.path / Purpose.RENEW
    whole = waiting.read_bytes()
    broker.calls.clear()
    for size in range(len(whole) - 1):
        waiting.write_bytes(whole[:size])
        with pytest.raises(Damaged, match="may have been sent"):
            enrolment.renew(enrolled, now=now(), force=True)
    assert broker.calls == [], "another key would be a fork, and freeze the agent"
    waiting.write_bytes(whole)
    assert enrolment.renew(enrolled, now=now(), force=True).outcome is Outcome.RENEWED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.root
def test_a_folder_of_another_owner_is_not_used(enrolled: IdentityFolder) -> None:
    os.chown(enrolled.path, 12345, -1)
    with pytest.raises(Unsafe, match="belongs to uid 12345"):
        enrolled.read()


def test_a_full_disk_loses_nothing(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    class Full(Disk):
        def write(self, path: Path, content: bytes) -> None:
            if path.name == "identity.pem.new":
                raise OSError(28, "No space left on device", str(path))
            super().write(path, content)

    broker.calls.clear()
    before = content(enrolled)
    with pytest.raises(DiskFailed, match="No space left"):
        enrolment.renew(replace(enrolled, disk=Full()), now=now(), force=True)
    assert content(enrolled) == before
    assert enrolment.renew(enrolled, now=now(), force=True).outcome is Outcome.RENEWED
    assert len(keys_asked_for(broker)) == 1


@pytest.mark.parametrize("where", ["identity", "identity/deeper"])
def test_a_file_where_the_folder_should_be_is_said(tmp_path: Path, where: str) -> None:
    (tmp_path / "identity").write_text("")
    folder = IdentityFolder(tmp_path / where)
    with pytest.raises((Unsafe, DiskFailed), match=r"expected a folder|Not a directory"):
        folder.read()


def test_no_identity_at_all_says_how_to_get_one(folder: IdentityFolder) -> None:
    with pytest.raises(NoIdentity) as failure:
        folder.read()
    assert "lever agent enrol" in failure.value.hint


def test_an_identity_file_says_what_it_is_made_of(enrolled: IdentityFolder) -> None:
    raw = enrolled.file.read_bytes()
    value = identity.parse(raw)
    assert identity.encode(value) == raw
    assert raw.startswith(b"lever-identity: 1\nbroker-url: https://127.0.0.1:")


def _swap(raw: bytes, kind: bytes, other: bytes) -> bytes:
    """The first block of this kind replaced by the same block of another file."""
    return raw.replace(_block(raw, kind), _block(other, kind), 1)


def _block(raw: bytes, kind: bytes) -> bytes:
    end = b"-----END " + kind + b"-----\n"
    return raw[raw.index(b"-----BEGIN " + kind) : raw.index(end) + len(end)]


SPOILT: dict[str, tuple[str, Callable[[bytes, bytes], bytes]]] = {
    "empty": ("not an identity file", lambda raw, other: b""),
    "cut short": ("or only part", lambda raw, other: raw[:-30]),
    "cut after the certificate": ("or only part", lambda raw, other: raw[: raw.index(b"-----BEGIN PRIVATE")]),
    "something after it": ("not an identity file", lambda raw, other: raw + b"x"),
    "something before it": ("not an identity file", lambda raw, other: b"\n" + raw),
    "no TLS": ("not an identity file", lambda raw, other: raw.replace(b"https://", b"http://")),
    "a user in the address": ("not an identity file", lambda raw, other: raw.replace(b"127.0.0.1", b"a@b")),
    "a newer format": ("of format 2", lambda raw, other: raw.replace(b"identity: 1", b"identity: 2", 1)),
    "another key": ("for another key", lambda raw, other: _swap(raw, b"PRIVATE KEY", other)),
    "another certificate": ("for another key", lambda raw, other: _swap(raw, b"CERTIFICATE", other)),
    "another CA": (
        "instance's own CA",
        lambda raw, other: raw[: raw.rindex(b"-----BEGIN CERT")] + FakeCa().pem.encode(),
    ),
    "no certificate inside": (
        "no certificate",
        lambda raw, other: _swap(
            raw, b"CERTIFICATE", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        ),
    ),
    "too large": ("more than", lambda raw, other: raw + b"-" * 70_000),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_identity_file_is_refused_and_left_alone(
    broker: FakeBroker, enrolled: IdentityFolder, tmp_path: Path, case: str
) -> None:
    words, spoil = SPOILT[case]
    other = IdentityFolder(tmp_path / "other")
    enrol(other, broker, "worker-b")
    spoilt = spoil(content(enrolled) or b"", content(other) or b"")
    enrolled.file.write_bytes(spoilt)
    for act in enrol_or_renew(enrolled, broker):
        with pytest.raises(Damaged, match=words) as failure:
            act()
        assert "mv " in failure.value.hint
    assert content(enrolled) == spoilt


def test_no_part_of_an_identity_file_passes_for_one(enrolled: IdentityFolder) -> None:
    raw = content(enrolled) or b""
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            identity.parse(raw[:size])


# --- the page about it ------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "identity.md").read_text()


def _shape(raw: bytes) -> str:
    """A file's text with what is inside its PEM blocks left out, as the page shows it."""
    return re.sub(r"(-----BEGIN [A-Z ]+-----\n)[A-Za-z0-9+/=\n]+", r"\1...\n", raw.decode())


def test_the_page_shows_the_files_as_they_are(broker: FakeBroker, folder: IdentityFolder) -> None:
    examples = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    digest = sha256(b"a ticket of sixteen characters or more").hexdigest()
    enrol(folder, broker)
    shown = replace(folder.read(), url="https://broker.example:8443", ticket_digest=digest)
    folder.next_key(Purpose.ENROL, digest)
    assert examples == [_shape(identity.encode(shown)), _shape((folder.path / Purpose.ENROL).read_bytes())]


def test_the_page_names_every_file_that_there_may_be() -> None:
    names = set(re.findall(r"^\| `([^`]+)` \| .* \| .* \| .* \|", PAGE, re.MULTILINE))
    assert names == {"identity.pem", "lock", "*.new", *Purpose}
