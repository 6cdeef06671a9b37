"""The checker's rules of tool calls: what was told, what the records say, and what the upstream server did. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from tests.proof.told import NOT_SENT, Entry, History, Told, Used, of_starts, taken_back
from tests.proof.tool_desk import MOST_CALLS, SERVER, digest

_SETTLED = ("", "outcome_unknown")
_UNKNOWN = "outcome_unknown"
Key = tuple[str, ...]


# --- by the records alone -------------------------------------------------------------------------------------------


def claims_end_once(history: History) -> Iterator[str]:
    """An intent, then one outcome; what a dead daemon left open is unknown by the turn of the next start itself."""
    still_open, ended, starting = dict[str, None](), set[str](), of_starts(history.journal)
    for entry in history.journal:
        claim = entry.fields.get("claim", "")
        if entry.kind == "broker_started":
            yield from (f"record {entry.seq}: a start, and {claim} is open" for claim in still_open)
        elif entry.kind == "call_claimed":
            if claim in still_open or claim in ended:
                yield f"record {entry.seq}: {claim} was claimed before"
            still_open[claim] = None
        elif entry.kind == "call_ended":
            if claim not in still_open:
                yield f"record {entry.seq}: an outcome of {claim}, which is not open"
            elif entry.seq in starting and entry.fields["outcome"] != _UNKNOWN:
                yield f"record {entry.seq}: {claim} of an earlier life is {entry.fields['outcome']}"
            still_open.pop(claim, None)
            ended.add(claim)
    yield from (f"{claim} has no outcome" for claim in still_open)


def acts_serve_once(history: History) -> Iterator[str]:
    """One claim for an act, between its grant and its end, for what was signed; another only if none was sent, and the
    act was not ended while that ran."""
    acts: dict[str, tuple[str, Entry]] = {}
    running: dict[str, str] = {}
    void: dict[str, str] = {}
    for entry in history.journal:
        id = entry.fields.get("act", "")
        if entry.kind == "act_granted":
            if id in acts:
                yield f"record {entry.seq}: {id} was granted before"
            acts[id] = "", entry
        elif entry.kind == "act_ended":
            state, granted = acts[id]
            if id in running.values() and id not in void:
                void[id] = entry.fields["state"]
            elif state:
                yield f"record {entry.seq}: {id} is {state}, and now {entry.fields['state']}"
            else:
                acts[id] = entry.fields["state"], granted
        elif entry.kind == "call_claimed" and entry.fields["consent"].startswith("act/"):
            id = entry.fields["consent"].partition("/")[2]
            state, granted = acts.get(id, ("not granted", entry))
            if state or _bound(granted) != _bound(entry):
                yield f"record {entry.seq}: {id} is {state or 'for another call'}, and serves a call"
            acts[id], running[entry.fields["claim"]] = ("claimed", granted), id
        elif entry.kind == "call_ended":
            id = running.pop(entry.fields["claim"], "")
            if id and entry.fields["outcome"] == NOT_SENT:
                acts[id] = void.get(id, ""), acts[id][1]


def _bound(entry: Entry) -> tuple[object, ...]:
    return tuple(entry.fields[name] for name in ("cn", "generation", "tool", "account", "args_digest"))


def leases_close(history: History) -> Iterator[str]:
    """Reads only through an open lease: not after its end, a restart or another lease, and not more than signed."""
    leases: dict[str, list[object]] = {}
    left: dict[str, int] = {}
    by_claim: dict[str, str] = {}
    for entry in history.journal:
        id = entry.fields.get("lease", "")
        if entry.kind == "broker_started":
            left.clear()
        elif entry.kind == "lease_opened":
            whose = [entry.fields["cn"], entry.fields["account"]]
            left = {other: count for other, count in left.items() if leases[other] != whose}
            leases[id], left[id] = whose, entry.fields["operations"]
        elif entry.kind == "lease_closed":
            left.pop(id, None)
        elif entry.kind == "call_claimed" and entry.fields["consent"].startswith("lease/"):
            id = by_claim[entry.fields["claim"]] = entry.fields["consent"].partition("/")[2]
            if left.get(id, 0) < 1:
                yield f"record {entry.seq}: a read through {id}, which has {left.get(id, 'been closed')}"
            left[id] = left.get(id, 0) - 1
        elif entry.kind == "call_ended" and entry.fields["outcome"] == NOT_SENT:
            id = by_claim.get(entry.fields["claim"], "")
            left |= {id: left[id] + 1} if id in left else {}


def requests_end_once(history: History) -> Iterator[str]:
    """Opened, and then one answer at most."""
    ends: dict[str, str] = {}
    for entry in history.journal:
        id = entry.fields.get("request", "")
        if entry.kind == "request_opened":
            ends[id] = ""
        elif id and entry.kind in ("act_granted", "lease_opened", "request_denied", "request_ended"):
            if ends.get(id) != "":
                yield f"record {entry.seq}: request {id} had {ends.get(id)}, and now {entry.kind}"
            ends[id] = entry.kind


def budgets_hold(history: History) -> Iterator[str]:
    """No run has more calls than the policy allows."""
    counts: Counter[str] = Counter()
    runs: dict[str, str] = {}
    for entry in history.journal:
        if entry.kind == "call_claimed":
            run = runs[entry.fields["claim"]] = entry.fields["run"]
            counts[run] += 1
            if counts[run] > MOST_CALLS:
                yield f"record {entry.seq}: call {counts[run]} of run {run}"
        elif entry.kind == "call_ended" and entry.fields["outcome"] == NOT_SENT:
            counts[runs[entry.fields["claim"]]] -= 1


# --- against the upstream server ------------------------------------------------------------------------------------


@cache
def _digest(word: str) -> str:
    return digest(word)


def executed_once(history: History) -> Iterator[str]:
    """Each execution has its own intent, whose outcome does not deny it; and what was done was executed."""
    sent, done = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    calls = {entry.fields["claim"]: entry.fields for entry in history.entries("call_claimed")}
    for entry in history.entries("call_ended"):
        about = calls.get(entry.fields["claim"])
        if about:
            call = about["tool"], about["args_digest"]
            sent[call] += entry.fields["outcome"] != NOT_SENT
            done[call] += entry.fields["outcome"] in ("done", "failed")
    ran = Counter((f"{SERVER}.{one.tool}", _digest(one.word)) for one in history.executions)
    for one in history.executions:
        call = f"{SERVER}.{one.tool}", _digest(one.word)
        if ran[call] > sent[call]:
            yield f"{one.text} is one of {ran[call]} executions, and there were {sent[call]} intents"
    yield from (
        f"{call} has {done[call]} outcomes, and {ran[call]} executions" for call in done if done[call] > ran[call]
    )


def told_what_was_done(history: History) -> Iterator[str]:
    """An answer is that of an execution of this very call, and one execution answers one call."""
    ran = {one.text: one for one in history.executions}
    took: dict[str, Key] = {}
    for told in history.of("call"):
        if not told.done or told.answer["code"]:
            continue
        one = ran.get(told.answer["text"])
        asked = told.about["tool"], told.about["word"]
        if one is None or (f"{SERVER}.{one.tool}", one.word) != asked:
            yield f"{told.who} called {asked} and was told {told.answer}"
        elif (
            name := (told.about["call_id"] or f"{told.who} {told.began}", told.about["cn"], str(told.generation))
        ) and took.setdefault(one.text, name) != name:
            yield f"{one.text} is the answer to {took[one.text]}, and to {name}"


# --- what was told ----------------------------------------------------------------------------------------------------


def outcomes_stay(history: History) -> Iterator[str]:
    """Once a call's outcome was told, the same call_id has that outcome for ever, and no other call has its name."""
    calls: dict[Key, list[Told]] = defaultdict(list)
    for told in history.of("call"):
        if told.done and told.about["call_id"]:
            calls[told.about["call_id"], told.about["cn"], told.about["generation"]].append(told)
    for name, all_told in calls.items():
        first = min((told for told in all_told if _settled(told)), key=lambda told: told.ended, default=None)
        for told in all_told if first else ():
            assert first
            same = told.about["word"] == first.about["word"]
            if told.began > first.ended and _what(told) != (_what(first) if same else ("call_id_conflict", "")):
                yield f"{name} came to {_what(first)}, and {told.about['word']} under its name to {_what(told)}"
            if same and _settled(told) and _what(told) != _what(first):
                yield f"{name} came to {_what(first)}, and to {_what(told)}"


