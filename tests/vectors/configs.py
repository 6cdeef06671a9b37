"""Configurations: what a lever.yaml may be, and each mistake with its place."""

from __future__ import annotations

from collections.abc import Iterator

from tests.vectors.case import Case, File, refused

GOOD = "instance: demo\n"
OPERATOR = GOOD + "operator:\n  allowed_signers: allowed_signers\n"
AGENT = GOOD + "agents:\n  worker-a:\n    deliver: "
SERVER = GOOD + "servers: {s: {"
_TAKEN = {
    "one line": GOOD,
    "an operator": OPERATOR,
    "blocks of which every line is a comment": GOOD + "tools:\n#  files: [read]\nagents:\nlimits:\n",
    "lines that end as on Windows": OPERATOR.replace("\n", "\r\n"),
    "an address of version 6": GOOD + "listen: '[::1]:8443'\n",
    "every address, and a name to reach it by": GOOD + "listen: 0.0.0.0:8443\nadvertise: broker.example:8443\n",
    "a port that is chosen anew": GOOD + "listen: 127.0.0.1:0\n",
    "the longest duration": OPERATOR + "  directive_expiry: 24h\n",
    "channels": AGENT + "[inbox, {command: [tell, '{agent}', '{text}']}]\n",
    "a server that is confined": SERVER + "command: [x]}}\n",
    "a server that is not": SERVER + "command: [x], sandbox: none}}\n",
    "a server over HTTP": SERVER + "url: 'https://a/mcp', headers: {Authorization: {file: t}}}}\n",
}
_NAME = "expected 1 to 63 of a-z 0-9 -, not starting or ending with -"
_TOOL = "expected 1 to 128 of A-Z a-z 0-9 . _ : / -"
_TOP = "instance, advertise, listen, state, operator, tools, servers, agents, kept_head, limits"
_VALUES: list[tuple[str | bytes, str]] = [
    ("listen: 127.0.0.1:1\n", "1:1: expected the key `instance`, which is missing"),
    ("instance: Demo\n", f'1:11: {_NAME}; found "Demo"'),
    ("instance: demo/x\n", f'1:11: {_NAME}; found "demo/x"'),
    ("instance:\n", f"1:1: {_NAME}; found nothing"),
    ("instance: 7\n", f"1:11: {_NAME}; put it in quotes; found 7"),
    (GOOD + "operator: {}\n", "2:11: expected the key `allowed_signers`, which is missing"),
    (GOOD + "operator: [x]\n", "2:11: expected a mapping; found a list"),
    (
        GOOD + "operator:\n# allowed_signers: x\n",
        "2:1: expected a mapping with allowed_signers in it, or no `operator:` at all; found nothing",
    ),
    (OPERATOR + "  uids: [0, root]\n", '4:13: expected a whole number from 0 to 4294967294; found "root"'),
    (OPERATOR + "  uids: 0\n", "4:9: expected a list; found 0"),
    (
        OPERATOR + "  directive_expiry_max: 5m\n",
        '4:25: expected at least directive_expiry, which is 600s; found "5m"',
    ),
    (GOOD + "state: ''\n", '2:8: expected a path; found ""'),
    (GOOD + 'state: "a\\0b"\n', '2:8: expected a path; found "a\\u0000b"'),
    (GOOD + "state: ~no-such-user/x\n", '2:8: expected a path; this ~ has no home folder; found "~no-such-user/x"'),
    (GOOD + f"state: [{'x, ' * 99}]\n", "2:8: expected a path; found a list"),
    (GOOD + "tools: {files: []}\n", "2:16: expected at least one entry; found an empty one"),
    (GOOD + "tools: {'a b': [x]}\n", f'2:9: {_TOOL}; found "a b"'),
    (GOOD + 'tools: {a: [x, "y\\n"]}\n', f'2:16: {_TOOL}; found "y\\n"'),
    (GOOD + "tools: {a: [x, x]}\n", "2:12: expected each entry once; found a list"),
    (GOOD + "tools: [a]\n", "2:8: expected a mapping; found a list"),
    (GOOD + 'agents: {"a\\nb": {deliver: [inbox]}}\n', f'2:10: {_NAME}; found "a\\nb"'),
    (GOOD + "limits: {ticket_s: 10m}\n", '2:20: expected a whole number from 10 to 86400; found "10m"'),
    (GOOD + "limits: {ticket_s: 9}\n", "2:20: expected a whole number from 10 to 86400; found 9"),
    (GOOD + "limits: {consume_per_minute: true}\n", "2:30: expected a whole number from 1 to 1000000; found true"),
    (GOOD + "limits: {ticket_s: 60.0}\n", '2:20: expected a whole number from 10 to 86400; found "60.0"'),
]
_NO_YAML: list[tuple[str | bytes, str]] = [
    ("---\n", "2:1: expected a mapping; found nothing"),
    ("- instance\n", "1:1: expected a mapping; found a list"),
    ("instance\n", '1:1: expected a mapping; found "instance"'),
    (GOOD + "state: a\nstate: b\n", '3:1: expected each key once, found "state" again (first on line 2)'),
    (GOOD + '"st\\u0061te": a\nstate: b\n', '3:1: expected each key once, found "state" again (first on line 2)'),
    (GOOD + "state: &s a\n", '2:8: expected a value, found the anchor "&s"; write the value out'),
    (GOOD + "state: *s\n", '2:8: expected a value, found the alias "*s"; write the value out'),
    (GOOD + "state: !!str a\n", '2:8: expected a value without a tag, found "tag:yaml.org,2002:str"'),
    (GOOD + "state: !x a\n", '2:8: expected a value without a tag, found "!x"'),
    (
        GOOD + "tools: !!python/object:os.system {}\n",
        '2:8: expected a value without a tag, found "tag:yaml.org,2002:python/object:os.system"',
    ),
    (GOOD + "&k state: a\n", "2:1: expected a key without an anchor or a tag"),
    (GOOD + "? [a]\n: 1\n", "2:3: expected a plain key"),
    (GOOD + "---\n" + GOOD, "2:1: expected one document, found another after `---`"),
    ("%YAML 1.1\n---\n" + GOOD, "2:1: expected no % directive"),
    (b"instance: demo\nstate: a\xff\n", "2:9: expected UTF-8, found the byte 0xff"),
    (GOOD.encode("utf-16-le"), "1:2: expected text, found the character U+0000"),
    (GOOD + "state: a\x07\n", "2:9: expected text, found the character U+0007"),
    (GOOD + 'state: "\\ud800"\n', "2:8: expected text, found half a surrogate pair"),
    (GOOD + "state: [a\n", "3:1: not YAML: expected ',' or ']', but got '<stream end>' while parsing a flow sequence"),
    (
        GOOD + "\tstate: a\n",
        "2:1: not YAML: found character '\\t' that cannot start any token while scanning for the next token",
    ),
    (GOOD + "state: a: b\n", "2:9: not YAML: mapping values are not allowed here"),
    (GOOD + "tools: " + "[" * 100, "2:24: expected at most 16 levels"),
]
_UNKNOWN = [
    (GOOD + "listn: a:1\n", "2:1", "listn", "did you mean `listen`?"),
    (OPERATOR + "  directive_expire: 1m\n", "4:3", "directive_expire", "did you mean `directive_expiry`?"),
    (OPERATOR + "  directive_expiry_s: 1m\n", "4:3", "directive_expiry_s", "did you mean `directive_expiry`?"),
    (GOOD + "agents: {a: {delivery: []}}\n", "2:14", "delivery", "did you mean `deliver`?"),
    (GOOD + "agents: {a: {zzz: 1}}\n", "2:14", "zzz", "known here: deliver"),
    (GOOD + "limits: {consume_per_min: 1}\n", "2:10", "consume_per_min", "did you mean `consume_per_minute`?"),
    (GOOD + '"\\e[2J": 1\n', "2:1", "\\u001b[2J", f"known here: {_TOP}"),
    (GOOD + "<<: {state: a}\n", "2:1", "<<", f"known here: {_TOP}"),
]
_NO_DURATION = [
    "0s",
    "10",
    "25h",
    "24h1s",
    "1m1h",
    "10 m",
    "-1s",
    "1.5h",
    "10min",
    "1d",
    "''",
    "h",
    "[10m]",
    "٣m",
    '"1s\\n"',
]
_NO_ADDRESS = [
    "8443",
    "':8443'",
    "localhost",
    "'localhost:'",
    "'::1:8443'",
    "'[::1]'",
    "'[1.2.3.4]:1'",
    "1.2.3:80",
    "256.1.1.1:80",
    "a b:80",
    "-a:80",
    "a..b:80",
    "http://a:80",
    "a:65536",
    "a:-1",
    "a:8 0",
    '"a\\n:80"',
    '"a:80\\n"',
    f"{'a' * 64}:80",
    "[a, 80]",
    "é:80",
    "a:٣",
]
_CHANNEL = 'expected `inbox` or `command: ["program", "argument", ...]`; found'
_WORDS = "expected a command as a list of 1 to 64 words; found"
_WORD = "expected each word of a command to be text in quotes, of at most 4096 characters; found"
_PROGRAM = "expected a program as a command's first word, without a placeholder; found"
_PLACEHOLDER = "expected no placeholder in a command but {agent}, {id} and {text}; found"
_NO_LIST = [
    ("[]", "expected at least one entry; found an empty one"),
    ("inbox", 'expected a list; found "inbox"'),
    ("[inbox, inbox]", "expected each entry once; found a list"),
    (f"[{', '.join(f'{{command: [a{i}]}}' for i in range(9))}]", "expected at most 8 entries; found a list"),
]
_NO_CHANNEL = [
    ("[mail]", f'{_CHANNEL} "mail"'),
    ("[{command: [a], inbox: 1}]", f"{_CHANNEL} a mapping"),
    ("[{command: tmux}]", f'{_WORDS} "tmux"'),
    ("[{command: []}]", f"{_WORDS} an empty one"),
    (f"[{{command: [{'a, ' * 65}]}}]", f"{_WORDS} a list"),
    ("[{command: [a, 1]}]", f"{_WORD} 1"),
    ('[{command: [a, "x\\0"]}]', f'{_WORD} "x\\u0000"'),
    (f"[{{command: [a, {'x' * 4097}]}}]", f'{_WORD} "{"x" * 55}..."'),
    ("[{command: ['']}]", f'{_PROGRAM} ""'),
    ("[{command: ['/bin/{agent}']}]", f'{_PROGRAM} "/bin/{{agent}}"'),
    ("[{command: [a, 'x{name}']}]", f'{_PLACEHOLDER} "{{name}}"'),
    ("[{command: [a, '{Text}']}]", f'{_PLACEHOLDER} "{{Text}}"'),
    ("[{command: [a, '{}']}]", f'{_PLACEHOLDER} "{{}}"'),
]
_NONE = "expected `none`, or a mapping with read, write or network in it; found"
_NO_SERVER = [
    ("", "2:14: expected a `command` to start or a `url` to reach; found neither"),
    ("command: [x], url: 'https://a'", "2:14: expected a `command` to start or a `url` to reach; found both"),
    ("command: [x], headers: {}", "2:14: expected no `headers` beside `command`; found `headers`"),
    ("url: 'https://a', sandbox: none", "2:14: expected no `sandbox` beside `url`; found `sandbox`"),
    ("url: 'https://a', env: {}", "2:14: expected no `env` beside `url`; found `env`"),
    ("command: x", '2:24: expected a command as a list of 1 to 64 words; found "x"'),
    ("command: [x], sandbox: false", f"2:38: {_NONE} false"),
    ("command: [x], sandbox: None", f'2:38: {_NONE} "None"'),
    ("command: [x], sandbox: {network: yes}", '2:48: expected true or false; found "yes"'),
    ("command: [x], sandbox: {red: [a]}", '2:39: unknown key "red"; did you mean `read`?'),
    ("command: [x], sandbox: {read: a}", '2:45: expected a list; found "a"'),
    ("command: [x], sandbx: none", '2:29: unknown key "sandbx"; did you mean `sandbox`?'),
    ("command: [x], env: {'A B': {file: a}}", '2:35: expected the name of an environment variable; found "A B"'),
    ("url: ftp://a", '2:20: expected a URL like https://tools.example/mcp; found "ftp://a"'),
    ("url: http://a/mcp", '2:20: expected https, or http to localhost; found "http://a/mcp"'),
    (
        "url: 'http://127.0.0.1.evil.example/mcp'",
        '2:20: expected https, or http to localhost; found "http://127.0.0.1.evil.example/mcp"',
    ),
    ("url: 'https://a:99999/'", '2:20: expected a URL like https://tools.example/mcp; found "https://a:99999/"'),
    ("url: 'https://a b/'", '2:20: expected a URL like https://tools.example/mcp; found "https://a b/"'),
    ("command: [x], timeout_s: 0", "2:40: expected a whole number from 1 to 3600; found 0"),
    ("command: [x], max_output_bytes: 1", "2:47: expected a whole number from 4096 to 8388608; found 1"),
]
_WHOLE = [
    ("", ": expected a mapping, found an empty file"),
    ("# nothing\n", ": expected a mapping, found an empty file"),
    (GOOD + 'state: "\\UFFFFFFFF"\n', ": not YAML: "),
]


