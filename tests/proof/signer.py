"""An operator's key within the process: what ssh-keygen would take five milliseconds to sign."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from broker.wire import envelope, statement
from broker.wire.envelope import Envelope
from broker.wire.names import (
    NAMESPACE_ADMIN,
    NAMESPACE_DIRECTIVE,
    Cn,
    DirectiveId,
    Generation,
    Instance,
    Instant,
)
from broker.wire.statement import Action, Instruction, Statement, Target
from broker.wire.times import SECOND
from tests.fakes.soft_key import SoftKey

Pair = dict[str, str]


@dataclass
class Signer:
    """Signs statements and envelopes for one instance; names come from `chance`."""

    instance: str
    chance: random.Random
    key: SoftKey = field(default_factory=lambda: SoftKey("sk-ed25519"))

    def name(self, prefix: str) -> str:
        return f"{prefix}-{self.chance.getrandbits(64):016x}"

    def statement(self, id: str, cn: str, generation: int, action: Action | None = None) -> Pair:
        """Without an action an instruction that names its own id, so that an answer shows whose it is."""
        at = Instant(int(datetime.now(UTC).timestamp() * SECOND))
        value = Statement(
            instance=Instance(self.instance),
            directive_id=DirectiveId(id),
            target=Target(Cn(cn), Generation(generation)),
            issued_at=at,
            not_before=at,
            expires_at=Instant(at + 3600 * SECOND),
            action=action or Instruction(text_of(id)),
        )
        raw = statement.encode(value)
        return self._pair("statement", raw, NAMESPACE_DIRECTIVE)

    def envelope(self, op: str, **params: str) -> Pair:
        at = Instant(int(datetime.now(UTC).timestamp() * SECOND))
        params["nonce"] = self.name("n")
        return self._pair(
            "envelope", envelope.encode(Envelope(Instance(self.instance), op, params, at)), NAMESPACE_ADMIN
        )

    def attached(self, op: str, raw: bytes, **params: str) -> Pair:
        """An envelope that names the digest of what goes with it."""
        pair = self.envelope(op, digest=sha256(raw).hexdigest(), **params)
        return pair | {"attachment": base64.b64encode(raw).decode()}

    def _pair(self, name: str, raw: bytes, namespace: str) -> Pair:
        signature = self.key.sign(namespace, raw)
        return {name: base64.b64encode(raw).decode(), "signature": base64.b64encode(signature).decode()}


def text_of(id: str) -> str:
    """What the directive of this id says."""
    return f"Do {id}."
