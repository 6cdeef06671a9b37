"""Every state with every input: each cell is written here, from the documents. A state or input without one fails.

A cell is the answer and, behind the colon, what is listed afterwards. `|` stands between words of which one holds.
"""

from __future__ import annotations

import inspect
import typing

import pytest

from broker.errors import Refused
from broker.rules import admin, admit, consume, identity
from broker.rules import sweep as sweeping
from broker.rules.entries import Enrolment
from broker.rules.lifecycle import Event, State, after
from broker.wire.records import Fact
from tests.model import situations
from tests.model.situations import Scene

Cells = dict[tuple[str, str], str]

LIFE = """
              consume           revoke            invalidate        expire
active        consumed          revoked           invalidated       expired
consumed      already_consumed  already_consumed  already_consumed  already_consumed
revoked       revoked           revoked           revoked           revoked
invalidated   invalidated       invalidated       invalidated       invalidated
expired       expired           expired           expired           expired
"""

DIRECTIVES = """
              consume                    again                      by_other
none          unknown_id:-               unknown_id:-               unknown_id:-
scheduled     not_yet_valid:scheduled    not_yet_valid:scheduled    other_target:scheduled
active        ok:consumed                ok:consumed                other_target:active
closed        expired:expired            expired:expired            other_target:expired
consumed      already_consumed:consumed  already_consumed:consumed  other_target:consumed
repeatable    already_consumed:consumed  ok:consumed                other_target:consumed
unrepeatable  already_consumed:consumed  already_consumed:consumed  other_target:consumed
revoked       revoked:revoked            revoked:revoked            other_target:revoked
invalidated   invalidated:invalidated    invalidated:invalidated    other_target:invalidated
expired       expired:expired            expired:expired            other_target:expired
forgotten     unknown_id:-               unknown_id:-               unknown_id:-

              check                    check_other
none          unknown_id:-             unknown_id:-
scheduled     not_yet_valid:scheduled  other_target:scheduled
active        active:active            other_target:active
closed        expired:expired          other_target:expired
consumed      consumed:consumed        other_target:consumed
repeatable    consumed:consumed        other_target:consumed
unrepeatable  consumed:consumed        other_target:consumed
revoked       revoked:revoked          other_target:revoked
invalidated   invalidated:invalidated  other_target:invalidated
expired       expired:expired          other_target:expired
forgotten     unknown_id:-             unknown_id:-

              by_former                     check_former
none          unknown_id:-                  unknown_id:-
scheduled     generation_stale:scheduled    generation_stale:scheduled
active        generation_stale:active       generation_stale:active
closed        generation_stale:expired      generation_stale:expired
consumed      generation_stale:consumed     generation_stale:consumed
repeatable    generation_stale:consumed     generation_stale:consumed
unrepeatable  generation_stale:consumed     generation_stale:consumed
revoked       generation_stale:revoked      generation_stale:revoked
invalidated   generation_stale:invalidated  generation_stale:invalidated
expired       generation_stale:expired      generation_stale:expired
forgotten     unknown_id:-                  unknown_id:-

              report                     revoke          send                 agent_pause       sweep
none          unknown_id:-               false:-         ok:active            true:-            ok:-
scheduled     not_yet_valid:scheduled    true:revoked    id_seen:scheduled    true:scheduled    ok:scheduled
active        not_consumed:active        true:revoked    id_seen:active       true:active       ok:active
closed        expired:expired            false:expired   id_seen:expired      true:expired      ok:expired
consumed      done:consumed              false:consumed  id_seen:consumed     true:consumed     ok:consumed
repeatable    done:consumed              false:consumed  id_seen:consumed     true:consumed     ok:consumed
unrepeatable  done:consumed              false:consumed  id_seen:consumed     true:consumed     ok:consumed
revoked       revoked:revoked            false:revoked   id_seen:revoked      true:revoked      ok:revoked
invalidated   invalidated:invalidated    false:invalidated  id_seen:invalidated  true:invalidated  ok:invalidated
expired       expired:expired            false:expired   id_seen:expired      true:expired      ok:expired
forgotten     unknown_id:-               false:-         ok:active            true:-            ok:-

              enrol                   agent_revoke              uphold
none          ok:-                    true:-                    ok:-
scheduled     ok:invalidated          true:invalidated          ok:invalidated
active        ok:invalidated          true:invalidated          ok:invalidated
closed        ok:expired              true:expired              ok:expired
consumed      ok:consumed             true:consumed             ok:consumed
repeatable    ok:consumed             true:consumed             ok:consumed
unrepeatable  ok:consumed             true:consumed             ok:consumed
revoked       ok:revoked              true:revoked              ok:revoked
invalidated   ok:invalidated          true:invalidated          ok:invalidated
expired       ok:expired              true:expired              ok:expired
forgotten     ok:-                    true:-                    ok:-

              clock                   restored
none          ok:-                    true:-
scheduled     ok:invalidated          true:invalidated
active        ok:invalidated          true:invalidated
closed        ok:invalidated          true:expired
consumed      ok:consumed             true:consumed
repeatable    ok:consumed             true:consumed
unrepeatable  ok:consumed             true:consumed
revoked       ok:revoked              true:revoked
invalidated   ok:invalidated          true:invalidated
expired       ok:expired              true:expired
forgotten     ok:-                    true:-
"""

