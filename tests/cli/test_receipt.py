"""`lever receipt`: made from the journal each time; what in it is untrue is found, and nothing true is doubted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.wire import envelope
from broker.wire.act_records import ActEnded, AllStopped, LeaseClosed, PolicyApplied, RequestEnded, RunStopped
from broker.wire.names import NAMESPACE_ADMIN
from broker.wire.records import BrokerStarted, Draft
from broker.wire.statement import LeaseAction
from lever.exits import Exit
from tests.cli import said
from tests.cli.conftest import Cli
from tests.cli.past import POLICY, READ, WRITE, Past, an_act, with_fact
from tests.cli.said import HOSTILE, a_definition, json_lines, pin, undisguised
from tests.cli.test_directive import body_for, signed_by
from tests.fakes.operator_socket import operator_socket
from tests.rig import make_key


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def verified(cli: Cli, instance: Path, *words: str | Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """How it ended, and each verdict by claim."""
    done = cli("receipt", "verify", *words, "--json", "--config", instance)
    assert undisguised(done.stdout + done.stderr)
    return done.status, {one["claim"]: one for one in json_lines(done.stdout)}


@pytest.mark.promise("P20")
def test_a_receipt_says_who_allowed_what_and_when_by_which_bytes(cli: Cli, instance: Path) -> None:
    past = an_act(instance)
    past.written()
    policy, gesture = f"policy {POLICY.digest.hex()[:12]}", "no gesture: the key can't tell"
    verdict = {"claim": "claim-1", "ok": True, "problems": [], "dropped": []}
    gestures = {"act": gesture, policy: gesture, "tools of files": gesture}
    assert verified(cli, instance) == (0, {"claim-1": verdict | {"gestures": gestures}})
    words = cli("receipt", "verify", "--config", instance)
    assert (words.stdout, words.stderr) == (
        f"ok   claim-1  files.write of worker-a/3\n     act: {gesture}\n     {policy}: {gesture}\n"
        f"     tools of files: {gesture}\n",
        "the one receipt is ok\n",
    )
    listed = cli("receipt", "list", "--config", instance).stdout.splitlines()
    assert listed[1].split() == ["claim-1", "2027-01-15T08:00:04Z", "worker-a/3", "files.write", "act", "done"]
    told = json.loads(cli("receipt", "show", "claim-1", "--json", "--config", instance).stdout)
    consent = told["consent"]
    assert (consent["id"], consent["asked_at"], consent["granted_at"], consent["fingerprint"]) == (
        "act-1", "2027-01-15T08:00:02Z", "2027-01-15T08:00:03Z", past.fingerprint
    )  # fmt: skip
    assert told["policies"][0]["digest"] == POLICY.digest.hex()
    shown = cli("receipt", "show", "claim-1", "--config", instance).stdout
    for text in (past.fingerprint, told["args_digest"], consent["statement_digest"], '    | argument  "path": "a.txt"'):
        assert text in shown
    assert cli("receipt", "show", "claim-2", "--config", instance).status == Exit.REFUSED


@pytest.mark.promise("P25")
def test_nothing_in_a_receipt_can_disguise_a_line(cli: Cli, instance: Path) -> None:
    given = {f"na{HOSTILE}me": HOSTILE, "path": HOSTILE}
    past = Past(instance, instance / "keys" / "operator-1").began()
    resources = (f"id:{HOSTILE}",)
    past.then(2, past.asked(given, resources)).then(3, past.granted(given, resources))
    past.then(4, past.claimed("act/act-1", given, resources=resources)).then(5, past.ended("outcome_unknown"))
    past.then(6, *past.noted(HOSTILE)).written()
    for words in (("list",), ("show", "claim-1"), ("verify",), ("show", "claim-1", "--json")):
        done = cli("receipt", *words, "--config", instance)
        assert done.status == 0, done.stdout + done.stderr
        assert undisguised(done.stdout + done.stderr)
        assert not any(line.startswith("  account") for line in done.stdout.splitlines())


GIVEN = {"path": "a.txt"}
OTHER = {"path": "b.txt"}


def other_call(past: Past) -> None:
    past.then(2, past.granted(GIVEN)).then(3, past.claimed("act/act-1", OTHER))


def other_tool(past: Past) -> None:
    """The record of the grant agrees with the claim, and neither with what was signed."""
    past.then(2, past.granted(GIVEN, tool="delete")).then(3, past.claimed("act/act-1", GIVEN))


def other_arguments_signed(past: Past) -> None:
    granted = past.granted(GIVEN)
    past.then(2, Draft(granted.fact, past.granted(OTHER).payloads)).then(3, past.claimed("act/act-1", GIVEN))


def other_agent(past: Past) -> None:
    past.then(2, past.granted(GIVEN)).then(3, with_fact(past.claimed("act/act-1", GIVEN), generation=4))


def spent_twice(past: Past) -> None:
    past.then(2, past.granted(GIVEN)).then(3, past.claimed("act/act-1", GIVEN, "claim-0")).then(
        4, past.ended(claim="claim-0")
    )
    past.then(5, past.claimed("act/act-1", GIVEN))


def another_acts_bytes(past: Past) -> None:
    """What was signed for one act stands below two."""
    granted = past.granted(GIVEN)
    past.then(2, granted).then(3, past.claimed("act/act-1", GIVEN, "claim-0"))
    past.then(4, with_fact(granted, act="act-2")).then(5, past.claimed("act/act-2", GIVEN))


def policy_ordered_again(past: Past) -> None:
    """The envelope is good, but was used before."""
    past.then(2, *past.entries[0][1]).then(3, past.claimed("automatic", GIVEN))


def noted_by_nobody(past: Past) -> None:
    past.then(3, past.claimed("automatic", GIVEN)).then(4, past.ended("outcome_unknown"), past.noted("x")[1])


def noted_otherwise(past: Past) -> None:
    past.then(3, past.claimed("automatic", GIVEN)).then(4, past.ended("outcome_unknown"))
    past.then(5, past.noted("It was done.")[0], past.noted("It was not done.")[1])


def note_without_bytes(past: Past) -> None:
    past.then(3, past.claimed("automatic", GIVEN)).then(4, past.ended("outcome_unknown"))
    ordered, note = past.noted("x")
    past.then(5, ordered, Draft(note.fact))


def note_on_another_call(past: Past) -> None:
    past.then(3, past.claimed("automatic", GIVEN)).then(4, past.ended("outcome_unknown"))
    past.then(5, past.noted("x", "claim-2")[0], past.noted("x")[1])


def too_late(past: Past) -> None:
    past.then(2, past.granted(GIVEN)).then(600, past.claimed("act/act-1", GIVEN))


def ended_before(past: Past) -> None:
    past.then(2, past.granted(GIVEN)).then(3, ActEnded("act-1", "revoked", "revoked"))
    past.then(4, past.claimed("act/act-1", GIVEN))


def never_granted(past: Past) -> None:
    past.then(3, past.claimed("act/act-1", GIVEN))


def signature_of_another_text(past: Past) -> None:
    granted = past.granted(GIVEN)
    past.then(2, Draft(granted.fact, (granted.payloads[0], past.said("act-1", LeaseAction("mail", 60, 2))[1])))
    past.then(3, past.claimed("act/act-1", GIVEN))


def another_key_recorded(past: Past) -> None:
    past.then(2, with_fact(past.granted(GIVEN), fingerprint="SHA256:other")).then(3, past.claimed("act/act-1", GIVEN))


def no_such_policy(past: Past) -> None:
    past.then(3, with_fact(past.claimed("automatic", GIVEN), policies=("ab" * 32,)))


def policy_replaced(past: Past) -> None:
    other = said.a_policy(name="other")
    past.then(2, Draft(PolicyApplied("instance", other.digest, past.fingerprint), (other.raw,)))
    past.then(3, past.claimed("automatic", GIVEN))


def policy_that_nobody_signed(past: Past) -> None:
    past.then(2, Draft(PolicyApplied("instance", POLICY.digest, past.fingerprint), (POLICY.raw,)))
    past.then(3, past.claimed("automatic", GIVEN))


def act_that_nobody_signed(past: Past) -> None:
    past.then(2, Draft(past.granted(GIVEN).fact)).then(3, past.claimed("act/act-1", GIVEN))


def everything_stopped(past: Past) -> None:
    past.then(2, AllStopped("uid:0")).then(3, past.claimed("automatic", GIVEN))


def run_over(past: Past) -> None:
    past.then(2, RunStopped("run-1", "operator")).then(3, past.claimed("automatic", GIVEN))


def other_bytes(past: Past) -> None:
    claimed = past.claimed("automatic", GIVEN)
    past.then(3, Draft(claimed.fact, past.claimed("automatic", OTHER).payloads))


def lease_over_by_count(past: Past) -> None:
    past.then(2, past.lease())
    for number in (2, 3):
        past.then(number, past.claimed("lease/lease-1", GIVEN, f"claim-{number}"))
    past.then(4, past.claimed("lease/lease-1", GIVEN))


def lease_over_by_time(past: Past) -> None:
    past.then(2, past.lease()).then(3, past.claimed("lease/lease-1", GIVEN, "claim-0"))
    past.then(63, past.claimed("lease/lease-1", GIVEN))


def lease_never_begun(past: Past) -> None:
    past.then(2, past.lease()).then(62, past.claimed("lease/lease-1", GIVEN))


def lease_closed(past: Past) -> None:
    past.then(2, past.lease()).then(3, LeaseClosed("lease-1", "operator", 0, 0))
    past.then(4, past.claimed("lease/lease-1", GIVEN))


def lease_of_a_broker_before(past: Past) -> None:
    past.then(2, past.lease()).then(3, BrokerStarted("1", 0)).then(4, past.claimed("lease/lease-1", GIVEN))


def lease_longer_than_signed(past: Past) -> None:
    past.then(2, past.lease(seconds=61)).then(3, past.claimed("lease/lease-1", GIVEN))


def lease_for_a_mutation(past: Past) -> None:
    past.then(2, past.lease())
    past.then(3, with_fact(past.claimed("lease/lease-1", GIVEN), tool_class="mutation"))


def automatic_mutation(past: Past) -> None:
    """The record agrees with the tool; only what the policy asks of it is left out."""
    past.then(3, with_fact(past.claimed("act/act-1", GIVEN), consent="automatic"))


def read_of_other_arguments(past: Past) -> None:
    past.then(2, past.lease()).then(3, past.claimed("lease/lease-1", OTHER))


def unaccepted_tool(past: Past) -> None:
    past.then(3, with_fact(past.claimed("automatic", GIVEN), tool_class="mutation", tool="files.drop_everything"))


def unlisted_tool(past: Past) -> None:
    drop = pin(a_definition("drop_everything"))
    past.then(2, *past.accepted(drop))
    past.then(3, with_fact(past.claimed("automatic", GIVEN), tool=drop.qualified, tool_digest=drop.digest))


def other_definition(past: Past) -> None:
    """Once accepted, but no more when the call was made."""
    past.then(2, *past.accepted(pin(a_definition("read", description="Other."))))
    past.then(3, past.claimed("automatic", GIVEN))


def tools_that_nobody_signed(past: Past) -> None:
    past.then(2, past.accepted(READ)[1]).then(3, past.claimed("automatic", GIVEN))


def tools_signed_in_another_turn(past: Past) -> None:
    ordered, accepted = past.accepted(READ)
    past.then(2, ordered).then(2, accepted).then(3, past.claimed("automatic", GIVEN))


def tools_signed_otherwise(past: Past) -> None:
    past.then(2, past.accepted(WRITE)[0], past.accepted(READ)[1]).then(3, past.claimed("automatic", GIVEN))


LIES: list[tuple[Callable[[Past], None], str]] = [
    (other_call, "the act was signed for another call"),
    (other_tool, "act: what was signed says another tool"),
    (other_arguments_signed, "act: what was signed says another digest of the arguments"),
    (other_agent, "the act was signed for another call"),
    (spent_twice, "the act was spent before, by claim claim-0"),
    (another_acts_bytes, "act: what was signed is for another agent, or another act"),
    (policy_ordered_again, "no signed envelope put its policy in force"),
    (noted_by_nobody, "no signed envelope noted what came of it"),
    (noted_otherwise, "note: what was signed is another note"),
    (note_without_bytes, "note: what was signed is another note"),
    (note_on_another_call, "note: what was signed is another note"),
    (too_late, "the act did not hold at that time"),
    (ended_before, "its consent was over"),
    (never_granted, "no record of the consent"),
    (signature_of_another_text, "act: "),
    (another_key_recorded, "act: another key signed than was recorded"),
    (no_such_policy, "a policy that it names was not in force"),
    (policy_replaced, "a policy that it names was not in force"),
    (policy_that_nobody_signed, "no signed envelope put its policy in force"),
    (act_that_nobody_signed, "its consent has no signed bytes"),
    (everything_stopped, "everything was stopped"),
    (run_over, "its run was over"),
    (other_bytes, "the bytes that it names are not its arguments"),
    (lease_over_by_count, "the lease was over by its operations"),
    (lease_over_by_time, "the lease was over by its time"),
    (lease_never_begun, "the lease was over by its time"),
    (lease_closed, "its consent was over"),
    (lease_of_a_broker_before, "its consent was over"),
    (lease_longer_than_signed, "lease: what was signed says another length"),
    (lease_for_a_mutation, "the lease was signed for other reads"),
    (automatic_mutation, "judged again, it needs a signed act: a mutation by the table"),
    (read_of_other_arguments, "judged again, it is refused: argument rule not met"),
    (unaccepted_tool, "nobody accepted its tool"),
    (unlisted_tool, "judged again, it is refused: denied by default: in no list"),
    (other_definition, "its tool's definition is not the one that was accepted"),
    (tools_that_nobody_signed, "no signed envelope accepted its tool"),
    (tools_signed_in_another_turn, "no signed envelope accepted its tool"),
    (tools_signed_otherwise, "tools of files: what was signed accepts something else"),
]


@pytest.mark.promise("P20", "P21")
@pytest.mark.parametrize(("lie", "words"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_journal_that_is_whole_and_says_something_untrue_is_found(
    cli: Cli, instance: Path, lie: Callable[[Past], None], words: str
) -> None:
    past = Past(instance, instance / "keys" / "operator-1").began()
    lie(past)
    past.written()
    assert cli("journal", "verify", instance).status == 0, "the chain alone does not show it"
    status, told = verified(cli, instance)
    assert status == Exit.VERIFICATION_FAILED
    bad = told.pop("claim-1")
    assert (bad["ok"], len(bad["problems"])) == (False, 1), bad
    assert bad["problems"][0].startswith(words)
    assert all(one["ok"] for one in told.values()), "no other is doubted"


def test_a_key_that_is_none_of_the_operators_is_not_believed(cli: Cli, instance: Path) -> None:
    key = make_key(cli.folder / "stranger")
    an_act(instance, key=key).written()
    status, told = verified(cli, instance)
    assert status == Exit.VERIFICATION_FAILED
    assert len(told["claim-1"]["problems"]) == 3, "neither the act, nor the policy, nor the tools"
    signers = cli.folder / "signers"
    public = key.with_name("stranger.pub").read_text()
    signers.write_text(f'operator@demo namespaces="lever-operator-*@lever.dev" {public}')
    signers.chmod(0o600)
    assert verified(cli, instance, "--signers", signers)[0] == 0, "with the keys of that time"


def test_what_a_crash_and_a_call_that_was_never_sent_leave_is_no_lie(cli: Cli, instance: Path) -> None:
    """Nor is what becomes void between an order and what it does."""
    past = Past(instance, instance / "keys" / "operator-1").began()
    ordered, accepted = past.accepted(READ)
    past.then(2, past.asked(GIVEN)).then(2, ordered, RequestEnded("request-1", "tool_changed"), accepted)
    past.then(2, past.granted(GIVEN)).then(3, past.claimed("act/act-1", GIVEN)).then(4, past.ended("not_dispatched"))
    past.then(5, past.claimed("act/act-1", GIVEN, "claim-2"))
    past.then(6, past.lease())
    for number in (3, 4, 5):
        past.then(number + 4, past.claimed("lease/lease-1", GIVEN, f"claim-{number}"))
        past.then(number + 4, past.ended("not_dispatched" if number == 3 else "done", f"claim-{number}"))
    past.then(60, past.claimed("automatic", GIVEN, "claim-6")).written()
    status, told = verified(cli, instance)
    assert (status, [*told]) == (0, [f"claim-{number}" for number in range(1, 7)])
    done = cli("receipt", "list", "--outcome", "running", "--config", instance)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["CLAIM", "claim-2", "claim-6"]
    assert cli("receipt", "list", "--outcome", "blah", "--config", instance).status == Exit.USAGE


@pytest.mark.promise("P27")
@pytest.mark.parametrize("where", ["journal", "payloads"])
def test_a_damaged_journal_has_no_receipts(cli: Cli, instance: Path, where: str) -> None:
    """In a record, and in the bytes of an answer, which no receipt shows."""
    state = an_act(instance).written()
    (segment,) = (state / where).glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[-50] ^= 1
    segment.write_bytes(raw)
    done = cli("receipt", "verify", "--config", instance)
    assert (done.status, done.stdout) == (Exit.CORRUPT_FILE, "")


def test_a_note_is_signed(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, admin_outcome_note=(200, {"noted": True})) as broker:
        words = ("receipt", "note", "claim-1", "It was done.", "--config", instance, "--socket", path)
        assert cli(*words).stdout == "noted claim-1\n"
    raw = signed_by(instance, "envelope", body_for(broker, "/admin/outcome_note"), NAMESPACE_ADMIN)
    value = envelope.read(raw)
    assert (value.op, value.params["claim"], value.params["note"]) == ("outcome_note", "claim-1", "It was done.")
