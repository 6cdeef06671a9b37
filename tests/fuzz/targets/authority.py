"""What lets an agent act, as it arrives: policies, accepted tools, calls, operands, and what the operator attaches."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.config import ConfigError, expected_file, policy_file
from broker.config.expected_file import Expected
from broker.errors import Malformed
from broker.wire import (
    accepted,
    bodies,
    catalogue,
    frozen,
    json_pointer,
    mcp_shapes,
    names,
    operands,
    own_tools,
    policy,
    strict_json,
    tool_results,
)
from broker.wire.frozen import Frozen
from broker.wire.operands import Kind
from broker.wire.policy import Policy
from tests.fuzz.place import folder, put
from tests.fuzz.target import Target
from tests.policy.samples import WHOLE, tool
from tests.policy.test_policy_file import ROOT
from tests.vectors.policy_files import GOOD
from tests.wire import samples, vectors

_TOOLS = (tool("files.read", {"properties": {"path": {"type": "string"}}}), tool("files.write", destructiveHint=True))
_CATALOGUE = json.dumps({"files": [one.definition for one in _TOOLS]}).encode()
_POLICIES = ROOT / "docs" / "policies"
_BEST = ("broker.wire.json_pointer.parse", "broker.wire.catalogue.server_name", "broker.wire.names.digest")
_REVISIONS = ("2025-06-18", "2025-11-25")
_ARGUMENTS = (b'{"a":[1,2.5,"\\u20ac",{"b":null}],"path":"/srv/a"}', b"{}", b'{"B":1,"a":1e21}')
_PATHS = (b'"/srv/project/file.txt"', b'"src/\\u00e9.py"', b'"C:x"', b'"a/../b"', b'"a/"')
_HOSTS = (b'"https://Example.com:8443/x?y#z"', b'"[2001:DB8::1]:443"', b'"192.0.2.1"', b'"user@example.com"')


def _json(parse: Callable[[Any], object]) -> Callable[[bytes], object]:
    """As the strict reader hands it over."""
    return lambda raw: parse(strict_json.parse(raw, "body"))


def _word(raw: bytes) -> object:
    """Any JSON value in the place of a pointer, a server's name, a digest."""
    value = strict_json.parse(raw, "body")
    parses = json_pointer.parse, catalogue.server_name, partial(names.digest, where="digest")
    for parse in parses:
        try:
            return parse(value)
        except Malformed as error:
            refused = error
    raise refused


def _operand(kind: Kind) -> Callable[[bytes], object]:
    """The operand's one form, which has no other form again."""

    def parse(raw: bytes) -> object:
        found = operands.normal(kind, strict_json.parse(raw, "body"))
        if (again := operands.normal(kind, found)) != found:
            raise AssertionError(f"{found!r} becomes {again!r}")
        return found

    return parse


def _own(value: Any) -> own_tools.Call:
    match value:
        case [str(name), arguments]:
            return own_tools.parse(name, arguments)
        case _:
            raise Malformed("call", "none")


def _qualified(raw: bytes) -> str:
    """A name that an agent calls: whatever comes of it names one server and one tool, and is spelt so again."""
    name = raw.decode("utf-8", "replace")
    found = tool_results.qualified(name)
    server, _, called = found.partition(".")
    if tool_results.name_of(server, called) != name:
        raise AssertionError(f"{name!r} becomes {found!r}")
    return found


def _upstream(raw: bytes) -> object:
    """An upstream's result, as it is stored and told to each revision of the protocol."""
    result = strict_json.as_object(strict_json.parse(raw, "answer"), "answer")
    stored = tool_results.of("done", raw)
    if stored != result:
        raise AssertionError("told otherwise than it came")
    return [mcp_shapes.result(result, revision) for revision in _REVISIONS]


def _stored(raw: bytes) -> object:
    """What is told of a call that nobody knows the end of: whatever is stored of it."""
    strict_json.as_object(strict_json.parse(raw, "answer"), "answer")
    return [tool_results.of(outcome, raw) for outcome in ("not_dispatched", "outcome_unknown")]


def _meta(value: Any) -> tuple[str, int]:
    return mcp_shapes.said_of(strict_json.as_object(value, "_meta"))


def _file(name: str, load: Callable[..., object]) -> Callable[[bytes], object]:
    """Reads a file with these bytes."""
    path = folder("policies") / name
    for beside in ("policy.yaml", "catalogue.json"):
        put(path.with_name(beside), (_POLICIES / beside).read_bytes())

    def parse(raw: bytes) -> object:
        put(path, raw)
        return load(path)

    return parse