def _settled(told: Told) -> bool:
    return told.answer["code"] in _SETTLED


def _what(told: Told) -> tuple[str, str]:
    return told.answer["code"], told.answer["text"]


def outcomes_are_written(history: History) -> Iterator[str]:
    """What was told of a call is what its record says; and of its request, once that was told."""
    outcomes = {entry.fields["claim"]: entry.fields["outcome"] for entry in history.entries("call_ended")}
    written: dict[Key, set[str]] = defaultdict(set)
    for entry in history.entries("call_claimed"):
        fact = entry.fields
        name = fact["cn"], str(fact["generation"]), fact["tool"], fact["args_digest"], fact["call_id"]
        written[name].add(outcomes.get(fact["claim"], ""))
    for told in history.of("call"):
        if told.done and told.answer["code"] in (*_SETTLED, NOT_SENT):
            outcome = told.answer["code"] or ("failed" if told.answer["failed"] else "done")
            name = tuple(told.about[key] for key in ("cn", "generation", "tool"))
            if outcome not in written[(*name, _digest(told.about["word"]), told.about["call_id"])]:
                yield f"{told.who} was told {outcome} of {told.about}, and there is no such record"
    of_request: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for told in history.of("status"):
        if told.done and _settled(told):
            of_request[told.about["request"]].add(_what(told))
    yield from (f"request {id} came to {sorted(said)}" for id, said in of_request.items() if len(said) > 1)