AGENTS = """
          consume                       check                         report
unknown   unknown_id:-                  unknown_id:-                  unknown_id:-
enrolled  unknown_id:enrolled           unknown_id:enrolled           unknown_id:enrolled
paused    agent_paused:paused           agent_paused:paused           agent_paused:paused
revoked   agent_revoked:revoked         agent_revoked:revoked         agent_revoked:revoked
frozen    agent_frozen:frozen           agent_frozen:frozen           agent_frozen:frozen
replaced  unknown_id:enrolled           unknown_id:enrolled           unknown_id:enrolled
restored  agent_revoked:revoked         agent_revoked:revoked         agent_revoked:revoked
ended     certificate_expired:enrolled  certificate_expired:enrolled  certificate_expired:enrolled

          inbox                         renew                         fork
unknown   generation_stale:-            ok:enrolled                   certificate_forked:frozen
enrolled  ok:enrolled                   ok:enrolled                   certificate_forked:frozen
paused    agent_paused:paused           ok:paused                     certificate_forked:frozen
revoked   agent_revoked:revoked         agent_revoked:revoked         agent_revoked:revoked
frozen    agent_frozen:frozen           agent_frozen:frozen           agent_frozen:frozen
replaced  generation_stale:enrolled     generation_stale:enrolled     generation_stale:enrolled
restored  agent_revoked:revoked         agent_revoked:revoked         agent_revoked:revoked
ended     certificate_expired:enrolled  certificate_expired:enrolled  certificate_expired:enrolled

          send                   enrol        agent_revoke
unknown   unknown_agent:-        ok:enrolled  false:-
enrolled  ok:enrolled            ok:enrolled  true:revoked
paused    ok:paused              ok:paused    true:revoked
revoked   agent_revoked:revoked  ok:enrolled  false:revoked
frozen    agent_frozen:frozen    ok:enrolled  true:revoked
replaced  ok:enrolled            ok:enrolled  true:revoked
restored  agent_revoked:revoked  ok:enrolled  false:revoked
ended     ok:enrolled            ok:enrolled  true:revoked

          agent_pause   agent_resume    clock        restored
unknown   false:-       false:-         ok:-         true:-
enrolled  true:paused   false:enrolled  ok:enrolled  true:revoked
paused    false:paused  true:enrolled   ok:paused    true:revoked
revoked   true:revoked  false:revoked   ok:revoked   true:revoked
frozen    true:frozen   false:frozen    ok:frozen    true:revoked
replaced  true:paused   false:enrolled  ok:enrolled  true:revoked
restored  true:revoked  false:revoked   ok:revoked   true:revoked
ended     true:paused   false:enrolled  ok:enrolled  true:revoked
"""

TICKETS = """
            right           other_key       other_name                        invited_again
unknown     ticket_unknown  ticket_unknown  ticket_unknown                    ok
open        ok              ok              ticket_other_name                 bad_params
expired     ticket_expired  ticket_expired  ticket_other_name|ticket_expired  bad_params
spent       ok              ticket_spent    ticket_other_name|ticket_spent    bad_params
long_spent  ticket_spent    ticket_spent    ticket_other_name|ticket_spent    bad_params
void        ticket_unknown  ticket_unknown  ticket_unknown                    ok
shut_out    ticket_unknown  ticket_unknown  ticket_unknown                    ok
set_back    ticket_unknown  ticket_unknown  ticket_unknown                    ok
restored    ticket_unknown  ticket_unknown  ticket_unknown                    ok
"""

ENVELOPES = {
    "good": "",
    "oldest": "",
    "newest": "",
    "late": "envelope_stale",
    "early": "envelope_stale",
    "used": "envelope_replayed",
    "of another order": "wrong_operation",
    "of another instance": "wrong_instance",
}
ORDERS = ("take", "revoke", "invite", "revoke_agent", "pause", "resume")

RULES = {
    *(f"admin.{name}" for name in ORDERS), "admit.admit", "admit.selftest", "consume.consume", "consume.check",
    "consume.report", "consume.inbox", "consume.uphold", "identity.enrol", "identity.renew", "sweep.sweep",
}  # fmt: skip

