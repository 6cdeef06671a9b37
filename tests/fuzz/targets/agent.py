"""What the agent's side reads of a broker's answers."""

from __future__ import annotations

from broker.wire import answers as broker_answers
from broker.wire.names import DirectiveId, Instant
from lever.agent import answers
from tests.fuzz.target import Target
from tests.vectors.csrs import authority_pem
from tests.wire import samples

_ID = DirectiveId("d-1")

TARGETS = (
    Target("answer to enrol", ("lever.agent.answers.certificate",), answers.certificate,
           (broker_answers.certificate(authority_pem().encode()),), bytes),
    Target("answer to consume", ("lever.agent.answers.consumed",), lambda raw: answers.consumed(raw, _ID),
           (broker_answers.consumed(samples.STATEMENT), broker_answers.consumed(samples.INSTRUCTION)),
           answers.Consumed),
    Target("answer to check", ("lever.agent.answers.state",), lambda raw: answers.state(raw, _ID),
           (broker_answers.checked(_ID, "active"),), str),
    Target("answer to report", ("lever.agent.answers.reported",), lambda raw: answers.reported(raw, _ID),
           (broker_answers.reported(_ID, "done"),), str),
    Target("answer to inbox", ("lever.agent.answers.pointers",), answers.pointers,
           (broker_answers.pointers([(_ID, Instant(1_767_225_600_000_000))]),), tuple),
    Target("answer to tools", ("lever.agent.answers.tools",), answers.tools,
           (b'{"tools":[{"name":"files__read","inputSchema":{"type":"object"}}]}',), list),
    Target("answer to call", ("lever.agent.answers.result",), answers.result,
           (b'{"content":[{"type":"text","text":"x"}],"isError":true}',), dict),
)  # fmt: skip
