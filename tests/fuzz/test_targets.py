"""Every target against hostile bytes: a fixed few in CI, or for LEVER_SOAK seconds each."""

from __future__ import annotations

import os
import secrets
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire import sshsig
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target, Violation, soak
from tests.fuzz.targets import TARGETS

_EXAMPLES = 20
SOAK_S = float(os.environ.get("LEVER_SOAK", "0"))
FUZZ = settings(
    derandomize=True, database=None, deadline=None, max_examples=_EXAMPLES, phases=[Phase.explicit, Phase.generate]
)


@pytest.mark.parametrize("target", [pytest.param(it, id=it.name) for it in TARGETS])
def test_malformed_or_a_value(target: Target) -> None:
    if SOAK_S:
        soak(target, SOAK_S, secrets.randbits(64))
        return

    @FUZZ
    @given(st.randoms(use_true_random=True))
    def attack(random: Random) -> None:
        # Many from one drawing, which costs more than most parsers. What breaks one is made small by the target itself.
        for _ in range(target.tries // _EXAMPLES):
            target.check(mutated(target.samples, random))

    attack()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_samples_are_taken_as_they_are(target: Target) -> None:
    assert all(target.check(sample) for sample in target.samples)


FOUND = [("policy in any spelling", '{"\u00df": 1}'.encode())]
"""What broke a parser once, so that it is tried each time."""


@pytest.mark.parametrize(("name", "raw"), FOUND)
def test_what_was_found_once_is_mended(name: str, raw: bytes) -> None:
    assert not next(target for target in TARGETS if target.name == name).check(raw)


BROKEN = [
    Target("raises something else", (), lambda raw: raw.decode(), (b"x",)),
    Target("gives something else", (), lambda raw: raw[:-1] and None, (b"xy",), bytes),
    Target("has two spellings", (), bytes.lower, (b"xy",), bytes, again=bytes),
    Target("is not what it writes", (), bytes, (b"xy",), bytes, same=bytes.lower),
    Target(
        "is refused in foreign words", (), lambda raw: sshsig.parse(raw) if raw < b"\x80" else _refuse(raw), (b"xy",)
    ),
]


def _refuse(raw: bytes) -> object:
    raise Malformed("x", raw.decode("latin-1"))


@pytest.mark.parametrize("broken", BROKEN, ids=lambda target: target.name)
def test_a_parser_that_breaks_the_invariant_is_found(broken: Target) -> None:
    with pytest.raises(Violation, match=broken.name):
        soak(broken, 20, 1)
