"""Compares what clients were told with what restarted daemons and the journal say. Pure.

Only what was told counts: a request whose answer was lost may have been carried out or not, and either is right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from tests.proof.call_rules import CALL_RULES
from tests.proof.signer import text_of
from tests.proof.told import LOST, History, Told
from tests.proof.tool_desk import arguments

Rule = Callable[[History], Iterator[str]]
_ENDS = {
    "directive_consumed": "consumed",
    "directive_revoked": "revoked",
    "directive_invalidated": "invalidated",
    "directives_expired": "expired",
}


def violations(history: History) -> list[str]:
    """Every broken promise, in words; empty when all were kept."""
    return [f"{rule.__name__}: {words}" for rule in RULES for words in rule(history)]


# --- the chain ----------------------------------------------------------------------------------------------------


def chain_intact(history: History) -> Iterator[str]:
    """After each end the journal is whole, and what was there stays there: the head of each life is in the last one."""
    digests = {entry.seq - 1: entry.prev for entry in history.journal}
    last, seen = len(history.journal), 0
    for restart in history.restarts:
        yield from (f"life {restart.life}: {problem}" for problem in restart.problems)
        if not restart.records and not restart.problems:
            continue
        if restart.records < seen:
            yield f"life {restart.life}: {restart.records} records, {seen} before"
        if restart.records > last or (restart.records < last and digests[restart.records] != restart.head):
            yield f"life {restart.life}: its record {restart.records} is not in the journal any more"
        seen = restart.records


def every_end_once(history: History) -> Iterator[str]:
    """By the records alone: one admission for an id, before its one end."""
    ends: dict[str, str] = {}
    for entry in history.journal:
        if entry.kind == "directive_admitted":
            if entry.fields["id"] in ends:
                yield f"record {entry.seq}: {entry.fields['id']} was admitted before"
            ends[entry.fields["id"]] = ""
        elif entry.kind in _ENDS:
            for id in entry.fields.get("ids") or [entry.fields["id"]]:
                if ends.get(id) != "":
                    yield f"record {entry.seq}: {id} is {ends.get(id)}, and now {_ENDS[entry.kind]}"
                ends[id] = _ENDS[entry.kind]


def generations_monotone(history: History) -> Iterator[str]:
    """One more with each enrolment, in the records; never fewer in what restarted daemons say."""
    newest: dict[str, int] = defaultdict(int)
    for entry in history.entries("agent_enrolled"):
        cn, generation = entry.fields["cn"], entry.fields["generation"]
        if generation != newest[cn] + 1:
            yield f"record {entry.seq}: {cn} from {newest[cn]} to {generation}"
        newest[cn] = generation
    seen: dict[str, int] = defaultdict(int)
    for restart in history.restarts:
        for cn, (generation, state) in restart.seen.agents.items():
            if generation < seen[cn]:
                yield f"life {restart.life}: {cn} is at {generation}, was at {seen[cn]}"
            if state == "frozen":
                yield f"life {restart.life}: {cn} is frozen, and nobody copied it"
            seen[cn] = generation


# --- what was acknowledged ----------------------------------------------------------------------------------------

_KINDS = {
    "send": "directive_admitted",
    "revoke": "directive_revoked",
    "consume": "directive_consumed",
    "invite": "agent_invited",
    "enrol": "agent_enrolled",
    "renew": "certificate_renewed",
    "agent_revoke": "agent_revoked",
    "approve": "act_granted",
    "lease": "lease_opened",
    "deny": "request_denied",
    "act_revoke": "act_ended",
    "lease_close": "lease_closed",
    "run_new": "run_started",
    "usage": "usage_reported",
}
_TOLD = {
    "directive_admitted": ("id", "cn", "generation"),
    "directive_revoked": ("id",),
    "directive_consumed": ("id", "cn", "generation", "attempt"),
    "agent_invited": ("cn", "ticket_digest"),
    "agent_enrolled": ("cn", "generation", "ticket_digest", "cert_digest"),
    "certificate_renewed": ("cn", "generation", "cert_digest"),
    "agent_revoked": ("cn",),
    "act_granted": ("act", "request", "cn", "generation"),
    "lease_opened": ("lease", "request", "cn", "generation"),
    "request_denied": ("request",),
    "act_ended": ("act",),
    "lease_closed": ("lease",),
    "run_started": ("run", "cn"),
    "usage_reported": ("run", "input_tokens", "cost_micro"),
}
_ASKED = {
    "directive_admitted": ("id", "cn", "generation"),
    "directive_revoked": ("id",),
    "directive_consumed": ("id", "cn", "generation", "attempt"),
    "agent_enrolled": ("cn", "ticket_digest"),
    "certificate_renewed": ("cn", "generation"),
    "agent_revoked": ("cn",),
    "request_denied": ("request",),
    "usage_reported": ("run", "input_tokens", "cost_micro"),
}
Mark = tuple[str, ...]


def _mark(kind: str, names: tuple[str, ...], values: Mapping[str, object]) -> Mark:
    return (kind, *(str(values[name]) for name in names))


def acknowledged_is_written(history: History) -> Iterator[str]:
    """Each acknowledgement has its record."""
    written = {_mark(entry.kind, _TOLD[entry.kind], entry.fields) for entry in history.journal if entry.kind in _TOLD}
    for told in history.of(*_KINDS):
        if told.changed:
            kind = _KINDS[told.op]
            mark = _mark(kind, _TOLD[kind], {**told.answer, **told.about, **_given(told)})
            if mark not in written:
                yield f"{told.who} was told {mark}, and there is no such record"


def _given(told: Told) -> dict[str, object]:
    return {"generation": told.answer["generation"]} if told.op in ("enrol", "renew") else {}


def written_was_asked(history: History) -> Iterator[str]:
    """Nothing was sent, consumed, revoked or enrolled that nobody asked for."""
    asked = {
        _mark(_KINDS[told.op], _ASKED[_KINDS[told.op]], told.about)
        for told in history.of(*_KINDS)
        if _KINDS[told.op] in _ASKED
    }
    for entry in history.journal:
        if entry.kind in _ASKED and (mark := _mark(entry.kind, _ASKED[entry.kind], entry.fields)) not in asked:
            yield f"record {entry.seq}: nobody asked for {mark}"


def acknowledged_is_listed(history: History) -> Iterator[str]:
    """What a restarted daemon lists has all that was acknowledged before, in the state that was acknowledged."""
    sure = {"send": "", "consume": "consumed", "revoke": "revoked"}
    for restart in history.restarts:
        for told in history.of(*sure) if restart.seen.directives else ():
            if not told.changed or told.ended >= restart.seen.began:
                continue
            state, expected = restart.seen.directives.get(told.id, "missing"), sure[told.op]
            if state == "missing" or (expected and state != expected):
                yield f"life {restart.life}: {told.id} is {state} after an acknowledged {told.op}"


def final_stays_final(history: History) -> Iterator[str]:
    """What was listed as ended is listed so for ever, and an enrolment that was acknowledged stays."""
    final: dict[str, str] = {}
    for restart in history.restarts:
        for id, state in restart.seen.directives.items():
            if final.get(id, state) != state:
                yield f"life {restart.life}: {id} is {state}, was {final[id]}"
            if state != "active":
                final[id] = state
    for told in history.of("enrol"):
        for restart in history.restarts if told.done else ():
            generation = restart.seen.agents.get(told.about["cn"], (0, ""))[0]
            if restart.seen.agents and told.ended < restart.seen.began and generation < told.answer["generation"]:
                yield f"life {restart.life}: {told.about['cn']} is at {generation} after an acknowledged {told.answer}"


# --- single use ---------------------------------------------------------------------------------------------------


def handed_out_once(history: History) -> Iterator[str]:
    """An action goes to one identity, once; again only on the same attempt key. And it is the right one."""
    takers: dict[str, list[Told]] = defaultdict(list)
    for told in history.of("consume"):
        if told.done:
            takers[told.id].append(told)
            if not _is_its_own(told):
                yield f"{told.who} asked for {told.id} and got {told.answer}"
    for id, taken in takers.items():
        who = {tuple(told.about[name] for name in ("cn", "generation", "key", "attempt")) for told in taken}
        if len(who) > 1 or (len(taken) > 1 and not taken[0].about["attempt"]):
            yield f"{id} was handed out {len(taken)} times, to {sorted(who)}"


def _is_its_own(told: Told) -> bool:
    if told.id.startswith("c-"):
        return bool(told.answer["action"]["args"] == arguments(told.id) and told.answer["enforced"])
    return bool(told.answer["advisory_text"] == text_of(told.id))


def ended_is_over(history: History) -> Iterator[str]:
    """Once a revoke or a consume was acknowledged: not active for anybody, and a revoked one is handed to nobody."""
    over: dict[str, Told] = {}
    for told in history.of("consume", "revoke"):
        if told.changed and (told.id not in over or told.ended < over[told.id].ended):
            over[told.id] = told
    for told in history.of("consume", "check"):
        end = over.get(told.id)
        if not end or not told.done:
            continue
        if told.op == "consume" and end.op == "revoke":
            yield f"{told.id} was consumed, and its revocation acknowledged"
        if told.op == "check" and told.began > end.ended and told.answer["state"] == "active":
            yield f"{told.id} is active after an acknowledged {end.op}"


def older_identities_get_nothing(history: History) -> Iterator[str]:
    """After an acknowledged enrolment the older ones get nothing; after a revocation neither does it."""
    barred: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for told in history.of("enrol", "agent_revoke"):
        if told.changed:
            last = told.answer["generation"] - 1 if told.op == "enrol" else told.generation
            barred[told.about["cn"]].append((told.ended, last))
    for told in history.of("consume", "check", "renew"):
        bars = barred[told.about["cn"]] if told.done else []
        if any(since < told.began and told.generation <= last for since, last in bars):
            yield f"{told.op} of {told.about} was answered after that identity had ended"


def tickets_work_once(history: History) -> Iterator[str]:
    """One ticket, one key."""
    keys: dict[str, set[str]] = defaultdict(set)
    for told in history.of("enrol"):
        if told.done:
            keys[told.about["ticket_digest"]].add(told.about["key"])
    yield from (f"a ticket served {len(who)} keys" for who in keys.values() if len(who) > 1)


# --- nothing is lost without a cause ------------------------------------------------------------------------------


def sent_can_be_had(history: History) -> Iterator[str]:
    """A miss for what was acknowledged as sent to this identity has a cause: somebody else's request."""
    if history.disk_fails:  # a consume that could not be written is a miss too
        return
    sent = {told.id: told for told in history.of("send") if told.done}
    others: dict[str, list[Told]] = defaultdict(list)
    for told in history.told:
        if told.changed or told.unsure:
            others[told.id if told.op in ("consume", "revoke") else told.about.get("cn", "")].append(told)
    for told in history.of("consume"):
        send = sent.get(told.id)
        if told.status != 404 or not send or send.ended > told.began:
            continue
        if (send.about["cn"], send.generation) != (told.about["cn"], told.generation):
            continue
        rivals = [*others[told.id], *(other for other in others[told.about["cn"]] if _unseats(other, told.generation))]
        if not any(rival.began < told.ended for rival in rivals):
            yield f"{told.who} missed {told.id}, which was acknowledged and which nobody ended"


def _unseats(told: Told, generation: int) -> bool:
    if told.op == "enrol":
        return told.unsure or told.answer["generation"] > generation
    return told.op == "agent_revoke" and (told.unsure or told.generation >= generation)


def answers_are_known(history: History) -> Iterator[str]:
    """Refused, missed, or lost with the daemon: nothing else, and nobody waits in vain."""
    for told in history.told:
        known = told.status in _STATUSES or (history.disk_fails and told.status in (500, 503))
        if not known or told.answer.get("error") == "no answer in time":
            yield f"{told.op} of {told.about}: {told.status} {told.answer}"


_STATUSES = (200, 403, 404, 409, LOST)
RULES: tuple[Rule, ...] = (
    chain_intact,
    every_end_once,
    generations_monotone,
    acknowledged_is_written,
    written_was_asked,
    acknowledged_is_listed,
    final_stays_final,
    handed_out_once,
    ended_is_over,
    older_identities_get_nothing,
    tickets_work_once,
    sent_can_be_had,
    answers_are_known,
    *CALL_RULES,
)
