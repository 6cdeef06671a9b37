"""The client of the agent door: TLS 1.3 with the instance's own CA and nothing else, small answers, short waits."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import httpx2

from broker.errors import Malformed
from broker.wire import times
from broker.wire.bodies import CALL_BODY_MAX_BYTES
from broker.wire.names import DirectiveId, Instant
from lever.agent import answers
from lever.agent.answers import Consumed, Result, Waiting
from lever.agent.failures import Barred, Missed, NotReachable, RateLimited, Unverified

CONNECT_S = 4.0
READ_S = 8.0
LIST_S = 3.0
"""A harness that starts waits for its tools, with the broker there or not."""
CALL_S = 310.0
"""The broker ends every call within 300 s."""
_INVITE = "ask the operator for a new invite: lever agent invite NAME"
_OF_ANOTHER_TIME = {9: "begins later", 10: "has ended"}
"""OpenSSL's verdicts on a certificate's dates. A broker renews its own in time, so it is one of the two clocks."""
_NOT_OURS = ("CERTIFICATE", "UNKNOWN_CA", "DECRYPT_ERROR")
"""In the TLS alerts about a certificate; the last is another CA of the same name, as after a second `lever init`."""
_T = TypeVar("_T")


def context(ca_pem: bytes, identity_file: Path | None = None) -> ssl.SSLContext:
    """TLS 1.3, the server checked by this CA and its name, our certificate from the identity file as it is now."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.load_verify_locations(cadata=ca_pem.decode("ascii"))
    if identity_file is not None:
        made.load_cert_chain(identity_file)
    return made


