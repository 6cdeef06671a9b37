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
from tests.config.test_page import EXAMPLE
from tests.vectors.configs import GOOD
from tests.wire.samples import FUZZ


def test_nobody_reaches_a_port_0_or_an_address_that_is_every_address(told: Told) -> None:
    (line,) = told(GOOD + "advertise: broker:0\n")
    assert "with a port from 1 to 65535" in line
    for host in ("0.0.0.0", "[::]"):
        (line,) = told(GOOD + f"listen: '{host}:8443'\n")
        assert line.startswith("2:9: expected one address, or `advertise: NAME:PORT` beside it")


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))


def test_a_file_that_is_too_large(told: Told) -> None:
    (line,) = told(GOOD + "#" * MAX_BYTES)
    assert line == f" expected at most {MAX_BYTES} bytes, found {MAX_BYTES + 1} or more"


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
