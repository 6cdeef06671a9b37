"""What an agent's client is answered to a tool call: MCP's CallToolResult, as plain JSON.

Refusals are results with `isError`, so that no client holds them against the tool's own output schema.
"""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

from broker.errors import Malformed
from broker.wire import catalogue, names, times
from broker.wire.names import Instant

Result = dict[str, Any]
SEPARATOR: Final = "__"
_NONE: Final = "there is none of that name"
NO_SUCH_TOOL: Final = f"{_NONE}; the list of tools has those that you may call or ask for"
_HOW = {
    "act": "exactly this call, once",
    "lease": "reading this account for a short while",
}
_KEPT: Final = "the lease keeps its last operation for the read that asked first; "


class Waiting(Protocol):
    """A request, as far as an agent is told of it."""

    @property
    def request(self) -> str: ...
    @property
    def regime(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def expires_at(self) -> Instant: ...
    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def note(self) -> str: ...


def qualified(name: str) -> str:
    """`server.tool`, from the name that an agent calls it by: `server__tool`. Raises Malformed."""
    server, separator, tool = name.partition(SEPARATOR)
    if not separator:
        raise Malformed("tool", f"{_NONE}; agents write {_as_agents_write(name)}")
    return f"{catalogue.server_name(server, 'tool')}.{names.tool_word(tool, 'tool')}"


def _as_agents_write(name: str) -> str:
    """For a name as policies write it, the one that was meant."""
    server, _, tool = name.partition(".")
    try:
        return name_of(catalogue.server_name(server, "tool"), names.tool_word(tool, "tool"))
    except Malformed:
        return name_of("server", "tool")


def name_of(server: str, tool: str) -> str:
    """The name that an agent calls it by."""
    return f"{server}{SEPARATOR}{tool}"


def refused(code: str, text: str, **more: Any) -> Result:
    """Not done, and why."""
    return said({"code": code, "message": text, **more}) | {"isError": True}


def consent_required(request: Waiting, other_arguments: bool) -> Result:
    """Only the operator is missing."""
    text = f"the operator has to allow {_HOW.get(request.regime, request.regime)}; they have been asked"
    if other_arguments:
        text += " (what was allowed before was for different arguments)"
    kept = _KEPT if request.regime == "lease" and request.tool else ""  # by itself a lease is asked for by no read
    return refused(
        "consent_required",
        text,
        request_id=request.request,
        regime=request.regime,
        reason=request.reason,
        expires_at=times.show(request.expires_at),
        retry="once it is allowed, make the same call with the same arguments, and with the same call_id if it had "
        f"one; {kept}request_status tells how it stands. Do not repeat it in a loop.",
    )


def said(values: dict[str, Any]) -> Result:
    """Done, in a few values."""
    return {"content": [{"type": "text", "text": _told(values)}], "structuredContent": values}


def with_more(result: Result, more: dict[str, Any]) -> Result:
    """A result of ours with further values, in both of its forms."""
    return result | said(result["structuredContent"] | more)


def status(request: Waiting, state: str) -> Result:
    """How a request stands: its own state, that of the act that answered it, or `running`."""
    told: dict[str, Any] = {
        "request_id": request.request,
        "state": state,
        "expires_at": times.show(request.expires_at),
    }
    if request.note:
        told["operator_note"] = request.note
    return said(told)


def words(text: str) -> bytes:
    """An answer that is a sentence of ours: what is stored of a call that upstream answered nothing to."""
    return json.dumps({"content": [{"type": "text", "text": text}], "isError": True}, ensure_ascii=False).encode()


def of(outcome: str, answer: bytes, *, anew: bool = False) -> Result:
    """What came of a call. answer: as it was stored; empty where its bytes are not kept; anew: may it be made again?"""
    stored: Result = json.loads(answer) if answer else {"content": []}
    if outcome in ("done", "failed"):
        text = f"this call was made ({outcome}), and its answer is not kept"
        text += ": make the read anew, under another call_id or none" if anew else ""
        return stored if answer else refused("answer_not_kept", text, outcome=outcome)
    return refused(outcome, _text_of(stored) or outcome.replace("_", " "))


def _text_of(stored: Result) -> str:
    """What `words` made; of a journal that another wrote whatever is text in it."""
    content = stored.get("content")
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return " ".join(text for text in parts if isinstance(text, str))


def _told(said: dict[str, Any]) -> str:
    return json.dumps(said, ensure_ascii=False, indent=2)