_CALL = b'{"name":"files__read","arguments":{"path":"/a"},"call_id":"c-1","wait_s":3}'
_MESSAGE = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__b","arguments":{"n":5},"_meta":{}}}'
_USAGE = b'{"run":"r-1","gen_ai.usage.input_tokens":3,"gen_ai.usage.output_tokens":4,"cost_micro":5}'
_ATTACHED = b'{"envelope":"%s","signature":"%s","attachment":"%s"}' % tuple(
    map(base64.b64encode, (samples.ENVELOPE, vectors.taken("sshsigs")[0], WHOLE.raw))
)

TARGETS = (
    Target("policy", ("broker.wire.policy.parse",), policy.parse,
           (WHOLE.raw, policy_file.load(_POLICIES / "policy.yaml").raw), Policy, again=policy.encode,
           same=lambda one: policy.of(json.loads(one.raw)), tries=800),
    Target("policy in any spelling", (), lambda raw: policy.of(strict_json.parse(raw, "policy")), (WHOLE.raw,),
           Policy, same=lambda one: policy.parse(one.raw), tries=800),
    Target("policy file", ("broker.config.policy_file.load", "broker.config.policy_file.read",
                           "broker.config.policy_file.read_bytes"),
           _file("tried.yaml", policy_file.load),
           (GOOD.encode(), (_POLICIES / "office.yaml").read_bytes()), Policy, (ConfigError,),
           same=lambda one: policy.parse(one.raw), tries=100),
    Target("expected decisions", ("broker.config.expected_file.load",),
           _file("tried.expected.yaml", expected_file.load),
           ((_POLICIES / "policy.expected.yaml").read_bytes(),), Expected, (ConfigError,), tries=40),
    Target("catalogue file", ("broker.config.expected_file.load_catalogue", "broker.wire.catalogue.read"),
           _file("tried.json", expected_file.load_catalogue), (_CATALOGUE,), dict, (ConfigError,), tries=400),
    Target("accepted tools", ("broker.wire.accepted.parse", "broker.wire.server_identity.read"), accepted.parse,
           (accepted.encode("files", _TOOLS),), tuple, same=lambda value: accepted.parse(accepted.encode(*value)),
           tries=800),
    Target("words of authority", _BEST, _word,
           (b'"/to/*/address"', b'"/a~1b/~0"', b'"files-2"', b'"' + b"0f" * 32 + b'"')),
    Target("path", ("broker.wire.operands.path", "broker.wire.operands.folder"), _operand(Kind.PATH), _PATHS[:2], str),
    Target("host", ("broker.wire.operands.host",), _operand(Kind.HOST), _HOSTS[:3], str),
    Target("identifier", ("broker.wire.operands.identifier",), _operand(Kind.ID), (b'"a-1"', b"5"), str | int),
    Target("frozen arguments", ("broker.wire.frozen.thaw",), frozen.thaw,
           tuple(frozen.freeze(json.loads(raw)).raw for raw in _ARGUMENTS), Frozen,
           again=lambda value: value.raw, same=lambda value: frozen.freeze(value.value)),
    Target("arguments", (), _json(frozen.freeze), _ARGUMENTS, Frozen, same=lambda value: frozen.thaw(value.raw)),
    Target("call of an own tool", ("broker.wire.own_tools.parse",), _json(_own),
           (b'["lease_request",{"account":"mail","minutes":3}]', b'["lease_release",{"account":"mail"}]',
            b'["request_status",{"request_id":"r-1"}]')),
    Target("name of a tool", (), _qualified, (b"files__read", b"a-b__c.d:e"), str),
    Target("answer of a tool", ("broker.wire.mcp_shapes.result", "broker.wire.mcp_shapes.told"), _upstream,
           (b'{"content":[{"type":"text","text":"x"}],"isError":false,"structuredContent":{"a":1}}',
            b'{"content":[{"type":"image","data":"AA==","mimeType":"image/png"}]}', b'{"content":[]}'),
           list, tries=400),
    Target("stored answer", (), _stored, (tool_results.words("the server can't be reached"), b'{"content":true}',
           b'{"content":[true,{"text":1}]}'), list),
    Target("_meta of a call", (), _json(_meta), (b'{"lever.dev/call_id":"c-1","lever.dev/wait_s":3}',), tuple),
    Target("body of call", ("broker.wire.bodies.call_body",), bodies.call_body, (_CALL,), bodies.CallBody),
    Target("message to /mcp", ("broker.wire.bodies.mcp_body",), bodies.mcp_body, (_MESSAGE,), tries=100),
    Target("body of usage", ("broker.wire.bodies.usage_body",), bodies.usage_body,
           (_USAGE, _USAGE.replace(b"run", b"agent")), bodies.UsageBody),
    Target("envelope with an attachment", ("broker.wire.bodies.attached_pair",),
           lambda raw: bodies.attached_pair(raw, 65536), (_ATTACHED,), tuple, tries=600),
)  # fmt: skip
