"""Enrolling and renewing against a broker over real TLS: lost answers, crashes, two processes, hostile certificates."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from broker.wire import bundle
from lever.agent import enrolment
from lever.agent.enrolment import Outcome
from lever.agent.failures import (
    Barred,
    Busy,
    NoIdentity,
    NotReachable,
    Occupied,
    Unverified,
)
from lever.agent.folder import IdentityFolder, Purpose
from tests.agent.setting import (
    Crash,
    CrashingDisk,
    content,
    enrol,
    enrol_or_renew,
    keys_asked_for,
    now,
    renew_in_another_process,
)
from tests.fakes.fake_broker import Call, FakeBroker, FakeCa


def test_enrolling_makes_a_private_folder_with_a_working_identity(
    broker: FakeBroker, folder: IdentityFolder, tmp_path: Path
) -> None:
    done = enrol(folder, broker)
    assert done.outcome is Outcome.ENROLLED
    holder = folder.read().holder
    assert (holder.cn, holder.instance, holder.generation) == ("worker-a", "demo", 1)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.path.iterdir()}
    assert modes.pop("identity.pem") == 0o600
    assert set(modes) <= {"lock"}
    assert enrolment.renew(folder, now=now(), force=True).outcome is Outcome.RENEWED


@pytest.mark.promise("P15", "P35")
def test_an_answer_lost_at_enrolment_is_asked_for_again_with_the_same_key(
    broker: FakeBroker, folder: IdentityFolder
) -> None:
    ticket = broker.invite("worker-a")
    broker.drops["/enrol"] = 1
    with pytest.raises(NotReachable) as lost:
        enrol(folder, broker, ticket=ticket)
    assert lost.value.sent
    assert folder.find() is None
    assert enrol(folder, broker, ticket=ticket).outcome is Outcome.ENROLLED
    assert len(keys_asked_for(broker)) == 1
    assert broker.generations["worker-a"] == 1


@pytest.mark.promise("P35")
def test_an_answer_lost_at_renewal_is_asked_for_again_with_the_same_key(
    broker: FakeBroker, enrolled: IdentityFolder
) -> None:
    before = content(enrolled)
    broker.calls.clear()
    broker.drops["/renew"] = 1
    with pytest.raises(NotReachable):
        enrolment.renew(enrolled, now=now(), force=True)
    assert content(enrolled) == before
    assert enrolment.renew(enrolled, now=now(), force=True).outcome is Outcome.RENEWED
    assert len(broker.calls) == 2
    assert len(keys_asked_for(broker)) == 1, "another key would be a fork, and freeze the agent"


@pytest.mark.promise("P35")
@pytest.mark.parametrize("what", ["enrol", "enrol again", "renew"])
def test_a_crash_at_any_step_leaves_the_old_identity_or_the_new_one(tmp_path: Path, what: str) -> None:
    steps, done = 0, False
    with FakeBroker() as broker:
        while not done:
            steps += 1
            folder = IdentityFolder(tmp_path / str(steps))
            cn = f"worker-{steps}"
            if what != "enrol":
                enrol(folder, broker, cn)
            done = _survives_a_crash(folder, broker, cn, what, steps)
    assert steps > 8, "three steps for the key, three for the identity, two removals, and the one without a crash"


def _survives_a_crash(folder: IdentityFolder, broker: FakeBroker, cn: str, what: str, step: int) -> bool:
    """Crash at this step, look, run again; True once there was no such step."""
    disk = CrashingDisk(step)
    crashing = replace(folder, disk=disk)
    old, ticket = content(folder), broker.invite(cn)
    broker.calls.clear()

    def run(where: IdentityFolder) -> None:
        if what == "renew":
            enrolment.renew(where, now=now(20))
        else:
            enrol(where, broker, cn, ticket)

    try:
        run(crashing)
        crashed = False
    except Crash:
        crashed = True
    installed = content(folder) != old
    folder.find()  # whatever is there can be read
    assert installed == ("rename identity.pem" in (disk.trace[:-1] if crashed else disk.trace)), disk.trace
    run(folder)
    assert content(folder) != old
    again = what == "renew" and installed  # then the second run renews what the first one got
    assert len(keys_asked_for(broker)) == (2 if again else 1), disk.trace
    assert cn not in broker.revoked, disk.trace
    assert {path.name for path in folder.path.iterdir()} <= {"identity.pem", "lock"} | set(Purpose)
    return not crashed


@pytest.mark.promise("P35")
def test_the_key_is_on_disk_before_the_broker_hears_of_it(broker: FakeBroker, folder: IdentityFolder) -> None:
    disk = CrashingDisk(0)
    seen: list[list[str]] = []
    broker.before = lambda call: seen.append(disk.trace[:])
    watched = replace(folder, disk=disk)
    enrol(watched, broker)
    disk.trace.clear()
    enrolment.renew(watched, now=now(), force=True)
    assert seen == [
        ["write next-enrol.key.new", "rename next-enrol.key", "sync_folder"],
        ["write next-renew.key.new", "rename next-renew.key", "sync_folder"],
    ]


@pytest.mark.parametrize("force", [False, True])
def test_two_processes_that_renew_at_once_make_one_renewal(
    broker: FakeBroker, enrolled: IdentityFolder, force: bool
) -> None:
    spawn = multiprocessing.get_context("spawn")
    arrived, results = spawn.Event(), spawn.Queue()
    other = spawn.Process(target=renew_in_another_process, args=(enrolled.path, force, arrived, results))

    def while_the_first_waits_for_its_answer(call: Call) -> None:
        broker.before = lambda call: None
        other.start()
        assert arrived.wait(30)

    broker.before = while_the_first_waits_for_its_answer
    first = enrolment.renew(enrolled, now=now(20), force=force).outcome
    assert (first, results.get(timeout=30)) == (Outcome.RENEWED, "unchanged")
    other.join()
    results.close()
    results.join_thread()
    assert [call.path for call in broker.calls].count("/renew") == 1


def test_a_renewal_waits_for_half_of_the_life(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    assert enrolment.renew(enrolled, now=now(11.9)).outcome is Outcome.UNCHANGED
    assert enrolment.renew(enrolled, now=now(12.1)).outcome is Outcome.RENEWED


def test_a_lock_that_is_not_given_back_is_said(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    with enrolled.locked(), pytest.raises(Busy, match="another lever process"):
        enrolment.renew(replace(enrolled, lock_wait_s=0), now=now(), force=True)


# --- what an enrolment may replace ------------------------------------------------------------------------------


def test_the_same_bundle_again_changes_nothing_and_asks_nobody(broker: FakeBroker, folder: IdentityFolder) -> None:
    ticket = broker.invite("worker-a")
    enrol(folder, broker, ticket=ticket)
    before = content(folder)
    assert enrol(folder, broker, ticket=ticket).outcome is Outcome.UNCHANGED
    assert content(folder) == before
    assert len(broker.calls) == 1
    enrolment.renew(folder, now=now(), force=True)
    assert enrol(folder, broker, ticket=ticket).outcome is Outcome.UNCHANGED, "a renewal keeps whose ticket it was"


def test_a_new_bundle_of_the_same_name_replaces_the_identity(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    old = enrolled.read()
    enrol(enrolled, broker)
    new = enrolled.read()
    assert (new.holder.generation, new.holder.cn) == (2, "worker-a")
    assert new.key.private_numbers() != old.key.private_numbers()


@pytest.mark.parametrize("ticket", ["never-issued-ticket", None])
def test_a_refused_enrolment_keeps_the_identity_that_was_there(
    broker: FakeBroker, enrolled: IdentityFolder, ticket: str | None
) -> None:
    before = content(enrolled)
    if ticket is None:
        ticket = broker.invite("worker-a")
        enrol(IdentityFolder(enrolled.path.parent / "other"), broker, ticket=ticket)
    with pytest.raises(Barred, match=r"the ticket was used, has expired .* is kept") as refused:
        enrol(enrolled, broker, ticket=ticket)
    assert "lever agent invite worker-a" in refused.value.hint
    assert content(enrolled) == before


def test_a_ticket_for_another_name_is_refused_and_not_burnt(broker: FakeBroker, folder: IdentityFolder) -> None:
    ticket = broker.invite("worker-a")
    with pytest.raises(Barred, match="another name"):
        enrol(folder, broker, "worker-b", ticket)
    assert enrol(folder, broker, "worker-a", ticket).outcome is Outcome.ENROLLED


def test_a_living_identity_of_another_agent_or_broker_is_not_destroyed(
    broker: FakeBroker, enrolled: IdentityFolder
) -> None:
    before = content(enrolled)
    with pytest.raises(Occupied, match=r"living identity of worker-a .* for worker-b"):
        enrol(enrolled, broker, "worker-b")
    with FakeBroker() as stranger, pytest.raises(Occupied, match="another CA"):
        enrol(enrolled, stranger)
    assert content(enrolled) == before


def test_a_dead_identity_gives_way_to_any(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    with FakeBroker() as other:
        value = bundle.parse(other.bundle("worker-b"))
        assert enrolment.enrol(enrolled, value, now=now(25)).outcome is Outcome.ENROLLED
        assert enrolled.read().url == other.url
        assert enrolment.renew(enrolled, now=now(), force=True).outcome is Outcome.RENEWED


def test_a_key_that_waits_for_one_ticket_is_not_sent_with_another(broker: FakeBroker, folder: IdentityFolder) -> None:
    broker.drops["/enrol"] = 1
    with pytest.raises(NotReachable):
        enrol(folder, broker)
    enrol(folder, broker)
    assert len(keys_asked_for(broker)) == 2


# --- refusals ---------------------------------------------------------------------------------------------------


def test_renewing_without_an_identity_says_how_to_get_one(folder: IdentityFolder) -> None:
    with pytest.raises(NoIdentity) as failure:
        enrolment.renew(folder, now=now())
    assert "lever agent enrol" in failure.value.hint
    assert not folder.path.exists()


def test_a_revoked_agent_is_told_that_only_the_operator_can_help(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    broker.revoked.add("worker-a")
    with pytest.raises(Barred, match="revoked, frozen, paused, replaced") as failure:
        enrolment.renew(enrolled, now=now(), force=True)
    assert "lever agent invite worker-a" in failure.value.hint


def test_an_ended_certificate_is_told_by_its_own_words(broker: FakeBroker, folder: IdentityFolder) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=2)
    broker.issue = lambda key, cn, generation: broker.ca.sign_agent(key, cn, generation, begin=long_ago)
    enrol(folder, broker)
    with pytest.raises(Barred, match="only a new invite helps"):
        enrolment.renew(folder, now=now())


Issue = Callable[[FakeBroker, Any], x509.Certificate]
OTHER_KEY = ec.generate_private_key(ec.SECP256R1()).public_key()
HOSTILE: dict[str, tuple[str, Issue]] = {
    "another key": ("another key", lambda b, key: b.ca.sign_agent(OTHER_KEY, "worker-a", 1)),
    "a key of another kind": (
        "another key",
        lambda b, key: b.ca.sign_agent(ed25519.Ed25519PrivateKey.generate().public_key(), "worker-a", 1),
    ),
    "another name": ("is for worker-b", lambda b, key: b.ca.sign_agent(key, "worker-b", 1)),
    "no agent's name": ("1 to 63 of", lambda b, key: b.ca.sign(key, "Worker A\x1b[2J")),
    "two names that disagree": (
        "disagree",
        lambda b, key: b.ca.sign(
            key, "worker-a", x509.UniformResourceIdentifier("lever://demo/agent/worker-b/generation/1")
        ),
    ),
    "another CA": ("instance's own CA", lambda b, key: FakeCa().sign_agent(key, "worker-a", 1)),
    "another CA of the same name": ("instance's own CA", lambda b, key: FakeCa().sign_agent(key, "worker-a", 1)),
    "an authority": ("an authority's", lambda b, key: b.ca.sign(key, "worker-a", ca=True)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_certificate_that_is_not_ours_is_refused(broker: FakeBroker, enrolled: IdentityFolder, case: str) -> None:
    words, issue = HOSTILE[case]
    broker.issue = lambda key, cn, generation: issue(broker, key)
    before = content(enrolled)
    for act in enrol_or_renew(enrolled, broker):
        with pytest.raises(Unverified, match=words):
            act()
    assert content(enrolled) == before


@pytest.mark.parametrize(
    "cert",
    [
        "",
        "no pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "\u00e4",
        17,
        None,
    ],
)
def test_an_answer_without_a_certificate_is_refused(broker: FakeBroker, folder: IdentityFolder, cert: object) -> None:
    broker.answers["/enrol"] = (200, json.dumps({"cert": cert}).encode(), {})
    with pytest.raises(Unverified):
        enrol(folder, broker)
    assert folder.find() is None


def test_two_certificates_in_an_answer_are_refused(broker: FakeBroker, folder: IdentityFolder) -> None:
    broker.answers["/enrol"] = (200, json.dumps({"cert": broker.ca.pem * 2}).encode(), {})
    with pytest.raises(Unverified, match="expected one, found 2"):
        enrol(folder, broker)