class Door:
    """One caller's connection to the agent door. Every method raises the failures of lever.agent.failures."""

    def __init__(self, url: str, tls: ssl.SSLContext, *, connect_s: float = CONNECT_S, read_s: float = READ_S) -> None:
        self._url = url
        self._read_s = read_s
        self._timeout = httpx2.Timeout(connect_s, read=read_s)
        self._client = httpx2.Client(
            verify=tls,
            trust_env=False,
            http1=True,
            http2=False,
            timeout=self._timeout,
            # A compressed answer could grow without bound after its size was checked.
            headers={"accept-encoding": "identity", "user-agent": "lever"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def enrol(self, ticket: str, csr: str) -> bytes:
        """The certificate (PEM) for a ticket and a certificate request."""
        return self._read(answers.certificate, self._post("/enrol", {"ticket": ticket, "csr": csr}))

    def renew(self, csr: str) -> bytes:
        """The certificate (PEM) that follows the one this connection shows."""
        return self._read(answers.certificate, self._post("/renew", {"csr": csr}))

    def consume(self, id: DirectiveId, attempt: str) -> Consumed:
        """The action, once; the same attempt gets it again for a minute."""
        raw = self._post("/directive/consume", {"id": id, "attempt": attempt})
        return self._read(lambda body: answers.consumed(body, id), raw)

    def check(self, id: DirectiveId) -> str:
        """The state of a directive of the caller's own."""
        return self._read(lambda body: answers.state(body, id), self._post("/directive/check", {"id": id}))

    def report(self, id: DirectiveId, outcome: str, note: str) -> str:
        """Tell the operator what came of a consumed directive; the outcome that is written down."""
        body = {"id": id, "outcome": outcome} | ({"note": note} if note else {})
        return self._read(lambda raw: answers.reported(raw, id), self._post("/directive/report", body))

    def inbox(self, wait_s: int, after: Instant | None, *, requests: bool = False) -> tuple[Waiting, ...]:
        """The open pointers, or those newer than `after`; waits up to wait_s for one to come.

        requests: that of a settled request ends the wait, too.
        """
        query: dict[str, str] = {"wait": str(wait_s)} if wait_s else {}
        if after is not None:
            query["after"] = times.show(after)
        if requests:
            query["requests"] = "1"
        path = "/inbox" + ("?" + urlencode(query) if query else "")
        return self._read(answers.pointers, self._call("GET", path, None, self._read_s + wait_s))

    def tools(self) -> list[dict[str, Any]]:
        """The definitions of the brokered tools that the caller may call or ask for; soon, or not at all."""
        raw = self._call("GET", "/tools", None, LIST_S, connect_s=LIST_S, max_bytes=answers.MAX_RESULT_BYTES)
        return self._read(answers.tools, raw)

    def call(self, name: str, arguments: dict[str, Any], call_id: str, wait_s: int) -> Result:
        """What a tool call came to, refusals too; under the same call_id it is carried out once. Raises Malformed."""
        body = {"name": name, "arguments": arguments, "call_id": call_id, "wait_s": wait_s}
        raw = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        if len(raw) > CALL_BODY_MAX_BYTES:
            raise Malformed("arguments", f"{len(raw)} bytes with what goes with them, more than {CALL_BODY_MAX_BYTES}")
        answer = self._call("POST", "/tools/call", raw, CALL_S + wait_s, max_bytes=answers.MAX_RESULT_BYTES)
        return self._read(answers.result, answer)

    def _post(self, path: str, body: dict[str, str]) -> bytes:
        return self._call("POST", path, json.dumps(body).encode(), self._read_s)

    def _read(self, parse: Callable[[bytes], _T], raw: bytes) -> _T:
        try:
            return parse(raw)
        except Malformed as error:
            raise Unverified(
                f"the broker's answer is not the protocol's: {error}",
                hint="compare `lever --version` here and at the broker",
            ) from error

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        read_s: float,
        *,
        connect_s: float | None = None,
        max_bytes: int = answers.MAX_BYTES,
    ) -> bytes:
        headers = {"content-type": "application/json"} if body is not None else {}
        try:
            with ExitStack() as stack:
                response = stack.enter_context(
                    self._client.stream(
                        method,
                        self._url + path,
                        content=body,
                        headers=headers,
                        timeout=httpx2.Timeout(connect_s or self._timeout.connect, read=read_s),
                    )
                )
                content = _content(response, max_bytes)
        except httpx2.TransportError as error:
            raise self._no_answer(error) from error
        return self._accepted(response.status_code, content)

    def _accepted(self, status: int, content: bytes) -> bytes:
        """The body of a 200; every other status is a failure with its own words."""
        if status == 200:
            return content
        if status == 404:
            raise Missed
        if status == 403:
            raise Barred("the broker refused (403): it does not say why", hint=_INVITE)
        if status == 429:
            raise RateLimited("the broker refused: too many calls (429)", hint="wait a minute, then try again")
        if status >= 500:
            raise NotReachable(
                f"the broker at {self._url} can't answer now ({status})", sent=True, hint="lever broker status, there"
            )
        raise Unverified(
            f"the broker does not know this kind of request ({status})",
            hint="compare `lever --version` here and at the broker",
        )

    def _no_answer(self, error: httpx2.TransportError) -> Exception:
        cause = _tls_error(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            if when := _OF_ANOTHER_TIME.get(cause.verify_code):
                return Unverified(
                    f"by this machine's clock the certificate of the server at {self._url} {when}: one of the two "
                    "clocks is wrong",
                    hint="compare `date -u` here and at the broker; set the clock that is wrong, then try again",
                )
            return Unverified(
                f"the server at {self._url} is not the broker of this identity: {cause.verify_message}",
                hint="check the address; if the broker has a new CA, ask the operator for a new invite",
            )
        alert = (cause.reason or "") if cause is not None else ""
        if "ALERT" in alert and any(word in alert for word in _NOT_OURS):
            return Barred(f"the broker does not take this certificate ({_words(alert)})", hint=_INVITE)
        sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        if cause is not None and not sent:
            return Unverified(f"no TLS 1.3 with {self._url}: {_words(alert) or cause}", hint="check the address")
        what = "gave no answer" if sent else "can't be reached"
        return NotReachable(
            f"the broker at {self._url} {what}: {str(error) or type(error).__name__}",
            sent=sent,
            hint="is it running, and does this machine reach it? At the broker: lever broker status",
        )


def _content(response: httpx2.Response, max_bytes: int) -> bytes:
    """The body as it came over the wire, capped while it comes. Raises Unverified."""
    content = bytearray()
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Unverified("the broker's answer is compressed, which was not asked for")
    for chunk in response.iter_raw():
        content += chunk
        if len(content) > max_bytes:
            raise Unverified(f"the broker's answer is larger than {max_bytes} bytes")
    return bytes(content)


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """The TLS failure beneath a transport failure, if there is one."""
    beneath: Any = error
    while beneath is not None and not isinstance(beneath, ssl.SSLError):
        beneath = beneath.__cause__ or beneath.__context__
    return beneath if isinstance(beneath, ssl.SSLError) else None


def _words(alert: str) -> str:
    return alert.replace("_", " ").lower()