def answered_once(history: History) -> Iterator[str]:
    """A request has one answer of the operators, and who was refused is not served by it."""
    answers: dict[str, list[Told]] = defaultdict(list)
    for told in history.of("approve", "deny", "lease"):
        if told.done and told.about["request"]:
            answers[told.about["request"]].append(told)
    yield from (f"request {id} was answered {len(said)} times" for id, said in answers.items() if len(said) > 1)


def calls_were_asked(history: History) -> Iterator[str]:
    """No intent and no request that no agent asked for; no act and no lease that no operator signed."""
    asked = {
        (told.about["cn"], told.generation, told.about["tool"], _digest(told.about["word"]), told.about["call_id"])
        for told in history.of("call")
    }
    unnamed = {(*call[:4], "") for call in asked}
    signed = {told.about["act"] for told in history.of("approve")} | {told.id for told in history.of("send")}
    signed |= {told.about["lease"] for told in history.of("lease")}
    for entry in history.journal:
        fact = entry.fields
        if entry.kind == "call_claimed" or (entry.kind == "request_opened" and fact["tool"]):
            name = fact["cn"], fact["generation"], fact["tool"], fact["args_digest"], fact.get("call_id", "")
            if name not in (asked if entry.kind == "call_claimed" else unnamed):
                yield f"record {entry.seq}: nobody asked for {name}"
        if entry.kind in ("act_granted", "lease_opened") and fact.get("act", fact.get("lease")) not in signed:
            yield f"record {entry.seq}: nobody signed it"


def granted_can_be_called(history: History) -> Iterator[str]:
    """A call that was acknowledged as allowed lacks consent only with a cause: somebody else's request."""
    if history.disk_fails:
        return
    granted: dict[Key, list[Told]] = defaultdict(list)
    others: dict[str, list[Told]] = defaultdict(list)
    for told in history.told:
        if told.op == "approve" and told.done:
            granted[told.about["cn"], told.about["generation"], told.about["word"]].append(told)
        if told.op == "call":
            others[told.about["word"]].append(told)
        elif told.op == "act_revoke":
            others[told.about["act"]].append(told)
        elif told.op in ("enrol", "agent_revoke"):
            others[told.about["cn"]].append(told)
    for told in history.of("call"):
        who = told.about["cn"], told.about["generation"], told.about["word"]
        if not told.done or told.answer["code"] != "consent_required" or told.about["tool"] != f"{SERVER}.write":
            continue
        for approval in granted[who]:
            rivals = others[who[2]] + others[approval.about["act"]] + others[who[0]]
            since = (one for one in rivals if one is not told and one.ended > approval.began and one.began < told.ended)
            if approval.ended < told.began and not any(map(_may_have_changed, since)):
                yield f"{told.who} lacked consent for {who}, which was acknowledged and which nobody used"


