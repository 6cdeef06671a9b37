"""Who may sign: allowed_signers is read anew for each operation, and what rests on a key falls with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.wire import statement
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE
from tests.rig import Agent, Rig, is_miss

SELFTEST = "/directive/selftest"


@pytest.fixture
def signers(rig: Rig) -> Iterator[list[str]]:
    """The lines of allowed_signers; the file is put back afterwards."""
    before = rig.allowed_signers.read_text()
    yield [line for line in before.splitlines() if line and not line.startswith("#")]
    if rig.allowed_signers.is_dir():
        rig.allowed_signers.rmdir()
    rig.allowed_signers.write_text(before)
    rig.allowed_signers.chmod(0o644)


@pytest.mark.promise("P12")
def test_removing_a_key_stops_the_next_operation_signed_with_it(
    rig: Rig, agents: tuple[Agent, Agent], signers: list[str]
) -> None:
    id = rig.send(key=rig.key)
    kept = rig.send(key=rig.second_key)
    rig.allowed_signers.write_text(signers[1] + "\n")
    refused = rig.send_raw(statement.encode(rig.statement()), key=rig.key)
    assert (refused.status_code, refused.json()["reason"]) == (400, "bad_signature")
    assert rig.admin("/directive/list", "list", key=rig.key).status_code == 400
    assert is_miss(agents[0].consume(id)), "what it signed before is not handed out any more"
    assert agents[0].consume(kept).status_code == 200, "the other key's directives are"
    rig.allowed_signers.write_text("\n".join(signers) + "\n")
    assert is_miss(agents[0].consume(id)), "and putting the key back does not bring it back"
    assert rig.row(id)["reason"] == "key_not_standing"


@pytest.mark.promise("P12")
def test_an_answer_is_not_repeated_once_its_key_is_gone(
    rig: Rig, agents: tuple[Agent, Agent], signers: list[str]
) -> None:
    id = rig.send(key=rig.key)
    assert agents[0].consume(id, "again").status_code == 200
    rig.allowed_signers.write_text(signers[1] + "\n")
    assert is_miss(agents[0].consume(id, "again"))


@pytest.mark.promise("P12")
def test_a_valid_before_that_passes_stops_the_key(rig: Rig, signers: list[str]) -> None:
    name, options, *key = signers[0].split(" ", 2)
    rig.allowed_signers.write_text(f'{name} {options},valid-before="20200101Z" {" ".join(key)}\n{signers[1]}\n')
    assert rig.send_raw(statement.encode(rig.statement()), key=rig.key).status_code == 400
    told = rig.send_raw(selftest(rig), key=rig.key, route=SELFTEST)
    assert told.status_code == 400
    assert "expired" in told.json()["error"]


def selftest(rig: Rig) -> bytes:
    return statement.encode(rig.statement("selftest"))


def test_selftest_passes_and_stores_nothing(rig: Rig) -> None:
    raw = selftest(rig)
    answer = rig.send_raw(raw, route=SELFTEST)
    assert answer.status_code == 200
    assert answer.json()["ok"] is True
    assert answer.json()["fingerprint"].startswith("SHA256:")
    assert rig.listed(id=statement.read(raw).directive_id) == []


def missing(rig: Rig, lines: list[str]) -> None:
    rig.allowed_signers.unlink()


def folder(rig: Rig, lines: list[str]) -> None:
    rig.allowed_signers.unlink()
    rig.allowed_signers.mkdir()


def writable(rig: Rig, lines: list[str]) -> None:
    rig.allowed_signers.chmod(0o666)


def empty(rig: Rig, lines: list[str]) -> None:
    rig.allowed_signers.write_text("")


def other_principal(rig: Rig, lines: list[str]) -> None:
    rig.allowed_signers.write_text("".join(f"{line.replace('operator@demo', 'operator@prod')}\n" for line in lines))


def other_namespace(rig: Rig, lines: list[str]) -> None:
    text = "\n".join(lines).replace(NAMESPACE_DIRECTIVE, "file").replace(NAMESPACE_ADMIN, "git")
    rig.allowed_signers.write_text(text + "\n")


def other_key(rig: Rig, lines: list[str]) -> None:
    rig.allowed_signers.write_text(lines[1] + "\n")


@pytest.mark.promise("P12")
def test_selftest_tells_each_misconfiguration_apart(rig: Rig, signers: list[str]) -> None:
    told = {}
    for spoil in (missing, folder, writable, empty, other_principal, other_namespace, other_key):
        spoil(rig, signers)
        answer = rig.send_raw(selftest(rig), route=SELFTEST)
        assert answer.status_code in (400, 503), spoil.__name__
        told[spoil.__name__] = answer.json()["error"]
        if rig.allowed_signers.is_dir():
            rig.allowed_signers.rmdir()
        rig.allowed_signers.write_text("\n".join(signers) + "\n")
        rig.allowed_signers.chmod(0o644)
    assert len(set(told.values())) == len(told), told


@pytest.mark.promise("P12")
def test_a_file_that_cannot_be_trusted_hands_nothing_out_and_invalidates_nothing(
    rig: Rig, agents: tuple[Agent, Agent], signers: list[str]
) -> None:
    id = rig.send()
    writable(rig, signers)
    assert is_miss(agents[0].consume(id))
    rig.allowed_signers.chmod(0o644)
    assert agents[0].consume(id).status_code == 200


@pytest.mark.promise("P12")
def test_a_change_of_the_file_is_journalled_with_the_keys_it_holds(rig: Rig, signers: list[str]) -> None:
    rig.allowed_signers.write_text(signers[0] + "\n")
    assert rig.send_raw(selftest(rig), route=SELFTEST).status_code == 200
    shown = rig.cli("journal", "show", "--kind", "signers_changed", "--json").stdout.splitlines()
    assert shown[-1].count("SHA256:") == 1
