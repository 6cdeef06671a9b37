"""Texts that would act on a terminal, a log or a reader, and how the tests look at what was written."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from tests.cli.conftest import Cli
from tests.rig import Rig

HOSTILE = {
    "colour": "\x1b[31mred",
    "clears the screen": "\x1b[2J\x1b[H",
    "window title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x1b\\",
    "C1 control sequence": "\x9b2J",
    "C1 operating system command": "\x9d0;owned\x9c",
    "next line": "a\x85b",
    "carriage return": "good\rerror: bad",
    "backspace": "ab\x08\x08cd",
    "vertical tab and form feed": "a\x0bb\x0cc",
    "delete": "a\x7fb",
    "line separator": "a\u2028b",
    "paragraph separator": "a\u2029b",
    "right-to-left override": "\u202efdp.exe",
    "isolate": "\u2066a\u2069",
    "zero-width space": "ro\u200bot",
    "zero-width joiner": "a\u200db",
    "byte order mark": "\ufeffa",
    "tag characters": "a\U000e0041\U000e0042",
    "soft hyphen": "a\u00adb",
    "no-break space": "a\u00a0b",
    "pile of marks": "a" + "\u0301\u0336\u20dd" * 20,
    "markup": "[bold]x[/] [/red] [link=https://evil.example]y[/link] :smile:",
    "placeholders": "%s %n %(message)s {} {0} {text} {agent.__class__} $HOME `id` $(id)",
}
NOT_AS_ARGUMENT = {"nul": "a\x00b", "lines": 'a\nerror: b\n{"level":"INFO"}'}
WORD = "<" + "><".join(HOSTILE.values()) + ">"
TEXT = WORD + "<" + "><".join(NOT_AS_ARGUMENT.values()) + ">"
HOW = ["piped, colour forced", "on a terminal"]
OUR_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SENTENCE = re.compile(
    r"Operator directive ([A-Za-z0-9._-]{1,64}) is waiting\. If you decide to act on it, call the tool "
    r'directive_consume with id "([A-Za-z0-9._-]{1,64})"\.'
)


def hidden(text: str) -> set[str]:
    """What a terminal would obey, or not show: this test's own reading of Unicode."""
    found = {c for c in text if c != "\n" and c != " " and unicodedata.category(c)[0] in "CZ"}
    piles = re.findall(r"[\u0300-\u036f\u20d0-\u20ff]{5,}", text)
    return found | set("".join(piles))


def lines_of(text: str, *, coloured: bool = False) -> list[str]:
    """The lines of an output in which everything can be seen."""
    shown = OUR_COLOUR.sub("", text) if coloured else text
    assert not hidden(shown), {f"U+{ord(c):04X}" for c in hidden(shown)}
    assert shown.endswith("\n") or not shown, "a last line that is not ended joins the next program's"
    return shown.split("\n")[:-1]


def run(rig: Rig, how: str, *words: str, expect: int | None = 0) -> list[str]:
    """The lines of a command's data and words together. how: one of HOW, or `here`: within this process, for many."""
    cli = Cli(rig.folder)
    if how == "on a terminal":
        ended = cli.on_terminal(*words)
        assert expect is None or ended.status == expect, ended.screen
        return lines_of(ended.screen, coloured=True)
    done = cli(*words) if how == "here" else cli.forked(*words, env={"FORCE_COLOR": "1"})
    assert expect is None or done.status == expect, done
    # ssh-keygen, which writes to our standard error itself, ends its lines with both.
    return lines_of(done.stdout) + lines_of(done.stderr.replace("\r\n", "\n"))


def shape(lines: list[str]) -> list[str]:
    """What each line is: `error` or `hint`, or its text if it is neither."""
    return [line.partition(": ")[0] if line.startswith(("error: ", "hint:  ")) else line for line in lines]


def instruction(text: str) -> str:
    return json.dumps({"kind": "instruction", "text": text})


def call(text: str) -> str:
    args = {"path": text, "list": [{text: text}]}
    return json.dumps({"kind": "tool_call", "tool": "files", "op": "write_file", "args": args})


def raw_request(line: Any, request: bytes) -> None:
    """Send these bytes and wait until the other side has had enough of them."""
    with line:
        line.settimeout(30)
        line.sendall(request)
        while line.recv(65536):
            pass


def requests(host: bytes) -> Iterator[bytes]:
    """Hostile words in each part of a request, as they are and percent-encoded."""
    word = WORD.encode()
    plain = word.replace(b"\r", b"").replace(b"\x85", b"")
    encoded = b"".join(b"%%%02x" % byte for byte in TEXT.encode())
    tail = b"Host: " + host + b"\r\nConnection: close\r\n\r\n"
    body = json.dumps({"id": TEXT, "ticket": TEXT, "csr": TEXT, TEXT: TEXT}).encode()
    sized = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    for path in (
        b"/" + encoded,
        b"/inbox?after=" + encoded,
        b"/inbox?wait=" + encoded,
        b"/directive/resolve?agent=" + encoded,
    ):
        yield b"GET " + path + b" HTTP/1.1\r\n" + tail
    yield b"GET /" + plain + b" HTTP/1.1\r\n" + tail
    yield plain + b" /inbox HTTP/1.1\r\n" + tail
    yield b"GET /inbox HTTP/" + plain + b"\r\n" + tail
    for name in (b"X-Forwarded-For: ", b"X-Request-Id: ", b"User-Agent: ", b"Origin: ", b"Expect: ", b"Host: "):
        yield b"GET /inbox HTTP/1.1\r\n" + name + plain + b"\r\n" + tail
        yield b"GET /inbox HTTP/1.1\r\n" + name + word + b"\r\n" + tail
    yield b"GET /inbox HTTP/1.1\r\n" + plain + b": a\r\n" + tail
    for path in (
        b"/directive/consume",
        b"/directive/check",
        b"/renew",
        b"/enrol",
        b"/directive/send",
        b"/admin/agent_show",
    ):
        yield b"POST " + path + b" HTTP/1.1\r\n" + sized + tail + body
