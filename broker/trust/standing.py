"""Which signers still count, with no process at each consume: verdicts live while nothing they rest on changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from broker.errors import Unavailable, Untrusted
from broker.trust.signers_file import SignersFile
from broker.wire import sshsig
from broker.wire.names import Digest, Instant
from broker.wire.verified import Standing, VerifiedBytes

_CERTIFICATE = "-cert-v01@openssh.com"
_Asked = tuple[Digest, str]
"""A signer and the namespace it was asked about: an option of its line can allow one and not the other."""


class Verify(Protocol):
    """One ssh-keygen process under this content. Raises Untrusted, Unavailable."""

    async def __call__(
        self, file: SignersFile, raw: bytes, signature: bytes, namespace: str, now: Instant
    ) -> VerifiedBytes: ...


class Era:
    """One content of allowed_signers between two of its validity dates: within it a verdict on a key stays true."""

    def __init__(self, file: SignersFile, number: int) -> None:
        self.file = file
        self.running: dict[_Asked, asyncio.Task[bool | None]] = {}
        self._number = number
        self._verdicts: dict[_Asked, bool] = {}

    def holds(self, file: SignersFile, now: Instant) -> bool:
        """Whether this content at that time still lies in it."""
        return self.file.digest == file.digest and self._number == file.era(now)

    def verdict(self, witness: VerifiedBytes) -> bool | None:
        """What ssh-keygen said about the witness's signer, None when it was not asked."""
        return self._verdicts.get((witness.signer_digest, witness.namespace))

    def learn(self, witness: VerifiedBytes, verdict: bool) -> None:
        """Keep what ssh-keygen said."""
        # A certificate has an end of its own, which the file does not show: it is asked about each time.
        if not sshsig.parse(witness.signature).key_type.endswith(_CERTIFICATE):
            self._verdicts[witness.signer_digest, witness.namespace] = verdict


class StandingBook:
    """The verdicts of the present era. Asks about each signer once, however many wait for the answer."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._era: Era | None = None
        self._tasks: set[asyncio.Task[bool | None]] = set()

    def era_at(self, file: SignersFile, now: Instant) -> Era:
        """The era of this content and time; verdicts of any other are forgotten."""
        if self._era is None or not self._era.holds(file, now):
            self._era = Era(file, file.era(now))
        return self._era

    async def of(self, file: SignersFile, now: Instant, witnesses: Mapping[Digest, VerifiedBytes]) -> Standing:
        """The verdict on each witness's signer, asked for where there is none yet."""
        era = self.era_at(file, now)
        verdicts = {signer: era.verdict(witness) for signer, witness in witnesses.items()}
        unknown = [signer for signer, verdict in verdicts.items() if verdict is None]
        if unknown:
            # One caller going away must not end for the others the process that all wait for.
            tasks = [asyncio.shield(self._task(era, witnesses[signer], now)) for signer in unknown]
            verdicts.update(zip(unknown, await asyncio.gather(*tasks), strict=True))
        return Standing(
            file.digest,
            good=frozenset(signer for signer, verdict in verdicts.items() if verdict is True),
            bad=frozenset(signer for signer, verdict in verdicts.items() if verdict is False),
        )

    async def close(self) -> None:
        """Stop asking; those who wait get CancelledError."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _task(self, era: Era, witness: VerifiedBytes, now: Instant) -> asyncio.Task[bool | None]:
        asked = (witness.signer_digest, witness.namespace)
        task = era.running.get(asked)
        if task is None:
            task = era.running[asked] = asyncio.create_task(self._run(era, witness, now))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _done: era.running.pop(asked))
        return task

    async def _run(self, era: Era, witness: VerifiedBytes, now: Instant) -> bool | None:
        try:
            await self._verify(era.file, witness.raw, witness.signature, witness.namespace, now)
        except Untrusted:
            era.learn(witness, False)
            return False
        except Unavailable:
            return None
        era.learn(witness, True)
        return True
