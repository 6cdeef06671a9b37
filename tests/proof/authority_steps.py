"""The steps of the story of authority: each is one turn of a real rule, and knows what its answer promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.errors import Reason
from broker.rules.authority import closing, consent, orders
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.entries import RequestState
from broker.rules.authority.passage import Claimed, Passing, Repeated, pass_on
from broker.rules.decision import Decision
from broker.wire.caller import Caller
from broker.wire.names import Digest, Instant
from broker.wire.policy import Policy
from broker.wire.statement import Action
from broker.wire.times import SECOND
from tests.proof import authority_promises as holding
from tests.proof import promises
from tests.proof.authority_cast import WHO, approval, frozen_of, passing, reading
from tests.proof.cast import FIRST, TERMS, A, operator, order, signed_statement
from tests.proof.life import LEASES, Promise
from tests.proof.scenario import Story

Rule = Callable[..., Decision[Any]]


@dataclass(eq=False)
class AuthoritySteps(Story):
    """calls: by run, how many were acknowledged. made: the call of each claim, and when it was claimed.

    spent: by claim, its consent. granted: the bytes of each act and lease. going: each agent's run. paths: of each
    request. keys: of all promises of requests and acts, which a clock that is set back or a restore may end.
    """

    calls: dict[str, int] = field(default_factory=dict)
    made: dict[str, tuple[Passing, Instant]] = field(default_factory=dict)
    spent: dict[str, str] = field(default_factory=dict)
    granted: dict[str, bytes] = field(default_factory=dict)
    going: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    async def do(
        self, op: str, rule: Rule, keeps: Iterable[Promise] = (), *, ends: Iterable[str] = (), **params: Any
    ) -> Any:
        """A signed envelope: it works once."""
        envelope = order(op, self.at, f"{op} {self.at}")
        keeps = [*keeps, promises.spent(envelope)]
        return await self.take(op, partial(rule, order=envelope, **params), keeps, ends)

    async def apply(self, scope: str, policy: Policy) -> None:
        keeps = [holding.in_force(scope, policy.digest)]
        await self.do("policy_apply", orders.apply_policy, keeps, scope=scope, raw=policy.raw, ends={f"policy {scope}"})

    async def call(
        self,
        word: str,
        tool: str,
        path: str = "",
        *,
        call_id: str = "",
        who: Caller = WHO,
        ends: Iterable[str] = (),
    ) -> Any:
        """A tool call, whatever comes of it. word: its own name, and that of all that it begins."""
        call = passing(tool, path, word=word, call_id=call_id, who=who)
        at = self.at

        def keeps(answer: Any) -> Iterable[Promise]:
            match answer:
                case Claimed(claim):
                    return self._claimed(claim, call, at)
                case ConsentRequired(request):
                    self.keys.add(f"request {request.request}")
                    self.paths[request.request] = path
                    return [holding.waits(request.request, frozen_of(path).raw)]
                case _:
                    return ()

        self.at = Instant(self.at + SECOND)
        ends = {LEASES, f"calls {self.going.get(who.cn, f'run-{word}')}", *ends}
        take = self.life.turn.take(partial(pass_on, passing=call), at)
        return await self.life.ask(f"call {word}", take, keeps=keeps, ends=ends)

    def _claimed(self, claim: str, call: Passing, at: Instant) -> Iterable[Promise]:
        known = self.life.turn.book.ledger.claims[claim]
        assert claim not in self.made, f"{claim} was made twice"
        self.made[claim], self.spent[claim], self.going[known.cn] = (call, at), known.consent, known.run
        self.calls[known.run] = self.calls.get(known.run, 0) + 1
        yield holding.begun(claim, call, at)
        yield holding.counted(known.run, self.calls[known.run])
        kind, _, id = known.consent.partition("/")
        if kind == "act":
            assert self.spent[claim] not in [self.spent[other] for other in self.made if other != claim], "spent twice"
            yield holding.spent(id, claim, call, at)
        elif kind == "lease":
            used = sum(consent == known.consent for consent in self.spent.values())
            yield holding.leased(id, used, self.granted[id])

    async def claim(self, word: str, tool: str, path: str = "", *, spends: str, **how: Any) -> None:
        """A call that is carried out."""
        kind, _, id = spends.partition("/")
        answer = await self.call(word, tool, path, ends={f"act {id}"} if kind == "act" else (), **how)
        if answer is not None:
            assert isinstance(answer, Claimed), f"{word}: {answer}"
            assert self.spent[answer.claim] == spends

    async def asks(self, word: str, tool: str, path: str = "", *, request: str = "", **how: Any) -> None:
        """A call that only the operator's consent is missing to. request: the one that waits for it already."""
        answer = await self.call(word, tool, path, **how)
        if answer is not None:
            assert isinstance(answer, ConsentRequired), f"{word}: {answer}"
            assert answer.request.request == f"request-{request or word}"

    async def repeated(self, word: str, keeps: Iterable[Promise] = ()) -> None:
        """The same call under the same call_id is not made again."""
        if self.life.disk.struck:
            return
        call, _ = self.made[f"claim-{word}"]
        answer = await self.take(f"repeat {word}", partial(pass_on, passing=call), keeps)
        assert answer is None or isinstance(answer, Repeated), f"{word}: {answer}"

    async def end(self, word: str, outcome: str, *, answer: bytes = b'{"content":[{"type":"text"}]}') -> None:
        """What came of a call. Of one that was provably never sent, all that it spent is there again."""
        if self.life.disk.struck:
            return
        claim = f"claim-{word}"
        (call, at), spent = self.made[claim], self.spent[claim]
        run, told = self.going[A], call.call_id or spent.startswith("act/")  # else nobody can ask for its answer
        keeps, ends = [holding.came_to(claim, outcome, answer if told else b"", at)], set[str]()
        if outcome == "not_dispatched":
            self.calls[run] -= 1
            kind, _, id = spent.partition("/")
            keeps.append(holding.counted(run, self.calls[run]))
            ends = {f"calls {run}", f"begun {claim}", f"spent {id}", LEASES}
            self.spent[claim] = ""
            if kind == "act":
                keeps.append(holding.active(id, self.granted[id]))
        decide = partial(closing.end, claim=claim, outcome=outcome, answer=answer)
        await self.take(f"end {word}", decide, keeps, ends)

    async def settled(self, word: str) -> None:
        """What was begun before a start has come to nothing that anybody knows, and a late end changes nothing."""
        claim = f"claim-{word}"
        _, at = self.made[claim]
        await self.repeated(word, [holding.came_to(claim, "outcome_unknown", b"", at)])
        late = partial(closing.end, claim=claim, outcome="done", answer=b"{}")
        assert await self.take(f"late {word}", late) in ("outcome_unknown", None)

    async def approve(self, word: str, act: str, *, signer: Digest = FIRST, lasts_s: int = 3600) -> None:
        """The operator signs exactly what waits."""
        request = f"request-{word}"
        decide = self._grant(act, approval(request, self.paths.get(request, "")), signer=signer, lasts_s=lasts_s)
        keeps = [
            holding.active(act, self.granted[act]),
            holding.resolved(request, RequestState.APPROVED, self.at),
            holding.answered(request),
            promises.refused(decide),
        ]
        self.keys.add(f"act {act}")
        granted = await self.take(f"approve {word}", decide, keeps, {f"request {request}"})
        assert granted is None or isinstance(granted, consent.Granted), granted

    async def not_approved(self, word: str, reason: Reason) -> None:
        request = f"request-{word}"
        decide = self._grant(f"again-{word}", approval(request, self.paths.get(request, "")))
        await self.refused(f"approve {word} again", decide, reason)

    async def lease(self, lease: str, *, request: str = "", replaces: str = "") -> None:
        """The operator signs `read now`."""
        decide = self._grant(lease, reading(f"request-{request}" if request else ""))
        keeps = [holding.leased(lease, 0, self.granted[lease])]
        keeps += [holding.closed(replaces)] if replaces else []
        ends = {LEASES, f"request request-{request}"}
        granted = await self.take(lease, decide, keeps, ends)
        assert granted is None or isinstance(granted, consent.Granted), granted

    def _grant(self, id: str, action: Action, **how: Any) -> promises.Decide:
        verified, statement = signed_statement(id, self.at, action=action, **how)
        self.granted[id] = verified.raw
        asked = operator("send", id)
        return partial(consent.grant, request=asked, verified=verified, statement=statement, terms=TERMS)

    async def deny(self, word: str, path: str) -> None:
        request, call = f"request-{word}", passing("write_file", path)
        keeps = [*holding.denied(request, call, self.at), holding.answered(request)]
        ends = {f"request {request}"}
        await self.do("request_deny", consent.deny, keeps, id=request, note="Not today.", ends=ends)
        await self.refused("denied", partial(pass_on, passing=call), Reason.REQUEST_DENIED)

    async def begin_run(self, run: str) -> None:
        """The operator begins an agent's run anew: nothing is used of it, and the one before is over."""
        last = self.going.get(A, "")
        self.going[A], self.calls[run] = run, 0
        keeps = [holding.counted(run, 0), *([holding.stopped(last)] if last else [])]
        await self.do("run_new", orders.new_run, keeps, cn=A, run=run, ends={f"calls {last}", LEASES})
