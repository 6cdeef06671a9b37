"""What a receipt tells of the operator's finger on the key: as much as a good signature proves, and no more."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from broker.wire.names import NAMESPACE_DIRECTIVE, Fingerprint
from lever.exits import Exit
from tests.cli.conftest import Cli
from tests.cli.past import POLICY, Past, an_act
from tests.cli.said import json_lines
from tests.fakes.soft_key import SoftKey, armor

TOOLS_NAME = "tools of files"
POLICY_NAME = f"policy {POLICY.digest.hex()[:12]}"
PLAIN = "no gesture: the key can't tell"


@dataclass
class Touched(Past):
    """A past that a security key signed. flags: of its statements; its envelopes have a touch alone."""

    soft: SoftKey = field(default_factory=lambda: SoftKey("sk-ed25519"))
    flags: int = 1
    flip: int = 0

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint("SHA256:" + base64.b64encode(sha256(self.soft.public_blob).digest()).decode().rstrip("="))

    def signed(self, namespace: str, raw: bytes) -> bytes:
        """flip: bits of the flags that somebody changed afterwards, in statements."""
        if namespace != NAMESPACE_DIRECTIVE:
            return self.soft.sign(namespace, raw)
        blob = bytearray(
            base64.b64decode(b"".join(self.soft.sign(namespace, raw, flags=self.flags).split(b"\n")[1:-2]))
        )
        blob[-5] ^= self.flip
        return armor(bytes(blob))


def touched(instance: Path, kind: Any = "sk-ed25519", flags: int = 1, flip: int = 0) -> Past:
    """An act signed by a security key that counts."""
    past = Touched(instance, Path(), soft=SoftKey(kind), flags=flags, flip=flip)
    with (instance / "allowed_signers").open("a") as file:
        file.write(f"operator@demo {past.soft.public_line}\n")
    return an_act(instance, past=past)


def verdict(cli: Cli, instance: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    done = cli("receipt", "verify", *words, "--json", "--config", instance)
    return done.status, json_lines(done.stdout)[0]


def shown(cli: Cli, instance: Path, *words: str | Path) -> dict[str, Any]:
    done = cli("receipt", "show", "claim-1", "--json", *words, "--config", instance)
    assert done.status == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def listed(cli: Cli, *words: str | Path) -> list[str]:
    return cli("receipt", "list", "--gestures", *words).stdout.splitlines()


@pytest.mark.parametrize(
    ("kind", "flags", "words"), [("sk-ed25519", 0x01, "touch"), ("sk-ecdsa", 0x05, "touch and PIN")]
)
def test_a_receipt_tells_what_was_done_at_the_key(cli: Cli, instance: Path, kind: str, flags: int, words: str) -> None:
    touched(instance, kind, flags).written()
    told = {"act": words, POLICY_NAME: "touch", TOOLS_NAME: "touch"}
    assert verdict(cli, instance) == (
        0, {"claim": "claim-1", "ok": True, "problems": [], "dropped": [], "gestures": told}
    )  # fmt: skip
    assert f"     act: {words}\n" in cli("receipt", "verify", "--config", instance).stdout
    assert shown(cli, instance)["gestures"] == told
    lines = cli("receipt", "show", "claim-1", "--config", instance).stdout.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("gesture ")] == [words]
    assert next(line for line in lines if line.startswith("policy ")).endswith(" (touch)")
    assert listed(cli, "--config", instance)[1].endswith(f"  act      done     {words}")


@pytest.mark.parametrize(
    ("flags", "flip", "why"),
    [
        (0x01, 0x04, "incorrect signature"),  # a PIN that nobody gave, written in afterwards
        (0x00, 0x01, "incorrect signature"),  # a touch
        (0x00, 0x00, "without being touched"),
        (0x04, 0x00, "without being touched"),
    ],
)
def test_no_gesture_is_told_of_a_signature_that_is_not_good(
    cli: Cli, instance: Path, flags: int, flip: int, why: str
) -> None:
    touched(instance, flags=flags, flip=flip).written()
    status, told = verdict(cli, instance)
    assert (status, told["ok"], told["gestures"][POLICY_NAME]) == (Exit.VERIFICATION_FAILED, False, "touch")
    assert told["gestures"]["act"].startswith("can't be told: ")
    assert why in told["gestures"]["act"]
    assert "     act: " not in cli("receipt", "verify", "--config", instance).stdout
    assert listed(cli, "--config", instance)[1].endswith("  can't be told")


def test_it_cannot_be_told_once_the_bytes_are_dropped_but_by_a_kept_receipt(cli: Cli, instance: Path) -> None:
    past = touched(instance, flags=0x05)
    past.written(apart=True)
    kept = cli.folder / "kept.json"
    good = shown(cli, instance)
    kept.write_text(json.dumps(good))
    past.forgotten()
    gone = "can't be told any more: its bytes were dropped"
    assert shown(cli, instance)["gestures"] == {"act": gone, POLICY_NAME: gone, TOOLS_NAME: gone}
    assert verdict(cli, instance)[1]["gestures"] == {"act": gone, POLICY_NAME: gone, TOOLS_NAME: gone}
    assert listed(cli, "--config", instance)[1].endswith("  can't be told any more")
    assert f"gesture       {gone}\n" in cli("receipt", "show", "claim-1", "--config", instance).stdout
    status, told = verdict(cli, instance, kept)
    assert (status, told["gestures"]) == (0, {"act": "touch and PIN", POLICY_NAME: gone, TOOLS_NAME: gone})
    for lie in ({"act": "touch"}, {"act": PLAIN}, {"act": None}, {"lease": "touch"}, [], "touch"):
        kept.write_text(json.dumps(good | {"gestures": lie}))
        status, told = verdict(cli, instance, kept)
        assert (status, told["problems"]) == (Exit.VERIFICATION_FAILED, ["the file says another gesture"]), lie


def test_it_is_told_by_the_keys_of_that_time_and_a_receipt_is_shown_without_any(cli: Cli, instance: Path) -> None:
    touched(instance).written()
    signers = instance / "allowed_signers"
    old = cli.folder / "old_signers"
    signers.rename(old)
    done = cli("receipt", "show", "claim-1", "--config", instance)
    assert (done.status, "gesture       can't be told\n" in done.stdout) == (0, True)
    assert "no gesture can be told" in done.stderr
    assert listed(cli, "--state", instance / "state")[1].endswith("  can't be told")
    assert listed(cli, "--state", instance / "state", "--signers", old)[1].endswith("  touch")
    assert shown(cli, instance, "--signers", old)["gestures"]["act"] == "touch"
    signers.write_text("\n".join(old.read_text().splitlines()[:-1]) + "\n")
    signers.chmod(0o600)
    assert "not in allowed_signers" in shown(cli, instance)["gestures"]["act"]
