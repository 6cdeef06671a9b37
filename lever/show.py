"""What people see. Data goes to standard output, words to standard error, and nothing that came from outside reaches
a terminal unescaped: every function here that prints escapes what it is given."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Invisible although their category is letter, mark or symbol: fillers, joiners, variation selectors, empty Braille.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BAR, _MORE = "    | ", "    : "
_INDENT = "  "
_MARKS = 4
"""Vietnamese, Hebrew and Tibetan put two or three marks on a letter. A pile of them covers the lines around it, and one
without a letter stands on what we wrote before it."""


def is_hidden(character: str) -> bool:
    """Would a terminal obey this character, or show nothing for it, or a space that is none?"""
    if character == " ":
        return False
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or _UNSEEN.match(character) is not None


def safe(text: str) -> str:
    r"""One line in which every character can be seen: `\n`, `\u202e`. What is safe already stays as it is."""
    if text.isascii() and text.isprintable():
        return text
    return _spelled(text, _spell)


def safe_json(text: str) -> str:
    r"""JSON text in which every character can be seen, and which is still the same JSON value.

    A hidden character can only stand inside a JSON string, and there `\u202e` means the character itself.
    """
    return _spelled(text, _json_escape)


def _spelled(text: str, spell: Callable[[str], str]) -> str:
    """The text with each character spelled that can't be seen for what it is."""
    shown = []
    room = 0  # for this many marks on the letter before
    for character in text:
        is_mark = unicodedata.category(character)[0] == "M"
        room = room - 1 if is_mark else _MARKS if character.isalnum() else 0
        hidden = is_hidden(character) or (is_mark and room < 0)
        if hidden:
            room = 0  # the next mark would stand on our spelling
        shown.append(spell(character) if hidden else character)
    return "".join(shown)


def _spell(character: str) -> str:
    number = ord(character)
    return _SHORT.get(character) or (f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}")


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"


def _fit(text: str, stream: TextIO) -> str:
    """The text in characters that the stream's encoding has."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _console(stream: TextIO) -> Console:
    # Imported at the first coloured line: `lever --help` and scripts that read --json don't pay for it.
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False, legacy_windows=False)


def _line(text: str, stream: TextIO, style: str = "", rest: str = "") -> None:
    """A line, its first part in a style. Long lines are left to the terminal, so that a command can be copied whole."""
    text, rest = _fit(text, stream), _fit(rest, stream)
    if not (style and stream.isatty()):
        stream.write(f"{text}{rest}\n")
        stream.flush()
        return
    from rich.text import Text

    _console(stream).print(Text.assemble((text, style), rest), soft_wrap=True)


def put(text: str, style: str = "") -> None:
    """One line of data."""
    _line(safe(text), sys.stdout, style)


def say(text: str, style: str = "") -> None:
    """One line of words."""
    _line(safe(text), sys.stderr, style)


def warn(text: str) -> None:
    """Something that was done, and may not have been meant."""
    _line("warning: ", sys.stderr, "bold yellow", safe(text))


def fail(lines: Sequence[str], hint: str) -> None:
    """What went wrong, line by line, and what would help."""
    for text in lines:
        _line("error: ", sys.stderr, "bold red", safe(text))
    if hint:
        _line("hint:  ", sys.stderr, "bold cyan", safe(hint))


def verdict(word: str, text: str, *, good: bool | None, words: bool = False) -> None:
    """One line of data, or words, that begins with how it went: good, bad, or None for in between."""
    style = "bold yellow" if good is None else "bold green" if good else "bold red"
    _line(f"{safe(word):<5}", sys.stderr if words else sys.stdout, style, safe(text))


def below(text: str) -> None:
    """A line of data that belongs to the verdict above it."""
    _line("     ", sys.stdout, "", safe(text))


def json_text(text: str) -> None:
    """JSON as it is, for review: words, not data. One line."""
    _line(safe_json(text), sys.stderr)


def data(value: object) -> None:
    """One JSON value, a line, in ASCII: the contract of --json."""
    text = json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")
    _line(text, sys.stdout)


def facts(pairs: Mapping[str, str], *, words: bool = False) -> None:
    """Names and values under each other; empty values are left out."""
    width = max(map(len, pairs), default=0)
    stream = sys.stderr if words else sys.stdout
    for name, value in pairs.items():
        if value:
            _line(f"{safe(name):<{width}}  ", stream, "dim", safe(value))


def barred(lines: Iterable[str], *, words: bool = False) -> None:
    """Foreign text, a bar before each line, and folded here before the terminal would: no part of it can begin a line
    as one of ours begins."""
    stream = sys.stderr if words else sys.stdout
    for line in _behind_bars(lines, stream):
        _line(line, stream)


def paged(lines: Iterable[str]) -> None:
    """The same as words; on a terminal a pager holds it until it was read."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        return barred(lines, words=True)
    import click

    click.echo_via_pager(f"{line}\n" for line in _behind_bars(lines, sys.stdout))


def _behind_bars(lines: Iterable[str], stream: TextIO) -> Iterator[str]:
    room = os.get_terminal_size(stream.fileno()).columns - len(_BAR) if stream.isatty() else 0
    for line in lines:
        for number, part in enumerate(_folded(_fit(safe(line), stream), room)):
            yield (_MORE if number else _BAR) + part


def _folded(text: str, room: int) -> Iterator[str]:
    """Parts that fit into so many columns, ending after a space where there is one: a digest stays whole, to be
    copied. What may be two wide counts as two. room: 0 for as many as there are."""
    begin = width = after = 0
    for at, character in enumerate(text):
        size = _columns(character)
        if room > 0 and width + size > room:
            end = after or at
            yield text[begin:end]
            begin, width, after = end, _columns(text[end:at]), 0
        width += size
        if character == " ":
            after = at + 1
    yield text[begin:]


def _columns(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(c) in "WFA" else 1 for c in text)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under headers, a line each. On a terminal that is too narrow each is a block: so many columns in its first
    line as fit, the others below. No id is ever cut, and a cell is folded only where it alone is too long."""
    lines = [[*headers], *([_fit(safe(cell), sys.stdout) for cell in row] for row in rows)]
    widths = [max(map(_columns, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        return _on_terminal(lines, widths, os.get_terminal_size(sys.stdout.fileno()).columns or 80)
    for line in lines:
        _line(_padded(line, widths), sys.stdout)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - _columns(cell)) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _on_terminal(lines: Sequence[Sequence[str]], widths: Sequence[int], room: int) -> None:
    parts = _parts(widths, room)
    for number, line in enumerate(lines):
        for part in parts:
            indent = _INDENT if part.start else ""
            text = _padded(line[part], widths[part])
            # The first column is what gets copied. Of the others one may be longer than a line.
            for folded in _folded(text, room - len(indent)) if part.start else [text]:
                _line(indent + folded, sys.stdout, "" if number else "bold")


def _parts(widths: Sequence[int], room: int) -> list[slice]:
    """Which columns stand beside each other."""
    made, begin, used = [], 0, widths[0]
    for column, width in enumerate(widths[1:], 1):
        if used + 2 + width <= room:
            used += 2 + width
        else:
            made.append(slice(begin, column))
            begin, used = column, len(_INDENT) + width
    return [*made, slice(begin, len(widths))]


def can_ask() -> bool:
    """Is there a person: a terminal to read the answer from?"""
    return sys.stdin.isatty()


def ask(question: str) -> bool:
    """Yes or no, on the terminal. Anything but y or yes, and the end of the input, is no."""
    sys.stderr.write(f"{_fit(safe(question), sys.stderr)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
