"""Operands: what means one thing has one form, what could mean two is refused."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire import operands
from tests.wire.samples import FUZZ


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("/srv/a", "/srv/a"),
        ("/srv/a/", "/srv/a"),
        ("/", "/"),
        ("a", "a"),
        ("src/a b.py", "src/a b.py"),
        (".git/config", ".git/config"),
        ("/srv/..a", "/srv/..a"),
        ("/srv/2026-01-01T10:00", "/srv/2026-01-01T10:00"),
        ("/srv/100%", "/srv/100%"),
        ("/srv/größe", "/srv/größe"),
        ("/srv/資料", "/srv/資料"),
    ],
)
def test_a_path_that_means_one_place(raw: str, normal: str) -> None:
    assert operands.path(raw) == normal


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "/srv/../etc",
        "..",
        "/..",
        "a/..",
        "/srv/./a",
        ".",
        "./a",
        "/srv//a",
        "//srv",
        "a//",
        "///",
        "/srv/a.",
        "/srv/a./b",
        "/srv/a ",
        "/srv/a /b",
        "/srv/.. /etc",
        "~/a",
        "~root",
        "\\srv",
        "/srv\\..\\etc",
        "C:/a",
        "c:a",
        "/srv/a::$DATA",
        "/srv/%2e%2e/etc",
        "/srv/%2E./etc",
        "/srv%2fetc",
        "/srv%5cetc",
        "/srv/a%00",
        "/srv/a\0",
        "/srv/a\n",
        "/srv/\x7f",
        "/srv/\u202egpj",
        "/srv/a\u200b",
        "/srv/\u2024\u2024/etc",
        "/srv/\uff0e\uff0e/etc",
        "/srv\uff0fetc",
        "/srv/\u2026/etc",
        "\uff5e/a",
        "/srv/e\u0301",
        "/srv/\u212b",
        "/srv/\ud800",
        "a" * 4097,
        1,
        None,
        True,
        ["/srv/a"],
        {"path": "/srv/a"},
    ],
)
def test_a_path_that_could_mean_two_is_refused(raw: Any) -> None:
    with pytest.raises(Malformed):
        operands.path(raw)


@FUZZ
@given(st.text("ab./ ~", max_size=12))
def test_a_normal_path_is_what_the_system_makes_of_it(raw: str) -> None:
    try:
        normal = operands.path(raw)
    except Malformed:
        return
    assert str(pathlib.PurePosixPath(raw)) == normal
    assert ".." not in normal.split("/")


@pytest.mark.parametrize(
    ("place", "prefix", "inside"),
    [
        ("/srv/a", "/srv/a", True),
        ("/srv/a/b", "/srv/a", True),
        ("/srv/ab", "/srv/a", False),
        ("/srv", "/srv/a", False),
        ("srv/a", "/srv", False),
        ("/SRV/a", "/srv", False),
        ("/etc", "/", True),
        ("etc", "/", False),
    ],
)
def test_what_lies_at_or_under_a_prefix(place: str, prefix: str, inside: bool) -> None:
    assert operands.folder(place).startswith(operands.starts((prefix,))) is inside
    assert operands.folder(place).startswith(operands.starts(("/none", prefix))) is inside
    assert not operands.folder(place).startswith(operands.starts(()))


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("api.example", "api.example"),
        ("API.Example", "api.example"),
        ("api.example:443", "api.example"),
        ("https://api.example", "api.example"),
        ("https://api.example:8443/a?b=@c#d", "api.example"),
        ("https://api.example?@evil.example", "api.example"),
        ("https://api.example#@evil.example", "api.example"),
        ("HTTPS://API.example/", "api.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("http://127.0.0.1:80/", "127.0.0.1"),
        ("https://[2001:DB8::1]:443/", "[2001:db8::1]"),
        ("[::1]", "[::1]"),
    ],
)
def test_a_host(raw: str, normal: str) -> None:
    assert operands.host(raw) == normal


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "https://",
        "https:///a",
        "https://good.example@evil.example",
        "https://user:pass@good.example/",
        "https://good.example;@evil.example",
        "https://evil.example\\@good.example",
        "https:\\\\good.example",
        "https:good.example",
        "https:/good.example",
        "//good.example",
        "good.example/path",
        "good.example.",
        "https://good.example./",
        "good..example",
        ".good.example",
        "-a.example",
        "bücher.example",
        "gооd.example",
        "good.example\u3002evil",
        "good.example\t",
        "good.ex\nample",
        " good.example",
        "https://good.example /",
        "https://good%2eexample",
        "good.example%00.evil",
        "2130706433",
        "http://2130706433/",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "127.0.0.01",
        "1.2.3.4.5",
        "256.1.1.1",
        "a.1",
        "a.0x1",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
        "[::1%eth0]",
        "[::1",
        "::1",
        "[::1]]",
        "good.example:port",
        "good.example:",
        "good.example:123456",
        "good_host.example",
        "a" * 64 + ".example",
        1,
        None,
        ["good.example"],
    ],
)
def test_a_host_in_disguise_is_refused(raw: Any) -> None:
    with pytest.raises(Malformed):
        operands.host(raw)


@pytest.mark.parametrize("raw", ["a", "A", "5", 5, 0, -1, "a/../b", "*"])
def test_an_id_stays_as_it_is(raw: Any) -> None:
    kept = operands.identifier(raw)
    assert (kept, type(kept)) == (raw, type(raw))


@pytest.mark.parametrize("raw", [True, 1.5, 1.0, None, "", [], ["a"], {}, 2**53])
def test_what_is_no_id(raw: Any) -> None:
    with pytest.raises(Malformed):
        operands.identifier(raw)


@FUZZ
@given(st.one_of(st.text(max_size=40), st.text("aA.:/@[]%\\0x1", max_size=20)))
def test_any_text_has_a_normal_form_that_is_its_own_or_is_malformed(raw: str) -> None:
    for kind in operands.Kind:
        try:
            normal = operands.normal(kind, raw)
        except Malformed:
            continue
        assert operands.normal(kind, normal) == normal
