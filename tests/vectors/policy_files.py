"""Policy files: the same mistakes as in a policy, and those of YAML, with the line and column where they stand."""

from __future__ import annotations

from tests.vectors.case import Case, File, refused

GOOD = """\
v: 1
name: demo
default_action: deny
tool_allowlist:
  allowed: [files.read]
  approval_required: []
  denied: []
"""
_LISTS = "".join(GOOD.splitlines(keepends=True)[3:]).encode()
_WRONG: list[tuple[str | bytes, str]] = [
    (GOOD + "budget: {}\n", '8:1: unknown key "budget"; did you mean `budgets`?'),
    (GOOD.replace("allowed: [files.read]", "allowed: [read]"), "5:13: expected the server's name before"),
    (GOOD.replace("denied: []", "denied: [a.b, files.read]"), "7:17: expected each tool in one list, once"),
    (GOOD.replace("  denied: []\n", ""), "5:3: expected the key `denied`, which is missing"),
    (GOOD.replace("denied: []", "denied:"), "7:3: expected a list of tools; write [] for an empty one"),
    (GOOD.replace("action: deny", "action: allow"), "3:17: expected deny: a tool in no list is never callable"),
    (GOOD + "accounts: {a: {sensitive: yes}}\n", '8:27: expected true or false, without quotes; found "yes"'),
    (GOOD + "accounts: {a: {sensitive: 'true'}}\n", '8:27: expected true or false, without quotes; found "true"'),
    (GOOD + "tools:\n  a.b:\n    rules:\n      - {pointer: /p, min: 1.5}\n", "11:28: expected a whole number from"),
    (GOOD + "name: other\n", '8:1: expected each key once, found "name" again (first on line 2)'),
    (GOOD + "tools: {a.b: &x {class: read}}\n", '8:14: expected a value, found the anchor "&x"'),
    ("", ": expected a mapping, found an empty file"),
    ("# nothing\n", ": expected a mapping, found an empty file"),
    ("{", "1:2: not YAML"),
    (b"\xff", "1:1: expected UTF-8"),
    ("- a\n", "1:1: expected a mapping; found a list"),
]


def _wrong(text: str | bytes, line: str) -> Case:
    where, _, why = line.partition(": ")
    name = f"{where or 'the whole'}: {why}, in {len(text)}"
    return refused(name, text if isinstance(text, bytes) else text.encode(), where, "ConfigError", why)


FILE = File(
    "policy_files",
    "The bytes of a policy file. `where` is the line and column that the refusal must name, empty for the whole file; "
    "`why` is part of its words.",
    "docs/formats/policy.md",
    (
        Case("a policy", GOOD.encode(), says="demo"),
        Case("in another order", "".join(reversed(GOOD.splitlines(keepends=True)[:3])).encode() + _LISTS, says="demo"),
        *(_wrong(text, line) for text, line in _WRONG),
    ),
)