def _may_have_changed(told: Told) -> bool:
    return told.unsure or (told.done and told.answer.get("code", "") in _SETTLED)


# --- what restarted daemons list ------------------------------------------------------------------------------------


def restarts_keep_what_was_told(history: History) -> Iterator[str]:
    """Acts are listed as acknowledged, leases of earlier lives are not, and no figure is less than was told."""
    leases = {told.about["lease"]: told for told in history.of("lease")}
    revoked = taken_back(history.journal)
    final: dict[str, str] = {}
    for restart in history.restarts:
        seen, life = restart.seen, f"life {restart.life}"
        if not seen.began:
            continue
        earlier = [told for told in history.told if told.ended < seen.began]
        for id in seen.leases:
            if id not in leases or leases[id].ended < restart.began:
                yield f"{life}: {id} is open after a restart"
        for id, state in seen.acts.items():
            if final.get(id, state) != state:
                yield f"{life}: act {id} is {state}, was {final[id]}"
            if state != "active":
                final[id] = state
        for told in earlier:
            act = told.about.get("act", "")
            if told.op == "approve" and told.done and act not in seen.acts:
                yield f"{life}: act {act} is missing after an acknowledged approval"
            if told.op == "act_revoke" and told.changed and seen.acts.get(act) != revoked.get(act):
                yield f"{life}: act {act} is {seen.acts.get(act)} after a revocation"
        yield from (f"{life}: {words}" for words in _too_little(restart.seen.runs, earlier))


def _too_little(runs: object, earlier: list[Told]) -> Iterator[str]:
    assert isinstance(runs, dict)
    texts: dict[tuple[str, int], set[str]] = defaultdict(set)
    tokens: Counter[str] = Counter()
    for told in earlier:
        if told.op == "call" and told.done and not told.answer["code"]:
            texts[told.about["cn"], told.generation].add(told.answer["text"])
        if told.op == "usage" and told.changed:
            tokens[told.about["run"]] += int(told.about["input_tokens"])
    for who, done in texts.items():
        used = sum(run.calls for run in runs.values() if run.who == who)
        if used < len(done):
            yield f"{who} is said to have made {used} calls, and had the answers to {len(done)}"
    for id, count in tokens.items():
        if id not in runs or runs[id].input_tokens < count:
            yield f"run {id} is at {runs.get(id)}, and {count} tokens were acknowledged"


def figures_are_the_sums(history: History) -> Iterator[str]:
    """What a daemon lists of runs is what the records up to then come to: over no restart is anything counted twice."""
    for restart in history.restarts:
        first, last = restart.seen.records
        told = [_sums(history.journal[:count]) for count in range(first, last + 1)] if restart.seen.began else []
        if told and restart.seen.runs not in told:
            for id in sorted({*restart.seen.runs, *told[-1]}):
                known, sums = restart.seen.runs.get(id), [runs.get(id) for runs in told]
                if known not in sums:
                    yield f"life {restart.life}: run {id} is at {known}, and its records come to {sums[0]}"
            yield f"life {restart.life}: the runs are as they were together at none of the records {first} to {last}"


def _sums(journal: Iterable[Entry]) -> dict[str, Used]:
    runs: dict[str, Used] = {}
    of_claim: dict[str, str] = {}
    for entry in journal:
        fact = entry.fields
        match entry.kind:
            case "run_started":
                runs[fact["run"]] = Used((fact["cn"], fact["generation"]), 0, 0)
            case "call_claimed":
                run = of_claim[fact["claim"]] = fact["run"]
                runs[run] = replace(runs[run], calls=runs[run].calls + 1)
            case "call_ended" if fact["outcome"] == NOT_SENT:
                run = of_claim[fact["claim"]]
                runs[run] = replace(runs[run], calls=runs[run].calls - 1)
            case "usage_reported":
                run, tokens = fact["run"], fact["input_tokens"]
                runs[run] = replace(runs[run], input_tokens=runs[run].input_tokens + tokens)
    return runs


CALL_RULES = (
    claims_end_once,
    acts_serve_once,
    leases_close,
    requests_end_once,
    budgets_hold,
    executed_once,
    told_what_was_done,
    outcomes_stay,
    outcomes_are_written,
    answered_once,
    calls_were_asked,
    granted_can_be_called,
    restarts_keep_what_was_told,
    figures_are_the_sums,
)