RECORDS = {
    "directives": "DirectiveAdmitted DirectiveConsumed DirectiveRevoked RepeatRevoked DirectiveInvalidated "
    "DirectivesExpired DirectiveReported ConsumeRepeated ClockAccepted JournalRestored",
    "agents": "AgentInvited AgentEnrolled CertificateRenewed AgentFrozen AgentRevoked AgentPaused AgentResumed",
    "orders": "EnvelopeAccepted",
    # Their cells are in test_authority_cells.py; each is written at crashes in tests/proof/authority_story.py.
    "authority": "PolicyApplied ToolsAccepted ToolChanged RunStarted RunStopped RequestOpened RequestDenied "
    "RequestEnded CallFrozen ActGranted ActEnded LeaseOpened LeaseClosed CallClaimed CallEnded OutcomeNoted "
    "UsageReported AllStopped StopLifted",
    "no state": "InstanceCreated BrokerStarted BrokerStopped SelftestPassed RequestRefused SignersChanged "
    "PayloadsDropped PointerDelivered PointerFailed",
}


def cells(table: str) -> Cells:
    """A cell for each state and input of a table, which may stand in several blocks."""
    found: Cells = {}
    for block in table.strip("\n").split("\n\n"):
        head, *rows = [line.split() for line in block.splitlines()]
        for state, *words in rows:
            assert len(words) == len(head), f"a row with too few or too many cells: {state}"
            found |= {(state, event): word for event, word in zip(head, words, strict=True)}
    return found


def grid(states: typing.Iterable[str], inputs: typing.Iterable[str]) -> set[tuple[str, str]]:
    inputs = list(inputs)
    return {(state, event) for state in states for event in inputs}


def agrees(found: str, expected: str) -> bool:
    return all(got in want.split("|") for got, want in zip(found.split(":"), expected.split(":"), strict=True))


def test_every_state_and_every_input_has_its_cell() -> None:
    assert cells(LIFE).keys() == grid(map(str, State), map(str, Event))
    assert cells(DIRECTIVES).keys() == grid(situations.DIRECTIVES, situations.INPUTS)
    assert cells(AGENTS).keys() == grid(situations.AGENTS, situations.AGENT_INPUTS)
    assert cells(TICKETS).keys() == grid(situations.TICKETS, situations.REDEMPTIONS)
    assert set(map(str, State)) <= situations.DIRECTIVES.keys(), "a state of directives that no situation shows"
    assert set(map(str, Enrolment)) <= situations.AGENTS.keys(), "a state of agents that no situation shows"


def test_every_rule_and_every_record_is_one_that_these_tables_know() -> None:
    rules = set()
    for module in (admin, admit, consume, identity, sweeping):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            takes = list(inspect.signature(function).parameters)[:2] == ["book", "now"]
            if (
                takes
                and function.__module__ == module.__name__
                and "Decision" in str(function.__annotations__["return"])
            ):
                rules.add(f"{module.__name__.rsplit('.', 1)[1]}.{name}")
    assert rules == RULES
    assert {kind.__name__ for kind in typing.get_args(Fact)} == set(" ".join(RECORDS.values()).split())


def named(value: tuple[str, str] | str) -> str:
    """The cell itself, in a test's name."""
    return value if isinstance(value, str) else "-".join(value)


@pytest.mark.parametrize(("cell", "expected"), cells(LIFE).items(), ids=named)
def test_a_directive_moves_once(cell: tuple[str, str], expected: str) -> None:
    state, event = State(cell[0]), Event(cell[1])
    if state is State.ACTIVE:
        assert after(state, event) == expected
        return
    with pytest.raises(Refused) as refused:
        after(state, event)
    assert refused.value.reason == expected


@pytest.mark.parametrize(("cell", "expected"), cells(DIRECTIVES).items(), ids=named)
def test_a_directive_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Scene()
    situations.DIRECTIVES[cell[0]](scene)
    found = situations.INPUTS[cell[1]](scene)
    assert agrees(f"{found}:{scene.state()}", expected), f"{found}:{scene.state()}"


@pytest.mark.parametrize(("cell", "expected"), cells(AGENTS).items(), ids=named)
def test_an_agent_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Scene()
    situations.AGENTS[cell[0]](scene)
    found = situations.AGENT_INPUTS[cell[1]](scene)
    assert f"{found}:{scene.agent(scene.a['cn'])}" == expected


@pytest.mark.parametrize(("cell", "expected"), cells(TICKETS).items(), ids=named)
def test_a_ticket_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Scene()
    situations.TICKETS[cell[0]](scene)
    assert agrees(situations.REDEMPTIONS[cell[1]](scene), expected)


@pytest.mark.parametrize("op", ORDERS)
@pytest.mark.parametrize("case", ENVELOPES)
def test_an_envelope_in_each_situation(case: str, op: str) -> None:
    scene = Scene()
    assert situations.ordered(scene, op, case) == (ENVELOPES[case] or situations.ORDERED[op])
