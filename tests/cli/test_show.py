"""What reaches a terminal: every character can be seen, colour only where there is a terminal, no line broken."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lever import show
from tests.cli.conftest import Cli

DISGUISES = {
    "newline": ("a\nb", "a\\nb"),
    "carriage return": ("a\rb", "a\\rb"),
    "tab": ("a\tb", "a\\tb"),
    "escape": ("\x1b[31m", "\\u001b[31m"),
    "8-bit escape": ("\x9b31m", "\\u009b31m"),
    "delete": ("a\x7f", "a\\u007f"),
    "right-to-left override": ("\u202egnp.exe", "\\u202egnp.exe"),
    "isolate": ("\u2066x\u2069", "\\u2066x\\u2069"),
    "zero-width space": ("a\u200bb", "a\\u200bb"),
    "byte order mark": ("\ufeffa", "\\ufeffa"),
    "soft hyphen": ("a\xadb", "a\\u00adb"),
    "no-break space": ("a\xa0b", "a\\u00a0b"),
    "line separator": ("a\u2028b", "a\\u2028b"),
    "Hangul filler": ("a\u3164b", "a\\u3164b"),
    "variation selector": ("a\ufe0f", "a\\ufe0f"),
    "tag": ("a\U000e0041", "a\\U000e0041"),
    "half a surrogate pair": ("\udcff", "\\udcff"),
    "mark on what stands before": ("\u0336a", "\\u0336a"),
    "mark on a blank": ("a \u20dd", "a \\u20dd"),
    "mark on what is spelled": ("\x1b\u0301\u3164\u0301", "\\u001b\\u0301\\u3164\\u0301"),
    "pile of marks": ("a" + 6 * "\u0301" + "b", "a" + 4 * "\u0301" + 2 * "\\u0301" + "b"),
}
HARMLESS = [
    "",
    "worker-a",
    "Größe, 東京, עברית",
    "C:\\temp",
    "100 % [bold]x[/bold] :smile: {id} %s [link=https://e.example]y[/link]",
    # Letters with marks of their own: Vietnamese, taken apart; pointed Hebrew; Hindi; Thai.
    "Viê\u0323t, שָּׁלוֹם, हिन्दी, ที่นี่",
]


@pytest.mark.promise("P25")
@pytest.mark.parametrize(("text", "seen"), DISGUISES.values(), ids=DISGUISES)
def test_what_could_disguise_a_line_is_escaped(text: str, seen: str) -> None:
    assert show.safe(text) == seen


@pytest.mark.parametrize("text", HARMLESS)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert show.safe(text) == text


@pytest.mark.promise("P25")
@settings(deadline=None)
@given(st.text())
def test_a_safe_text_is_one_line_of_visible_characters_and_stays_safe(text: str) -> None:
    seen = show.safe(text)
    hidden = {c for c in seen if c != " " and unicodedata.category(c)[0] in "CZ"}
    assert not hidden
    assert show.safe(seen) == seen


@pytest.mark.promise("P25")
@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_json_made_visible_is_still_the_same_json(value: dict[str, str]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    seen = show.safe_json(text)
    assert json.loads(seen) == json.loads(text)
    assert show.safe(seen) == seen


def test_a_table_without_a_terminal_is_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(("ID", "SAYS"), [("x" * 36, "word " * 40 + "\n\x1b[2J"), ("y", "")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1] == "x" * 36 + "  " + "word " * 40 + "\\n\\u001b[2J"
    assert lines[2] == "y", "no blanks at the end"


def screen_of(monkeypatch: pytest.MonkeyPatch, print_: Callable[[], None], columns: int = 80) -> list[str]:
    """The lines on a terminal of so many columns."""
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, io.StringIO())
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True)
        monkeypatch.setattr(getattr(sys, stream), "fileno", lambda: 1)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    print_()
    written = "".join(getattr(sys, stream).getvalue() for stream in ("stdout", "stderr"))
    return re.sub(r"\x1b\[[0-9;]*m", "", written).splitlines()


def test_a_row_that_does_not_fit_is_a_block_in_which_no_name_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    id, rest = "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55", ("outcome_unknown", "worker-a/3", "git.git_diff_unstaged")
    rows = [(id, *rest), (id, "done", "worker-a/3", "東" * 60)]
    headers = ("ACT", "STATE", "AGENT", "WHAT")
    seen = screen_of(monkeypatch, lambda: show.table(headers, rows))
    assert seen[0].split() == ["ACT", "STATE", "AGENT"]
    assert seen[2:4] == [f"{id}  outcome_unknown  worker-a/3", "  git.git_diff_unstaged"]
    assert seen[4].split() == [id, "done", "worker-a/3"]
    assert seen[5:] == ["  " + "東" * 39, "  " + "東" * 21]
    assert len(screen_of(monkeypatch, lambda: show.table(headers, rows[:1]), 120)) == 2, (
        "a line each where there is room"
    )


def test_a_digest_behind_a_bar_is_whole_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, long = "ab" * 32, "x" * 100
    seen = screen_of(monkeypatch, lambda: show.barred([f"arguments 12 bytes, SHA-256 {digest}", f"a {long}"]))
    assert seen[:2] == ["    | arguments 12 bytes, SHA-256 ", f"    : {digest}"]
    assert "".join(line[6:] for line in seen[2:]) == f"a {long}"
    assert max(map(len, seen)) <= 80


def test_text_that_the_streams_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    show.put("東京")
    assert raw.getvalue() == b"\\u6771\\u4eac\n"


def test_json_data_is_ascii_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show.data({"text": "\u202e\x7f\x9b\n東"})
    assert capsys.readouterr().out == '{"text": "\\u202e\\u007f\\u009b\\n\\u6771"}\n'


def test_colour_is_for_terminals(cli: Cli) -> None:
    ended = cli.on_terminal("doctor")
    assert "\x1b[1;31mFAIL" in ended.screen
    assert "\x1b" not in cli.forked("doctor").stdout


def test_no_colour_if_none_is_wanted(cli: Cli) -> None:
    ended = cli.on_terminal("doctor", env={"NO_COLOR": "1"})
    assert "FAIL" in ended.screen
    assert "\x1b[1;3" not in ended.screen


def test_a_hint_is_never_broken_so_that_it_can_be_copied(cli: Cli) -> None:
    long = "x" * 120
    ended = cli.on_terminal("doctor", "--config", long, env={"NO_COLOR": "1"})
    assert long in ended.screen
