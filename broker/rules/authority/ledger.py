"""The ledger: what the operator allows and what was done of it. A part of the book, and a fold of records like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.rules.authority import room, spans
from broker.rules.authority.entries import (
    Accepted,
    Act,
    ActState,
    Claim,
    EndedLease,
    InForce,
    Lease,
    Request,
    RequestState,
    Run,
    Signed,
)
from broker.rules.authority.room import Ends
from broker.rules.rates import Bucket, full
from broker.wire import accepted, policy
from broker.wire import act_records as r
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn, Digest, Generation, Instant
from broker.wire.policy_terms import Policy
from broker.wire.records import NEVER, BrokerStarted, ClockAccepted, JournalRestored, PayloadRef, Record
from broker.wire.times import SECOND

KEEP_S = 48 * 3600
KEEP_ANSWER_S = 3600
KEEP_PLAIN_S = 600
"""A call that nobody can ask for again: without a call_id, an act, or an outcome that is still to be found out."""
Payloads = tuple[bytes, ...] | None


class Ledger:
    """`apply` is the only thing that changes it. Policies and tools are here only once their bytes are (`fill`)."""

    def __init__(self) -> None:
        self.policies: dict[str, InForce] = {}
        self.accepted: list[Accepted] = []
        self.changed: dict[tuple[str, str], Digest] = {}
        self.runs: dict[str, Run] = {}
        self.run_of: dict[tuple[Cn, Generation], str] = {}
        self.requests: dict[str, Request] = {}
        self.asked_by: dict[Cn, dict[str, None]] = {}  # requests of each agent
        self.acts: dict[str, Act] = {}
        self.leases: dict[str, Lease] = {}
        self.ended_leases: dict[str, EndedLease] = {}
        self.lease_ids: dict[str, Instant] = {}  # of all, with their time: a signature opens no second one
        self.claims: dict[str, Claim] = {}
        self.running: dict[str, None] = {}  # claims that have no end
        self.by_call_id: dict[tuple[Cn, Generation, str], str] = {}
        self.stored: dict[Cn, Bucket] = {}  # `room`, of each agent: a byte a token
        self._ended, self._plain, self._answered = Ends(), Ends(), Ends()  # claims
        self.stopped_at: Instant = NEVER

    def apply(self, record: Record, payloads: Payloads) -> None:
        """Fold one record in; those of no concern to it change nothing."""
        at = record.at
        match record.fact:
            case r.PolicyApplied() as fact:
                read = policy.parse(payloads[0]) if payloads else None
                self.policies[fact.scope] = InForce(fact.policy_digest, record.payloads, read)
            case r.ToolsAccepted() as fact:
                self._accept(fact, record, payloads)
            case r.ToolChanged() as fact:
                self.changed[fact.server, fact.tool] = fact.seen_digest
                self._void_tool(f"{fact.server}.{fact.tool}", at)
            case r.RunStarted() as fact:
                self.runs[fact.run] = Run(fact.run, fact.cn, fact.generation, at)
                self.run_of[fact.cn, fact.generation] = fact.run
            case r.RunStopped() as fact:
                self._stop_run(self.runs[fact.run], fact.reason, at)
            case r.RequestOpened() as fact:
                self._open(fact, record, payloads)
            case r.RequestDenied() as fact:
                request = self._end_request(fact.request, RequestState.DENIED, at)
                request.note_refs, request.note = record.payloads, payloads[0].decode() if payloads else ""
            case r.RequestEnded() as fact:
                expired = fact.reason == "expired"
                self._end_request(fact.request, RequestState.EXPIRED if expired else RequestState.INVALIDATED, at)
            case r.ActGranted() as fact:
                self._grant(fact, record, payloads)
            case r.ActEnded() as fact:
                self._end_act(self.acts[fact.act], ActState(fact.state), at)
            case r.LeaseOpened() as fact:
                self._lease(fact, record, payloads)
            case r.LeaseClosed() as fact:
                self._close(self.leases[fact.lease], fact.reason, fact.used_s, at)
            case r.CallClaimed() as fact:
                self._claim(fact, record)
            case r.CallEnded() as fact:
                self._end_claim(fact, record)
            case r.OutcomeNoted() as fact:
                self.claims[fact.claim].noted = True
            case r.UsageReported() as fact:
                run = self.runs[fact.run]
                run.input_tokens += fact.input_tokens
                run.output_tokens += fact.output_tokens
                run.cost_micro += fact.cost_micro
                run.usage_at = at
            case r.AllStopped():
                self.stopped_at = at
            case r.StopLifted():
                self.stopped_at = NEVER
            case BrokerStarted():
                self._close_all(lambda lease: True, "restart", at)  # where a record of its own did not
            case JournalRestored():
                self._void(lambda one: True, at)
            case ClockAccepted():
                self._go_back(at)
            case _:
                pass

    def shut(self, cn: Cn, at: Instant) -> None:
        """An agent's enrolment is over: nothing that was asked or signed for it goes on."""
        self._void(lambda one: one.cn == cn, at)
        for run in self.runs.values():
            if run.cn == cn and not run.stopped:
                self._stop_run(run, "enrolment over", at)
        self.run_of = {who: run for who, run in self.run_of.items() if who[0] != cn}

    def fill(self, read: Callable[[PayloadRef], bytes], kept: Callable[[tuple[PayloadRef, ...]], bool]) -> None:
        """After recovery: bring the exact bytes of all that is alive. kept: are these payloads still there?"""
        for force in self.policies.values():
            force.policy = policy.parse(read(force.refs[0]))
        for each in self.accepted:
            each.tools = _pinned(read(each.refs[0]), each.names)
        for signed in self.signed():
            signed.statement, signed.signature = (read(ref) for ref in signed.refs)
        for request in self.requests.values():
            if request.state is RequestState.PENDING:
                request.args = read(request.refs[0])
            request.note = read(request.note_refs[0]).decode() if request.note_refs and kept(request.note_refs) else ""

    def pinned(self) -> set[int]:
        """The payload segments that hold what is in force, however long ago it was written."""
        refs = [ref for force in self.policies.values() for ref in force.refs]
        refs += [ref for each in self.accepted for ref in each.refs]
        refs += [ref for signed in self.signed() for ref in signed.refs]
        refs += [ref for one in self.requests.values() if one.state is RequestState.PENDING for ref in one.refs]
        return {ref.segment for ref in refs}

    def signed(self) -> Iterator[Signed]:
        """What still rests on a signature."""
        yield from (act.signed for act in self.acts.values() if self.is_alive(act))
        yield from (lease.signed for lease in self.leases.values())

    def is_alive(self, act: Act) -> bool:
        """Does it wait for its call, or may it wait again: does one run that perhaps is never sent?"""
        return act.state is ActState.ACTIVE or (act.claim in self.running and act.void is None)

    def tool(self, server: str, name: str) -> PinnedTool | None:
        """The accepted tool of this name."""
        found = (each.tools.get(name) for each in self.accepted if each.server == server)
        return next((tool for tool in found if tool), None)

    def tools(self) -> Iterator[PinnedTool]:
        """Every accepted tool."""
        for each in self.accepted:
            yield from each.tools.values()

    def layers(self, scopes: tuple[str, ...]) -> tuple[Policy, ...]:
        """The policies in force of these scopes, the instance's first; empty where the instance has none."""
        found = [self.policies[scope].policy for scope in scopes if scope in self.policies]
        return tuple(each for each in found if each) if "instance" in self.policies else ()

    def stores(self, claim: Claim, size_bytes: int, at: Instant) -> bool:
        """Is this answer stored? Not where nobody may ask for it again; and beyond the agent's room only what a
        signature paid for, since a read may be made anew."""
        if claim.consent.startswith("act/"):
            return True
        return bool(claim.call_id) and room.fits_answer(self.stored.get(claim.cn), at, size_bytes)

    def holds(self, cn: Cn, call_id: str, argument_bytes: int, at: Instant) -> bool:
        """May the agent begin a call that no signature paid for: is there room for what is kept of it?"""
        return room.fits_call(self.stored.get(cn), at, room.of_call(call_id, argument_bytes))

    def forget(self, now: Instant) -> None:
        """Drop what nobody can ask for any more. The journal keeps all of it."""
        border = now - KEEP_S * SECOND
        for id in self._answered.before(now - KEEP_ANSWER_S * SECOND):
            if id in self.claims:
                self.claims[id].answer_refs = ()
        for id in [*self._plain.before(now - KEEP_PLAIN_S * SECOND), *self._ended.before(border)]:
            claim = self.claims.pop(id)
            name = claim.cn, claim.generation, claim.call_id
            if self.by_call_id.get(name) == id:
                del self.by_call_id[name]
        if old := [id for id, one in self.requests.items() if one.ended_at and one.ended_at < border]:
            for id in old:
                del self.requests[id]
            self.index_requests()
        for id in [id for id, one in self.acts.items() if one.ended_at and one.ended_at < border]:
            del self.acts[id]
        for id in [id for id, at in self.lease_ids.items() if at < border]:
            del self.lease_ids[id]
        for id in [id for id, one in self.ended_leases.items() if one.ended_at < border]:
            del self.ended_leases[id]
        self.stored = {cn: bucket for cn, bucket in self.stored.items() if not full(bucket, now)}
        live = {self.claims[id].run for id in self.running} | set(self.run_of.values())
        over = [key for key, run in self.runs.items() if run.stopped_at and run.stopped_at < border and key not in live]
        for key in over:
            del self.runs[key]

    def _accept(self, fact: r.ToolsAccepted, record: Record, payloads: Payloads) -> None:
        names = set(fact.tools)
        for each in self.accepted:
            if each.server == fact.server:
                each.names -= names
                for name in names:
                    each.tools.pop(name, None)
        self.accepted = [each for each in self.accepted if each.names]
        tools = _pinned(payloads[0], names) if payloads else {}
        self.accepted.append(Accepted(fact.server, names, record.payloads, tools))
        for name in names:
            self.changed.pop((fact.server, name), None)
            self._void_tool(f"{fact.server}.{name}", record.at)

    def _open(self, fact: r.RequestOpened, record: Record, payloads: Payloads) -> None:
        self.requests[fact.request] = Request(
            fact.request, fact.cn, fact.generation, fact.run, fact.regime, fact.tool, fact.account, fact.resources,
            fact.args_digest, fact.tool_digest, fact.policies, fact.reason, record.at, fact.expires_at, record.payloads,
            payloads[0] if payloads else b"",
        )  # fmt: skip
        self.asked_by.setdefault(fact.cn, {})[fact.request] = None

    def index_requests(self) -> None:
        """By their agents."""
        self.asked_by = {}
        for request in self.requests.values():
            self.asked_by.setdefault(request.cn, {})[request.request] = None

    def requests_of(self, cn: Cn, generation: Generation) -> Iterator[Request]:
        """What one enrolment asked for, the oldest first."""
        mine = (self.requests[id] for id in self.asked_by.get(cn, ()))
        return (request for request in mine if request.generation == generation)

    def _end_request(self, id: str, state: RequestState, at: Instant, answer: str = "") -> Request:
        request = self.requests[id]
        request.state, request.ended_at, request.answer, request.args = state, at, answer, b""
        if state is not RequestState.APPROVED:
            request.resources = ()  # nobody is to sign them any more, and many such may be remembered
        return request

    def _grant(self, fact: r.ActGranted, record: Record, payloads: Payloads) -> None:
        self.acts[fact.act] = Act(
            fact.act, fact.request, fact.cn, fact.generation, fact.tool, fact.account, fact.resources,
            fact.args_digest, fact.tool_digest, fact.not_before_at, fact.expires_at,
            Signed(fact.fingerprint, fact.signer_digest, fact.allowed_digest, record.payloads, *(payloads or ())),
        )  # fmt: skip
        if fact.request:
            self._end_request(fact.request, RequestState.APPROVED, record.at, fact.act)

    def _lease(self, fact: r.LeaseOpened, record: Record, payloads: Payloads) -> None:
        whose = (fact.cn, fact.account)  # a new consent replaces, and never adds to, the old one
        self._close_all(lambda lease: (lease.cn, lease.account) == whose, "replaced", record.at)
        self.lease_ids[fact.lease] = record.at
        self.leases[fact.lease] = Lease(
            fact.lease, fact.cn, fact.generation, fact.run, fact.account, fact.seconds, fact.operations,
            fact.first_read_by_at, record.at,
            Signed(fact.fingerprint, fact.signer_digest, fact.allowed_digest, record.payloads, *(payloads or ())),
            request=fact.request, own=self._own(fact.request),
        )  # fmt: skip
        if fact.request:
            self._end_request(fact.request, RequestState.APPROVED, record.at, fact.lease)

    def _own(self, request: str) -> tuple[str, Digest] | None:
        """The read that asked for a lease; None where nobody, or no read, did."""
        asked = self.requests.get(request)
        return (asked.tool, asked.args_digest) if asked and asked.tool else None

    def _claim(self, fact: r.CallClaimed, record: Record) -> None:
        at = record.at
        self.claims[fact.claim] = Claim(
            fact.claim, fact.cn, fact.generation, fact.run, fact.tool, fact.tool_class, fact.account,
            fact.args_digest, fact.consent, fact.call_id, at,
        )  # fmt: skip
        self.running[fact.claim] = None
        if fact.call_id:
            self.by_call_id[fact.cn, fact.generation, fact.call_id] = fact.claim
        self.runs[fact.run].calls += 1
        kind, _, id = fact.consent.partition("/")
        if kind == "act":
            act = self.acts[id]
            act.state, act.claim, act.ended_at = ActState.CLAIMED, fact.claim, at
            self._acted(act.request)
            return
        size_bytes = room.of_call(fact.call_id, sum(ref.length for ref in record.payloads))
        self.stored[fact.cn] = room.taken(self.stored.get(fact.cn), at, size_bytes)
        if kind == "lease":
            lease = self.leases[id]
            lease.used += 1
            if lease.own == (fact.tool, fact.args_digest):
                lease.own, self.claims[fact.claim].own = None, True
            lease.started_at = lease.started_at or at
            self._acted(lease.request)

    def _acted(self, request: str) -> None:
        if request in self.requests:
            self.requests[request].acted = True

    def _end_claim(self, fact: r.CallEnded, record: Record) -> None:
        claim = self.claims[fact.claim]
        claim.outcome, claim.ended_at = fact.outcome, record.at
        del self.running[fact.claim]
        claim.answer_refs = record.payloads
        if record.payloads and not claim.consent.startswith("act/"):
            self.stored[claim.cn] = room.taken(self.stored.get(claim.cn), record.at, fact.answer_bytes)
        self.remember(claim)
        if fact.outcome == "not_dispatched":
            self._credit(claim, record.at)

    def remember(self, claim: Claim) -> None:
        """Until when, of a claim that has its end."""
        may_be_asked_for = claim.call_id or claim.consent.startswith("act/") or claim.outcome == "outcome_unknown"
        (self._ended if may_be_asked_for else self._plain).add(claim.claim, claim.ended_at)
        if claim.answer_refs:
            self._answered.add(claim.claim, claim.ended_at)

    def _credit(self, claim: Claim, at: Instant) -> None:
        """Nothing was sent: what the claim spent is there again, as far as it is still to be had."""
        self.runs[claim.run].calls -= 1
        self.by_call_id.pop((claim.cn, claim.generation, claim.call_id), None)
        kind, _, id = claim.consent.partition("/")
        if kind == "act" and id in self.acts:
            act = self.acts[id]
            act.state, act.claim = act.void or ActState.ACTIVE, ""
            act.ended_at = at if act.void else NEVER
        elif kind == "lease" and id in self.leases:
            lease = self.leases[id]
            lease.used -= 1
            lease.own = (claim.tool, claim.args_digest) if claim.own else lease.own

    def _stop_run(self, run: Run, reason: str, at: Instant) -> None:
        run.stopped, run.stopped_at = reason, at
        self._close_all(lambda lease: lease.run == run.run, "run over", at)

    def _close_all(self, concerns: Callable[[Lease], bool], reason: str, at: Instant) -> None:
        """Without a record of each."""
        for lease in [lease for lease in self.leases.values() if concerns(lease)]:
            self._close(lease, reason, spans.used_s(lease, at), at)

    def _close(self, lease: Lease, reason: str, used_s: int, at: Instant) -> None:
        del self.leases[lease.lease]
        self.ended_leases[lease.lease] = EndedLease(
            lease.lease, lease.cn, lease.generation, lease.account, lease.seconds, lease.operations, lease.used, used_s,
            reason, lease.opened_at, at, lease.signed.fingerprint,
        )  # fmt: skip

    def _go_back(self, at: Instant) -> None:
        """The clock was set back: what ends by it would end late. Nothing that was open by the wrong one goes on."""
        self._void(lambda one: True, at)
        self._close_all(lambda lease: True, "clock", at)
        self.stored = {}  # else nothing more fits until the time to which the wrong clock had come
        for run in self.runs.values():
            if not run.stopped:
                self._stop_run(run, "the clock was set back", at)

    def _void_tool(self, tool: str, at: Instant) -> None:
        """What was asked or signed rests on the definition that was shown then."""
        self._void(lambda one: one.tool == tool, at)

    def _void(self, concerns: Callable[[Request | Act], bool], at: Instant) -> None:
        """Requests and acts that can't go on."""
        for request in self.requests.values():
            if request.state is RequestState.PENDING and concerns(request):
                self._end_request(request.request, RequestState.INVALIDATED, at)
        for act in self.acts.values():
            if self.is_alive(act) and concerns(act):
                self._end_act(act, ActState.INVALIDATED, at)

    @staticmethod
    def _end_act(act: Act, state: ActState, at: Instant) -> None:
        """At once; or, while its call runs, as soon as that turns out not to have been sent."""
        if act.state is ActState.CLAIMED:
            act.void = state
        else:
            act.state, act.ended_at = state, at


def _pinned(raw: bytes, names: set[str]) -> dict[str, PinnedTool]:
    return {tool.name: tool for tool in accepted.parse(raw)[1] if tool.name in names}
