"""What has an effect is executed once for each signature, and only as it was signed."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from broker.errors import Reason
from broker.rules import consume
from broker.rules.authority import closing, orders
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.judgement import Unresolved
from broker.rules.authority.passage import Claimed
from broker.wire import strict_json
from broker.wire.act_records import ActEnded, CallClaimed, RequestOpened
from broker.wire.records import ClockAccepted, DirectiveAdmitted
from broker.wire.statement import Approval, BoundAction, Instruction
from broker.wire.verified import NOBODY
from tests.authority.table import AT, SEND, STARTED, Table, tool
from tests.proof.cast import FIRST_ALONE, SECOND_KEY, A, B, caller, digest

pytestmark = pytest.mark.promise("P20")


def ended(table: Table) -> tuple[str, str]:
    fact = table.last(ActEnded)
    return str(fact.state), str(fact.reason)


def test_one_act_of_two_identical_calls_lets_one_through(table: Table) -> None:
    table.act()
    assert isinstance(table.call("send", SEND), Claimed)
    assert isinstance(table.call("send", SEND), ConsentRequired), "while the first still runs"


def test_two_acts_of_one_digest_are_two_executions(table: Table) -> None:
    table.act()
    table.say(table.statement(BoundAction("tool_call", "s", "send", SEND), id="second"))
    table.tool_call("send", SEND)
    for _ in range(2):
        table.done("send", SEND)
    assert isinstance(table.call("send", SEND), ConsentRequired)


def test_an_approval_counts_for_tier_and_class_at_once(table: Table) -> None:
    table.act("ask", {"n": 1})
    table.done("ask", {"n": 1})


def test_what_was_provably_not_sent_can_be_tried_again_within_its_window(table: Table) -> None:
    act = table.act()
    calls = table.run().calls
    table.end(table.call("send", SEND), "not_dispatched")
    assert (table.the_act(act).state, table.the_act(act).claim, table.run().calls) == ("active", "", calls)
    table.done("send", SEND)
    second = table.act("send", SEND | {"text": "again"})
    table.end(table.call("send", SEND | {"text": "again"}), "not_dispatched")
    table.later(600)
    assert isinstance(table.call("send", SEND | {"text": "again"}), ConsentRequired)
    table.lapse()
    assert table.the_act(second).state == "expired"


@pytest.mark.parametrize("outcome", ["done", "failed", "outcome_unknown"])
def test_every_other_end_spends_it(table: Table, outcome: str) -> None:
    act = table.act()
    claimed = table.call("send", SEND)
    assert table.end(claimed, outcome) == outcome
    assert table.end(claimed, "not_dispatched") == outcome, "an end is said once"
    assert table.the_act(act).state == "claimed"
    assert isinstance(table.call("send", SEND), ConsentRequired)


@pytest.mark.promise("P23")
def test_a_crash_between_intent_and_outcome_leaves_it_unknown_and_spent(table: Table) -> None:
    table.act()
    claimed = table.call("send", SEND, call_id="one")
    table.restart()
    assert table.claim(claimed).outcome == "outcome_unknown"
    assert table.call("send", SEND, call_id="one").claim.outcome == "outcome_unknown"
    assert isinstance(table.call("send", SEND), ConsentRequired)
    assert table.take(closing.settle(table.book, table.at, started=STARTED)) == 0, "once"
    note = {"claim": claimed.claim, "note": "it was sent: looked it up"}
    assert table.take(orders.note_outcome(table.book, table.at, order=table.order("outcome_note"), **note)) is True
    assert table.claim(claimed).noted


def test_only_an_unknown_outcome_is_noted(table: Table) -> None:
    done = table.done("list")
    for claim in (done.claim, "nothing"):
        decision = orders.note_outcome(table.book, table.at, order=table.order("outcome_note"), claim=claim, note="")
        assert table.take(decision) == Reason.UNKNOWN_REQUEST


def test_an_act_that_expires_while_its_call_runs_is_finished(table: Table) -> None:
    act = table.act()
    claimed = table.call("send", SEND)
    table.later(3600)
    table.lapse()
    assert table.end(claimed) == "done"
    assert table.the_act(act).state == "claimed"


@pytest.mark.parametrize(("opens_s", "lasts_s", "at_s", "passes"), [
    (60, 600, 59, False), (60, 600, 60, True), (0, 600, 599, True), (0, 600, 600, False),
])  # fmt: skip
def test_an_act_holds_from_not_before_until_expires_at(
    table: Table, opens_s: int, lasts_s: int, at_s: int, passes: bool
) -> None:
    table.tool_call("send", SEND, consumed=not opens_s, opens_s=opens_s, lasts_s=lasts_s)
    if opens_s:
        request = table.asked("send", SEND)
        one = table.book.ledger.requests[request]
        action = Approval(request, "s", "send", one.account, one.resources, one.args_digest, one.tool_digest)
        table.say(table.statement(action, opens_s=opens_s, lasts_s=lasts_s))
    table.later(at_s)
    assert isinstance(table.call("send", SEND), Claimed) is passes


# --- bound, field by field

OTHER = {
    "tool": "t", "op": "ask", "account": "other", "resources": ("id:ann", "id:bob"),
    "args_digest": digest("other"), "tool_digest": digest("other"), "request_id": "0" * 32,
}  # fmt: skip


@pytest.mark.parametrize("field", OTHER)
def test_an_approval_with_one_field_changed_is_refused(table: Table, field: str) -> None:
    request = table.asked("send", SEND)
    assert isinstance(table.approve(request, **{field: OTHER[field]}), Reason)
    assert isinstance(table.call("send", SEND), ConsentRequired)


@pytest.mark.parametrize("resources", [(), ("id:bob",), ("id:ann", "id:ann"), ("host:ann",)])
def test_resources_are_compared_whole(table: Table, resources: tuple[str, ...]) -> None:
    assert table.approve(table.asked("send", SEND), resources=resources) == Reason.APPROVAL_DIFFERS


@pytest.mark.parametrize("target", [{"cn": B}, {"generation": 2}])
def test_an_approval_for_another_agent_or_enrolment_is_refused(table: Table, target: dict[str, Any]) -> None:
    assert table.approve(table.asked("send", SEND), target=target) in (
        Reason.APPROVAL_DIFFERS,
        Reason.GENERATION_STALE,
    )
    assert isinstance(table.call("send", SEND), ConsentRequired)
    assert isinstance(table.call("send", SEND, cn=B), ConsentRequired)


OTHERS: list[tuple[str, Any]] = [
    ("send", SEND | {"text": "hello "}),
    ("send", SEND | {"to": ["bob"]}),
    ("send", SEND | {"to": ["ann", "bob"]}),
    ("send", SEND | {"more": None}),
    ("ask", SEND),
]


@pytest.mark.parametrize(("name", "arguments"), OTHERS)
def test_an_act_serves_no_other_call(table: Table, name: str, arguments: Any) -> None:
    table.act()
    answer = table.call(name, arguments)
    assert isinstance(answer, ConsentRequired)
    assert answer.other_arguments is (name == "send"), "and says that what was signed was for others"
    table.done("send", SEND)


def test_nor_another_agent_or_enrolment(table: Table) -> None:
    table.act()
    assert isinstance(table.call("send", SEND, cn=B), ConsentRequired)
    table.enrol(A)
    assert table.call("send", SEND, generation=1) == Reason.GENERATION_STALE
    assert isinstance(table.call("send", SEND), ConsentRequired)


@pytest.mark.promise("P36")
@pytest.mark.parametrize(("signed", "called", "same"), [
    ('{"n":1}', '{"n":1.0}', True), ('{"n":1}', '{"n":1e0}', True), ('{"n":1}', '{"n":"1"}', False),
    ('{"n":1}', '{"n":true}', False), ('{"n":0.1}', '{"n":0.10}', True), ('{"n":-0}', '{"n":0}', True),
    ('{"a":1,"b":{"c":2,"d":3}}', '{"b":{"d":3,"c":2},"a":1}', True), ('{"a":[1,2]}', '{"a":[2,1]}', False),
    ('{"a":"\\u00e9"}', '{"a":"é"}', True), ('{"a":"e\\u0301"}', '{"a":"é"}', False), ('{"a":null}', "{}", False),
])  # fmt: skip
def test_order_and_spelling_are_one_and_types_are_not(table: Table, signed: str, called: str, same: bool) -> None:
    first, second = (strict_json.parse(each.encode(), "arguments") for each in (signed, called))
    table.act("ask", first)
    answer = table.call("ask", second)
    assert isinstance(answer, Claimed) is same
    if same:
        assert digest_of(answer.arguments) == table.last(RequestOpened).args_digest


def digest_of(raw: bytes) -> bytes:
    return sha256(raw).digest()


# --- the world changes between approval and call


def test_a_policy_that_denies_it_now_voids_it_for_good(table: Table) -> None:
    act = table.act()
    table.apply(tiers={"allowed": [], "denied": ["s.send"]})
    assert table.call("send", SEND) == Reason.DENIED_BY_RULE
    assert ended(table) == ("invalidated", "denied_by_rule")
    table.apply()
    assert isinstance(table.call("send", SEND), ConsentRequired), "it does not wait for better days"
    assert table.the_act(act).state == "invalidated"


@pytest.mark.parametrize("entry", [
    {"class": "mutation", "account": "other", "resources": [{"pointer": "/to/*", "kind": "id"}]},
    {"class": "mutation", "resources": [{"pointer": "/to/*", "kind": "id"}]},
    {"class": "mutation", "account": "mail", "resources": [{"pointer": "/to/*", "kind": "host"}]},
    {"class": "mutation", "account": "mail", "resources": [{"pointer": "/text", "kind": "id"}]},
])  # fmt: skip
def test_a_policy_by_which_it_is_another_act_voids_it(table: Table, entry: dict[str, Any]) -> None:
    table.act()
    table.apply(tools={"s.send": entry}, accounts={"other": {}})
    assert isinstance(table.call("send", SEND), ConsentRequired)
    assert ended(table) == ("invalidated", "approval_differs")


def test_a_rule_that_denies_these_arguments_voids_it(table: Table) -> None:
    table.act()
    rules = {"rules": [{"pointer": "/text", "max_length": 2}]}
    table.apply(tools={"s.send": {"class": "mutation", "account": "mail"} | rules})
    assert table.call("send", SEND) == Reason.DENIED_BY_ARGUMENT
    assert ended(table) == ("invalidated", "denied_by_argument")


@pytest.mark.parametrize("change", [
    {"tiers": {"allowed": ["s.send"]}}, {"tiers": {"allowed": [], "approval_required": ["s.send"]}},
    {"accounts": {"other": {}}}, {"budgets": {"max_tool_calls": 1000}},
])  # fmt: skip
def test_a_looser_or_unrelated_policy_changes_nothing(table: Table, change: dict[str, Any]) -> None:
    table.act()
    table.apply(**change)
    table.done("send", SEND)


def test_a_layer_of_the_agents_own_that_leaves_the_tool_out_denies_it(table: Table) -> None:
    table.act()
    table.apply(f"agent/{A}", tiers={"allowed": ["s.list"], "approval_required": [], "denied": []})
    assert table.call("send", SEND) == Reason.DENIED_BY_DEFAULT
    assert isinstance(table.call("send", SEND, cn=B), ConsentRequired), "the other stands under no layer"


@pytest.mark.promise("P22")
def test_a_changed_definition_voids_it_also_once_it_is_accepted(table: Table) -> None:
    act = table.act()
    changed = tool("send", description="Sends it elsewhere.")
    table.resolved["s.send"] = changed
    assert table.call("send", SEND) == Reason.TOOL_CHANGED
    table.accept(changed)
    assert isinstance(table.call("send", SEND), ConsentRequired)
    assert table.the_act(act).state == "invalidated"


def test_a_server_that_does_not_answer_for_now_voids_nothing(table: Table) -> None:
    table.act()
    resolved, table.resolved["s.send"] = table.resolved["s.send"], Unresolved.SERVER_UNAVAILABLE
    assert table.call("send", SEND) == Reason.SERVER_UNAVAILABLE
    table.resolved["s.send"] = resolved
    table.done("send", SEND)


def test_a_key_taken_from_allowed_signers_cancels_what_it_signed(table: Table) -> None:
    table.approve(table.asked("send", SEND), signer=SECOND_KEY)
    table.uphold(FIRST_ALONE)
    assert ended(table) == ("invalidated", "key_not_standing")
    assert isinstance(table.call("send", SEND), ConsentRequired)


def test_a_signature_that_cannot_be_checked_for_now_is_neither_spent_nor_asked_for_anew(table: Table) -> None:
    table.act()
    requests = table.count(RequestOpened)
    standing, table.standing = table.standing, NOBODY
    assert table.call("send", SEND) == Reason.SIGNERS_UNAVAILABLE
    assert table.count(RequestOpened) == requests
    table.standing = standing
    table.done("send", SEND)


def test_a_restart_keeps_it_and_a_clock_set_back_does_not(table: Table) -> None:
    table.act()
    table.restart()
    table.done("send", SEND)
    table.act()
    table.at = AT
    table.write(ClockAccepted(AT))
    assert table.call("send", SEND) == Reason.RUN_STOPPED
    table.take(orders.new_run(table.book, table.at, order=table.order("run_new"), cn=A, run="next"))
    assert isinstance(table.call("send", SEND), ConsentRequired)


# --- one call, many targets


def test_every_target_of_a_call_is_in_what_is_signed(table: Table) -> None:
    many = [f"person-{number}" for number in range(300)]
    table.act("send", {"to": many})
    asked = table.last(RequestOpened).resources
    assert asked == tuple(f"id:{name}" for name in many)
    table.done("send", {"to": many})
    assert table.last(CallClaimed).resources == asked


@pytest.mark.parametrize("arguments", [{"text": "to nobody"}, {"to": []}, {"to": [None]}])
def test_a_mutation_that_names_no_target_is_refused(table: Table, arguments: Any) -> None:
    answer = table.call("send", arguments)
    assert answer == Reason.MISSING_RESOURCE
    assert not table.book.ledger.requests


# --- what makes an act, and what does not


def test_a_consumed_tool_call_is_held_for_exactly_this_agent_tool_and_arguments(table: Table) -> None:
    table.tool_call("send", SEND)
    for wrong in (SEND | {"text": "other"}, {"to": ["bob"], "text": "hello"}):
        assert isinstance(table.call("send", wrong), ConsentRequired)
    table.done("send", SEND)
    assert isinstance(table.call("send", SEND), ConsentRequired)


def test_before_it_is_consumed_it_allows_nothing(table: Table) -> None:
    table.tool_call("send", SEND, consumed=False)
    assert isinstance(table.call("send", SEND), ConsentRequired)


@pytest.mark.promise("P37")
def test_what_a_manager_consumed_serves_no_worker(table: Table) -> None:
    table.tool_call("send", SEND, cn=B)
    assert isinstance(table.call("send", SEND), ConsentRequired)
    table.done("send", SEND, cn=B)


@pytest.mark.parametrize("name", ["drop", "unlisted"])
def test_a_signature_makes_no_denied_tool_callable(table: Table, name: str) -> None:
    assert table.tool_call(name, {}) in (Reason.DENIED_BY_RULE, Reason.DENIED_BY_DEFAULT)
    table.apply(tiers={"allowed": [f"s.{name}"], "denied": []})
    table.tool_call(name, {})
    table.apply()
    assert table.call(name) in (Reason.DENIED_BY_RULE, Reason.DENIED_BY_DEFAULT)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("kind", ["tool_call", "approval"])
@pytest.mark.parametrize(("name", "arguments", "reason"), [
    ("drop", {}, Reason.DENIED_BY_RULE), ("unlisted", {}, Reason.DENIED_BY_DEFAULT),
    ("send", {"text": "to nobody"}, Reason.MISSING_RESOURCE),
])  # fmt: skip
def test_nothing_that_is_signed_for_a_call_that_the_policy_refuses_is_delivered(
    table: Table, kind: Any, name: str, arguments: Any, reason: Reason
) -> None:
    assert table.say(table.statement(BoundAction(kind, "s", name, arguments))) == reason
    assert table.count(DirectiveAdmitted) == 0
    assert table.say(table.statement(BoundAction(kind, "s", "send", SEND))) in table.book.directives


def test_an_instruction_and_an_approval_of_no_request_allow_nothing(table: Table) -> None:
    for action in (
        Instruction('Call s__send with {"to":["ann"],"text":"hello"}.'),
        BoundAction("approval", "s", "send", SEND),
    ):
        id = table.say(table.statement(action))
        decision = consume.consume(
            table.book, table.at, caller=caller(A, 1), raw_id=id, attempt="", standing=table.standing, repeat_s=60
        )
        assert isinstance(table.take(decision), bytes)
        assert isinstance(table.call("send", SEND), ConsentRequired)
