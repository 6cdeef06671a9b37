"""What the operator allows, decided by the rules alone, at times that the test gives: no daemon, no keys."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, TypeVar

from broker.errors import Reason
from broker.rules import admin, admit, consume, identity, image
from broker.rules.authority import caller_steps, closing, consent, leases, ledger_image, orders, passage
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.entries import Act, Claim, Lease, Run
from broker.rules.authority.judgement import Call, Unresolved
from broker.rules.authority.passage import Claimed, Ids, Passing, Repeated
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.wire import accepted, catalogue, policy, statement
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn, Digest, DirectiveId, Generation, Instant
from broker.wire.records import BrokerStarted, Fact, PayloadRef, Record, RequestRefused
from broker.wire.server_identity import NOBODY, ServerIdentity
from broker.wire.statement import Approval, BoundAction, LeaseAction, Statement, Target
from broker.wire.times import SECOND
from broker.wire.verified import Standing, VerifiedBytes
from tests.proof.cast import ALLOWED, BOTH, DEMO, FIRST, TERMS, A, B, caller, digest, operator, order, request

T = TypeVar("T")
AT = Instant(1_800_000_000 * SECOND)
NAMES = ("read", "find", "list", "send", "pay", "note", "ask", "drop", "unlisted")
MAIL: dict[str, Any] = {"class": "read", "account": "mail"}


def tool(name: str, server: str = "s", identity: ServerIdentity = NOBODY, **changes: Any) -> PinnedTool:
    """A tool that takes anything; keyword arguments replace parts of its definition."""
    definition = {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} | changes
    return catalogue.pin(server, definition, identity)


TAME = {"destructiveHint": False, "openWorldHint": False}
TOOLS = tuple(tool(name, **({"annotations": TAME} if name == "note" else {})) for name in NAMES)


def a_policy(**changes: Any) -> dict[str, Any]:
    """Keyword arguments replace keys; those of `tools`, `accounts` and `tiers` are added to what is there."""
    tiers = {
        "allowed": ["s.read", "s.find", "s.list", "s.send", "s.pay", "s.note"],
        "approval_required": ["s.ask"],
        "denied": ["s.drop"],
    } | changes.pop("tiers", {})
    tools = {
        "s.read": MAIL,
        "s.find": MAIL,
        "s.list": {"class": "read"},
        "s.send": {"class": "mutation", "account": "mail", "resources": [{"pointer": "/to/*", "kind": "id"}]},
        "s.pay": {"class": "read", "account": "payroll"},
        "s.note": {"class": "mutation", "consent": "none"},
    } | changes.pop("tools", {})
    accounts = {"mail": {}, "payroll": {"sensitive": True}} | changes.pop("accounts", {})
    return {"v": 1, "name": "test", "default_action": "deny", "tool_allowlist": tiers, "tools": tools,
            "accounts": accounts} | changes  # fmt: skip


SEND = {"to": ["ann"], "text": "hello"}
STARTED = BrokerStarted("0", 0)


class Table:
    """One instance of rules. `at` is now; every decision is written as the turn would write it."""

    def __init__(self, **changes: Any) -> None:
        self.at = AT
        self.book = Book(DEMO)
        self.records: list[Record] = []
        self.bytes: dict[PayloadRef, bytes] = {}
        self.standing, self.noted = BOTH, list[RequestRefused]()
        self.resolved: dict[str, PinnedTool | Unresolved] = {one.qualified: one for one in TOOLS}
        self._numbers = itertools.count(1)
        self.enrol(A)
        self.enrol(B)
        self.apply(**changes)
        self.accept(*TOOLS)

    # --- time and writing

    def later(self, seconds: float) -> None:
        self.at = Instant(self.at + int(seconds * SECOND))

    def write(self, fact: Fact, payloads: tuple[bytes, ...] = ()) -> None:
        refs = tuple(self._kept(raw) for raw in payloads)
        record = Record(len(self.records) + 1, self.at, Digest(bytes(32)), refs, fact)
        self.records.append(record)
        self.book.apply(record, payloads)

    def _kept(self, raw: bytes) -> PayloadRef:
        ref = PayloadRef(Digest(sha256(raw).digest()), 1, len(self.bytes), len(raw))
        self.bytes[ref] = raw
        return ref

    def take(self, decision: Decision[T]) -> T | Reason:
        """Write what was decided; the answer, or why not."""
        for draft in decision.drafts:
            self.write(draft.fact, draft.payloads)
        if decision.noted:
            self.noted.append(decision.noted)
        if decision.refused:
            self.said, self.hint = str(decision.refused), decision.refused.hint
            return decision.refused.reason
        return decision.answer  # type: ignore[return-value]

    def id(self) -> str:
        return f"id-{next(self._numbers):04}"

    def order(self, op: str) -> admin.Order:
        return order(op, self.at, self.id())

    # --- agents

    def enrol(self, cn: Cn, *, tenant: str = "") -> None:
        ticket, (ask, issue) = self.id(), request(cn, "key")
        asked = self.order("agent_invite")
        self.take(
            admin.invite(
                self.book, self.at, order=asked, cn=cn, ticket_digest=digest(ticket), expires_s=600, tenant=tenant
            )
        )
        self.take(identity.enrol(self.book, self.at, ticket_digest=digest(ticket), ask=ask, issue=issue))

    def revoke(self, cn: Cn) -> None:
        self.take(admin.revoke_agent(self.book, self.at, order=self.order("agent_revoke"), cn=cn))

    def generation(self, cn: Cn = A) -> Generation:
        return self.book.agents[cn].generation

    # --- calls

    def passing(
        self, name: str, arguments: Any = None, *, cn: Cn = A, generation: int = 0, call_id: str = "",
        elapsed_s: Mapping[str, float] | None = None, waited_s: Mapping[str, float] | None = None,
    ) -> Passing:  # fmt: skip
        qualified = name if "." in name else f"s.{name}"
        given = {} if arguments is None else arguments
        resolved = self.resolved.get(qualified, Unresolved.UNKNOWN_TOOL)
        ids = Ids(self.id(), uuid.uuid4().hex, self.id())
        who = caller(cn, generation or self.generation(cn))
        call = Call(cn, qualified, given)
        return Passing(who, call, call_id, resolved, self.standing, ids, elapsed_s or {}, waited_s or {})

    def call(self, name: str, arguments: Any = None, **more: Any) -> Any:
        """Claimed, Repeated, ConsentRequired, or the reason of a refusal."""
        passing = self.passing(name, arguments, **more)
        self.book.forget(self.at, self.book.records + 1)
        return self.take(passage.pass_on(self.book, self.at, passing=passing))

    def end(self, claimed: Claimed, outcome: str = "done", answer: bytes = b"{}") -> Any:
        return self.take(closing.end(self.book, self.at, claim=claimed.claim, outcome=outcome, answer=answer))

    def answer(self, repeated: Repeated) -> bytes:
        """What is kept of the answer; empty for nothing."""
        return b"".join(self.bytes[ref] for ref in repeated.claim.answer_refs)

    def done(self, name: str, arguments: Any = None, **more: Any) -> Claimed:
        """A call that must go through, and does."""
        claimed = self.call(name, arguments, **more)
        assert isinstance(claimed, Claimed), claimed
        self.end(claimed)
        return claimed

    def asked(self, name: str, arguments: Any = None, **more: Any) -> str:
        """A call that must lack nothing but consent; the request."""
        answer = self.call(name, arguments, **more)
        assert isinstance(answer, ConsentRequired), answer
        return answer.request.request

    def lease_request(self, account: str = "mail", seconds: int | None = None, cn: Cn = A) -> Any:
        ids = Ids(self.id(), uuid.uuid4().hex, self.id())
        who = caller(cn, self.generation(cn))
        decision = leases.ask(self.book, self.at, caller=who, account=account, ids=ids, seconds=seconds)
        return self.take(decision)

    # --- the operator

    def statement(
        self, action: Any, *, cn: Cn = A, generation: int = 0, id: str = "", opens_s: int = 0, lasts_s: int = 600
    ) -> Statement:
        return Statement(
            DEMO, DirectiveId(id or self.id()), Target(cn, Generation(generation or self.generation(cn))), self.at,
            Instant(self.at + opens_s * SECOND), Instant(self.at + lasts_s * SECOND), action,
        )  # fmt: skip

    def say(self, value: Statement, signer: Digest = FIRST) -> Any:
        """Sign a grant and hand it in: its id, or why not."""
        raw = statement.encode(value)
        verified = VerifiedBytes(raw, b"signature", "", "SHA256:key", signer, ALLOWED)  # type: ignore[arg-type]
        if isinstance(value.action, Approval | LeaseAction):
            decision: Decision[Any] = consent.grant(
                self.book, self.at, request=operator("grant"), verified=verified, statement=value, terms=TERMS
            )
        else:
            decision = admit.admit(
                self.book, self.at, request=operator("send"), verified=verified, statement=value, terms=TERMS
            )
        answer = self.take(decision)
        return answer if isinstance(answer, Reason) else answer.id

    def approve(
        self, request: str, signer: Digest = FIRST, target: dict[str, Any] | None = None, **changes: Any
    ) -> Any:
        """Sign exactly what waits; keyword arguments replace fields of what is signed, `target` whom it is for."""
        one = self.book.ledger.requests[request]
        server, _, name = one.tool.partition(".")
        values: dict[str, Any] = {
            "request_id": request, "tool": server, "op": name, "account": one.account, "resources": one.resources,
            "args_digest": one.args_digest, "tool_digest": one.tool_digest,
        }  # fmt: skip
        about = {"cn": one.cn, "generation": one.generation} | (target or {})
        return self.say(self.statement(Approval(**(values | changes)), **about), signer)

    def act(self, name: str = "send", arguments: Any = None, **more: Any) -> str:
        """Asked for and approved: an act that waits."""
        found: str = self.approve(self.asked(name, SEND if arguments is None else arguments, **more))
        assert found in self.book.ledger.acts, found
        return found

    def lease(self, account: str = "mail", seconds: int = 90, ops: int = 20, *, request: str = "", **more: Any) -> Any:
        signer = more.pop("signer", FIRST)
        return self.say(self.statement(LeaseAction(account, seconds, ops, request), **more), signer)

    def opened(self, seconds: int = 90, ops: int = 20, **more: Any) -> str:
        """A lease for which a read asked."""
        found: str = self.lease("mail", seconds, ops, request=self.asked("read"), **more)
        assert found in self.book.ledger.leases, found
        return found

    def tool_call(self, name: str, arguments: Any, *, cn: Cn = A, consumed: bool = True, **more: Any) -> Any:
        """A signed tool_call, consumed by its agent; its id, or why it was refused."""
        id = self.say(self.statement(BoundAction("tool_call", "s", name, arguments), cn=cn, **more))
        if consumed and not isinstance(id, Reason):
            who = caller(cn, self.generation(cn))
            decision = consume.consume(
                self.book, self.at, caller=who, raw_id=id, attempt="", standing=self.standing, repeat_s=60
            )
            assert isinstance(self.take(decision), bytes)
        return id

    def deny(self, request: str, note: str = "") -> Any:
        return self.take(consent.deny(self.book, self.at, order=self.order("request_deny"), id=request, note=note))

    def apply(self, scope: str = "instance", **changes: Any) -> Any:
        raw = policy.encode(policy.of(a_policy(**changes)))
        return self.take(
            orders.apply_policy(self.book, self.at, order=self.order("policy_apply"), scope=scope, raw=raw)
        )

    def accept(self, *tools: PinnedTool) -> Any:
        raw = accepted.encode(tools[0].server, tools)
        return self.take(orders.accept_tools(self.book, self.at, order=self.order("tools_accept"), raw=raw))

    def see(self, *tools: PinnedTool) -> Any:
        return self.take(orders.see_tools(self.book, self.at, server="s", seen=tools))

    def uphold(self, standing: Standing) -> None:
        """allowed_signers has changed: what the daemon does before the next decision."""
        self.standing = standing
        self.take(consume.uphold(self.book, self.at, standing=standing))

    def lapse(self, elapsed_s: Mapping[str, float] | None = None, waited_s: Mapping[str, float] | None = None) -> Any:
        return self.take(closing.lapse(self.book, self.at, elapsed_s=elapsed_s or {}, waited_s=waited_s or {}))

    def run(self, cn: Cn = A) -> Run:
        found = caller_steps.started_run(self.book, caller(cn, self.generation(cn)))
        assert found
        return found

    # --- what is there

    def last(self, kind: type[T]) -> T:
        """The newest fact of a kind."""
        return next(record.fact for record in reversed(self.records) if isinstance(record.fact, kind))

    def facts(self, kind: type[T]) -> list[T]:
        """All of a kind, in order."""
        return [record.fact for record in self.records if isinstance(record.fact, kind)]

    def count(self, kind: type) -> int:
        return sum(isinstance(record.fact, kind) for record in self.records)

    def the_act(self, id: str) -> Act:
        return self.book.ledger.acts[id]

    def the_lease(self, id: str) -> Lease:
        return self.book.ledger.leases[id]

    def claim(self, claimed: Claimed) -> Claim:
        return self.book.ledger.claims[claimed.claim]

    # --- starting again

    def read_again(self) -> Book:
        """The book as a start reads it from what was written."""
        book = Book(DEMO)
        for record in self.records:
            book.apply(record, None)
        book.fill(self.bytes.__getitem__)
        return book

    def restart(self) -> None:
        """As after kill -9: read what was written, settle what was open."""
        self.book = self.read_again()
        self.take(closing.settle(self.book, self.at, started=STARTED))

    def check(self) -> None:
        """What a start reads is what was there, once its first turn has forgotten; and so is what a snapshot holds."""
        again = self.read_again()
        for book in (again, self.book):
            book.forget(self.at, book.records + 1)
        kept = ledger_image.of(self.book.ledger)
        assert ledger_image.of(again.ledger) == kept
        assert ledger_image.of(image.book(DEMO, image.of(self.book)).ledger) == kept