def _cases() -> Iterator[Case]:
    for name, text in _TAKEN.items():
        yield Case(name, text.encode(), says="demo")
    for written, line in [*_VALUES, *_NO_YAML, *_WHOLE]:
        yield _wrong(written, line)
    for text, place, key, advice in _UNKNOWN:
        yield _wrong(text, f'{place}: unknown key "{key}"; {advice}')
    for duration in _NO_DURATION:
        text = OPERATOR + f"  directive_expiry: {duration}\n"
        yield _wrong(text, "4:21: expected a duration like 90s, 10m or 1h30m, from 1s to 24h; found ")
    for address in _NO_ADDRESS:
        yield _wrong(GOOD + f"listen: {address}\n", "2:9: expected HOST:PORT, like 127.0.0.1:8443 or [::1]:8443")
    for deliver, why in _NO_LIST:
        yield _wrong(AGENT + f"{deliver}\n", f"4:14: {why}")
    for deliver, why in _NO_CHANNEL:
        yield _wrong(AGENT + f"{deliver}\n", f"4:15: {why}")
    for text, line in _NO_SERVER:
        yield _wrong(SERVER + f"{text}}}}}\n", line)


def _wrong(text: str | bytes, line: str) -> Case:
    """line: its place, empty for the whole file, and what is said of it."""
    where, _, why = line.partition(": ")
    shown = ascii(text)[1:-1].removeprefix(ascii(GOOD)[1:-1])
    name = shown if 0 < len(shown) <= 100 else f"{shown[:90]}... of {len(text)}"
    return refused(name, text if isinstance(text, bytes) else text.encode(), where, "ConfigError", why)


FILE = File(
    "configs",
    "The bytes of a lever.yaml. `where` is the line and column that the refusal must name, empty for the whole file; "
    "`why` is part of its words. A case is named after what stands behind `instance: demo`.",
    "docs/formats/config.md",
    tuple(_cases()),
)
