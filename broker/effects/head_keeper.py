"""The head kept elsewhere: the newest durable record, signed, given to a command of the operator's, and fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.effects.commands import Command
from broker.errors import Malformed, Untrusted
from broker.wire import head as wire
from broker.wire.head import Head
from broker.wire.names import Instance


@dataclass(slots=True)
class HeadKeeper:
    """keep: reads a signed head; fetch: writes the newest that was kept. sign, verify: with the broker's own key."""

    instance: Instance
    keep_command: Command
    fetch_command: Command
    sign: Callable[[bytes], bytes]
    verify: Callable[[bytes, bytes], None]
    kept: Head | None = None

    async def keep(self, head: Head) -> None:
        """Have this head kept, if it is not already. Raises Unavailable."""
        if head != self.kept:
            text = wire.encode(head, self.instance)
            await self.keep_command.run(wire.encode_signed(text, self.sign(text)))
            self.kept = head

    async def fetch(self) -> Head | None:
        """The newest head that was kept; None where there is none yet.

        Raises Unavailable when the command fails, Untrusted for a head that this broker did not sign.
        """
        raw = await self.fetch_command.run(b"")
        if not raw.strip():
            return None
        try:
            text, signature = wire.split_signed(raw)
            self.verify(text, signature)
            self.kept = wire.parse(text, self.instance)
        except Malformed as error:
            raise Untrusted(f"what was kept elsewhere is no signed head: {error}") from error
        return self.kept
