"""How each mistake in a lever.yaml is told: its place, what was expected, what was found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import ConfigError, load
from broker.config.reader import MAX_BYTES
from broker.errors import Malformed
from tests.config.conftest import Read, Told
from tests.config.test_meaning import GOOD, OPERATOR
from tests.config.test_page import EXAMPLE
from tests.wire.samples import FUZZ

TOP = "instance, advertise, listen, state, operator, tools, servers, agents, kept_head, limits"
NAME = "expected 1 to 63 of a-z 0-9 -, not starting or ending with -"
TOOL = "expected 1 to 128 of A-Z a-z 0-9 . _ : / -"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("listen: 127.0.0.1:1\n", "1:1: expected the key `instance`, which is missing"),
        ("instance: Demo\n", f'1:11: {NAME}; found "Demo"'),
        ("instance: demo/x\n", f'1:11: {NAME}; found "demo/x"'),
        ("instance:\n", f"1:1: {NAME}; found nothing"),
        ("instance: 7\n", f"1:11: {NAME}; put it in quotes; found 7"),
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
        (GOOD + "tools: {'a b': [x]}\n", f'2:9: {TOOL}; found "a b"'),
        (GOOD + 'tools: {a: [x, "y\\n"]}\n', f'2:16: {TOOL}; found "y\\n"'),
        (GOOD + "tools: {a: [x, x]}\n", "2:12: expected each entry once; found a list"),
        (GOOD + "tools: [a]\n", "2:8: expected a mapping; found a list"),
        (GOOD + 'agents: {"a\\nb": {deliver: [inbox]}}\n', f'2:10: {NAME}; found "a\\nb"'),
        (GOOD + "limits: {ticket_s: 10m}\n", '2:20: expected a whole number from 10 to 86400; found "10m"'),
        (GOOD + "limits: {ticket_s: 9}\n", "2:20: expected a whole number from 10 to 86400; found 9"),
        (GOOD + "limits: {consume_per_minute: true}\n", "2:30: expected a whole number from 1 to 1000000; found true"),
        (GOOD + "limits: {ticket_s: 60.0}\n", '2:20: expected a whole number from 10 to 86400; found "60.0"'),
    ],
)
def test_a_wrong_value(told: Told, text: str, line: str) -> None:
    assert told(text) == [line]


@pytest.mark.parametrize(
    ("text", "place", "key", "advice"),
    [
        (GOOD + "listn: a:1\n", "2:1", "listn", "did you mean `listen`?"),
        (OPERATOR + "  directive_expire: 1m\n", "4:3", "directive_expire", "did you mean `directive_expiry`?"),
        (OPERATOR + "  directive_expiry_s: 1m\n", "4:3", "directive_expiry_s", "did you mean `directive_expiry`?"),
        (GOOD + "agents: {a: {delivery: []}}\n", "2:14", "delivery", "did you mean `deliver`?"),
        (GOOD + "agents: {a: {zzz: 1}}\n", "2:14", "zzz", "known here: deliver"),
        (GOOD + "limits: {consume_per_min: 1}\n", "2:10", "consume_per_min", "did you mean `consume_per_minute`?"),
        (GOOD + '"\\e[2J": 1\n', "2:1", "\\u001b[2J", f"known here: {TOP}"),
        (GOOD + "<<: {state: a}\n", "2:1", "<<", f"known here: {TOP}"),
    ],
)
def test_an_unknown_key_and_the_one_that_was_meant(told: Told, text: str, place: str, key: str, advice: str) -> None:
    assert told(text) == [f'{place}: unknown key "{key}"; {advice}']


@pytest.mark.parametrize(
    "written",
    ["0s", "10", "25h", "24h1s", "1m1h", "10 m", "-1s", "1.5h", "10min", "1d", "''", "h", "[10m]", "٣m", '"1s\\n"'],
)
def test_what_is_no_duration(told: Told, written: str) -> None:
    (line,) = told(OPERATOR + f"  directive_expiry: {written}\n")
    assert line.startswith("4:21: expected a duration like 90s, 10m or 1h30m, from 1s to 24h; found ")


@pytest.mark.parametrize(
    "written",
    ["8443", "':8443'", "localhost", "'localhost:'", "'::1:8443'", "'[::1]'", "'[1.2.3.4]:1'", "1.2.3:80",
     "256.1.1.1:80", "a b:80", "-a:80", "a..b:80", "http://a:80", "a:65536", "a:-1", "a:8 0", '"a\\n:80"', '"a:80\\n"',
     f"{'a' * 64}:80", "[a, 80]", "é:80", "a:٣"],
)  # fmt: skip
def test_what_is_no_address(told: Told, written: str) -> None:
    (line,) = told(GOOD + f"listen: {written}\n")
    assert line.startswith("2:9: expected HOST:PORT, like 127.0.0.1:8443 or [::1]:8443")


def test_nobody_reaches_a_port_0_or_an_address_that_is_every_address(told: Told) -> None:
    (line,) = told(GOOD + "advertise: broker:0\n")
    assert "with a port from 1 to 65535" in line
    for host in ("0.0.0.0", "[::]"):
        (line,) = told(GOOD + f"listen: '{host}:8443'\n")
        assert line.startswith("2:9: expected one address, or `advertise: NAME:PORT` beside it")


CHANNEL = 'expected `inbox` or `command: ["program", "argument", ...]`; found'
WORDS = "expected a command as a list of 1 to 64 words; found"
WORD = "expected each word of a command to be text in quotes, of at most 4096 characters; found"
PROGRAM = "expected a program as a command's first word, without a placeholder; found"
PLACEHOLDER = "expected no placeholder in a command but {agent}, {id} and {text}; found"


@pytest.mark.promise("P9")
@pytest.mark.parametrize(
    ("deliver", "text"),
    [
        ("[]", "expected at least one entry; found an empty one"),
        ("inbox", 'expected a list; found "inbox"'),
        ("[inbox, inbox]", "expected each entry once; found a list"),
        (f"[{', '.join(f'{{command: [a{i}]}}' for i in range(9))}]", "expected at most 8 entries; found a list"),
        ("[mail]", f'{CHANNEL} "mail"'),
        ("[{command: [a], inbox: 1}]", f"{CHANNEL} a mapping"),
        ("[{command: tmux}]", f'{WORDS} "tmux"'),
        ("[{command: []}]", f"{WORDS} an empty one"),
        (f"[{{command: [{'a, ' * 65}]}}]", f"{WORDS} a list"),
        ("[{command: [a, 1]}]", f"{WORD} 1"),
        ('[{command: [a, "x\\0"]}]', f'{WORD} "x\\u0000"'),
        (f"[{{command: [a, {'x' * 4097}]}}]", f'{WORD} "{"x" * 55}..."'),
        ("[{command: ['']}]", f'{PROGRAM} ""'),
        ("[{command: ['/bin/{agent}']}]", f'{PROGRAM} "/bin/{{agent}}"'),
        ("[{command: [a, 'x{name}']}]", f'{PLACEHOLDER} "{{name}}"'),
        ("[{command: [a, '{Text}']}]", f'{PLACEHOLDER} "{{Text}}"'),
        ("[{command: [a, '{}']}]", f'{PLACEHOLDER} "{{}}"'),
    ],
)
def test_what_is_no_channel(told: Told, deliver: str, text: str) -> None:
    (line,) = told(GOOD + f"agents:\n  worker-a:\n    deliver: {deliver}\n")
    assert line.split(": ", 1)[1] == text
    assert line.startswith(("4:14:", "4:15:"))


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("---\n", "2:1: expected a mapping; found nothing"),
        ("- instance\n", "1:1: expected a mapping; found a list"),
        ("instance\n", '1:1: expected a mapping; found "instance"'),
        (GOOD + "state: a\nstate: b\n", '3:1: expected each key once, found "state" again (first on line 2)'),
        (GOOD + '"st\\u0061te": a\nstate: b\n', '3:1: expected each key once, found "state" again (first on line 2)'),
        (GOOD + "state: &s a\n", '2:8: expected a value, found the anchor "&s"; write the value out'),
        (GOOD + "state: *s\n", '2:8: expected a value, found the alias "*s"; write the value out'),
        (GOOD + "state: !!str a\n", '2:8: expected a value without a tag, found "tag:yaml.org,2002:str"'),
        (GOOD + "state: !x a\n", '2:8: expected a value without a tag, found "!x"'),
        (GOOD + "tools: !!python/object:os.system {}\n", "2:8: expected a value without a tag, found "
                                                          '"tag:yaml.org,2002:python/object:os.system"'),
        (GOOD + "&k state: a\n", "2:1: expected a key without an anchor or a tag"),
        (GOOD + "? [a]\n: 1\n", "2:3: expected a plain key"),
        (GOOD + "---\n" + GOOD, "2:1: expected one document, found another after `---`"),
        ("%YAML 1.1\n---\n" + GOOD, "2:1: expected no % directive"),
        (b"instance: demo\nstate: a\xff\n", "2:9: expected UTF-8, found the byte 0xff"),
        (GOOD.encode("utf-16-le"), "1:2: expected text, found the character U+0000"),
        (GOOD + "state: a\x07\n", "2:9: expected text, found the character U+0007"),
        (GOOD + 'state: "\\ud800"\n', "2:8: expected text, found half a surrogate pair"),
        (GOOD + "state: [a\n", "3:1: not YAML: expected ',' or ']', but got '<stream end>' "
                               "while parsing a flow sequence"),
        (GOOD + "\tstate: a\n", "2:1: not YAML: found character '\\t' that cannot start any token "
                                "while scanning for the next token"),
        (GOOD + "state: a: b\n", "2:9: not YAML: mapping values are not allowed here"),
        (GOOD + "tools: " + "[" * 100_000, "2:24: expected at most 16 levels"),
    ],
    ids=lambda value: repr(value[:40]),
)  # fmt: skip
def test_a_file_that_is_no_plain_yaml(told: Told, text: str | bytes, line: str) -> None:
    assert told(text) == [line]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a mapping, found an empty file"),
        ("# nothing\n", "expected a mapping, found an empty file"),
        (GOOD + 'state: "\\UFFFFFFFF"\n', "not YAML: "),
        (GOOD + "#" * MAX_BYTES, f"expected at most {MAX_BYTES} bytes, found {MAX_BYTES + 1} or more"),
    ],
    ids=["empty", "a comment", "beyond Unicode", "too large"],
)
def test_a_file_that_is_wrong_as_a_whole(read: Read, tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(f"{tmp_path}/lever.yaml: {why}")


def test_a_bomb_of_aliases_does_not_go_off(told: Told) -> None:
    assert '2:5: expected a value, found the anchor "&a0"; write the value out' in told(GOOD + LAUGHS)


def test_every_problem_is_told_in_the_order_of_the_file(told: Told) -> None:
    lines = told(
        "instance: Demo\n"
        "listn: 127.0.0.1:8443\n"
        "operator:\n"
        "  directive_expiry: 25h\n"
        "agents:\n"
        "  Worker: {deliver: [inbox]}\n"
        "  w: {deliver: &d [mail]}\n"
        "instance: demo\n"
    )
    places = [line.split(": ")[0] for line in lines]
    assert places == ["1:11", "2:1", "4:3", "4:21", "6:3", "7:16", "7:20", "8:1"]


def test_the_error_is_malformed_with_a_place_a_reason_and_a_hint(read: Read, tmp_path: Path) -> None:
    with pytest.raises(Malformed) as caught:
        read("instance: demo\nlimits: 3\nstate: 4\n")
    error = caught.value
    assert isinstance(error, ConfigError)
    assert (error.where, error.why) == (f"{tmp_path}/lever.yaml:2:9", "expected a mapping; found 3")
    assert len(error.problems) == 2
    assert "lever init" in error.hint


class TestTheFileItself:
    def test_absent(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"lever\.yaml: there is no such file") as caught:
            load(tmp_path / "lever.yaml")
        assert caught.value.hint == "write one with: lever init"

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="can't be read: is a directory"):
            load(tmp_path)

    def test_unreadable(self, tmp_path: Path) -> None:
        path = tmp_path / "lever.yaml"
        path.symlink_to(path)
        with pytest.raises(ConfigError, match="can't be read: too many levels of symbolic links") as caught:
            load(path)
        assert caught.value.hint == f"look at: ls -ld {path}"


SNIPPETS = st.sampled_from(
    [*"[]{}:,-?&*!|>'\"%@`#\n\t \\~", "- ", ": ", "\n  ", "---\n", "...\n", "&a ", "*a", "!!int ", "<<: ", "{id}",
     '"\\U', "instance: demo\n", "tools", "null", "\u2028", "\x85", "\ufeff", "\\ud800", "9" * 5000]
)  # fmt: skip


def spoil(at: int, cut: int, put: str) -> str:
    return EXAMPLE[:at] + put + EXAMPLE[at + cut :]


@FUZZ
@given(
    st.binary(max_size=200)
    | st.lists(SNIPPETS, max_size=40).map("".join).map(str.encode)
    | st.builds(spoil, st.integers(0, len(EXAMPLE)), st.integers(0, 20), SNIPPETS).map(str.encode)
)
def test_whatever_the_bytes_there_is_a_config_or_one_kind_of_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(raw)
    try:
        load(path)
    except ConfigError as error:
        lines = str(error).split("\n")
    else:
        lines = []
    for line in lines:
        assert line.startswith(f"{path}:")
        assert line.isprintable()
