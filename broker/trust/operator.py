"""Whether the operator signed this: every acceptance is one `ssh-keygen -Y verify` that ended with status 0.

docs/formats/allowed_signers.md is the normative page.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from broker.errors import Malformed, Unavailable, Untrusted
from broker.trust import diagnosis
from broker.trust.diagnosis import Finding
from broker.trust.signers_file import SignersFile, SignersReader, SignersUnusable
from broker.trust.ssh_keygen import Outcome, Question, SshKeygen
from broker.trust.standing import StandingBook
from broker.wire import sshsig
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Digest, Fingerprint, Instance, Instant, principal
from broker.wire.verified import NOBODY, Standing, VerifiedBytes

_GOOD = re.compile(rb'Good "([^"\n]*)" signature for ([^ \n]+) with [^\n]* key (SHA256:[A-Za-z0-9+/]{43})\n')
_NOT_VERIFIED = 255


class OperatorTrust:
    """Decides who is the operator of one instance, by ssh-keygen and the allowed_signers file of this moment.

    on_change is called with the digest and the fingerprints of allowed_signers whenever a reading finds another content
    than the one seen last; `seen` is the one the journal holds. parallel and timeout_s bound the ssh-keygen processes.
    """

    def __init__(
        self,
        allowed_signers: Path,
        instance: Instance,
        *,
        on_change: Callable[[Digest, tuple[str, ...]], None] = lambda _digest, _fingerprints: None,
        seen: Digest = NOBODY.allowed_digest,
        ssh_keygen: str = "ssh-keygen",
        parallel: int = 2 * (os.cpu_count() or 2),
        timeout_s: float = 5.0,
    ) -> None:
        self._principal = principal(instance)
        self._add = diagnosis.add_a_key(self._principal, allowed_signers)
        self._signers = SignersReader(allowed_signers, on_change, seen)
        self._ssh_keygen = SshKeygen(ssh_keygen, parallel=parallel, timeout_s=timeout_s)
        self._standing = StandingBook(self._verify_under)

    async def verify(self, raw: bytes, signature: bytes, namespace: str, now: Instant) -> VerifiedBytes:
        """These bytes, if an operator key that counts at `now` signed them for this namespace; one process each time.

        Raises Untrusted with the reason for the log and the operator, Unavailable when nobody can tell: allowed_signers
        is missing or must not be believed, ssh-keygen is missing or does not end in time.
        """
        file = self._signers.read()
        era = self._standing.era_at(file, now)
        verified = await self._verify_under(file, raw, signature, namespace, now)
        era.learn(verified, True)
        return verified

    async def standing(self, now: Instant, witnesses: Mapping[Digest, VerifiedBytes]) -> Standing:
        """Which of the witnesses' keys still count at `now`.

        witnesses: for each signer digest, anything that key signed. The file is read each time; ssh-keygen runs once
        for each signer it was not asked about since the content changed or a validity date passed. NOBODY while
        the file can't be read or believed; a signer that ssh-keygen could not be asked about is in neither set.
        """
        try:
            file = self._signers.read()
        except SignersUnusable:
            return NOBODY
        return await self._standing.of(file, now, witnesses)

    async def diagnose(
        self, now: Instant, *, raw: bytes | None = None, signature: bytes = b"", namespace: str = NAMESPACE_DIRECTIVE
    ) -> list[Finding]:
        """Everything wrong with the operator's keys, and with this signature over `raw` if given. Never raises."""
        try:
            file = self._signers.read()
        except SignersUnusable as error:
            return [diagnosis.unusable(error, self._add)]
        findings = diagnosis.examine(file, self._principal, (NAMESPACE_DIRECTIVE, NAMESPACE_ADMIN), now, self._add)
        try:
            self._ssh_keygen.find()
            if raw is not None:
                await self._verify_under(file, raw, signature, namespace, now)
        except Untrusted as error:
            findings.append(diagnosis.not_accepted(error))
        except Unavailable as error:
            findings.append(diagnosis.unavailable(error))
        return findings

    async def close(self) -> None:
        """Wait for the ssh-keygen processes that run; nothing can be verified afterwards."""
        await self._standing.close()
        await self._ssh_keygen.close()

    async def _verify_under(
        self, file: SignersFile, raw: bytes, signature: bytes, namespace: str, now: Instant
    ) -> VerifiedBytes:
        signer = _signer(signature, namespace)
        question = Question(file.content, self._principal, namespace, raw, signature, now)
        outcome = await self._ssh_keygen.verify(question)
        if outcome.status != 0:
            raise self._refusal(file, signer, outcome)
        said = _GOOD.fullmatch(outcome.stdout)
        if not said or said[1] != namespace.encode() or said[2] != self._principal.encode():
            raise Unavailable("ssh-keygen ended with status 0 but did not say what it found good")
        fingerprint = Fingerprint(said[3].decode("ascii"))
        return VerifiedBytes(raw, signature, namespace, fingerprint, signer, file.digest)

    def _refusal(self, file: SignersFile, signer: Digest, outcome: Outcome) -> Untrusted | Unavailable:
        if outcome.status != _NOT_VERIFIED:
            return Unavailable(f"ssh-keygen ended with status {outcome.status}: {outcome.stderr[:200]!r}")
        if b"verify-time" in outcome.stderr:
            return Unavailable("ssh-keygen is too old: it takes no -Overify-time in UTC (OpenSSH 9.1 does)")
        return Untrusted(diagnosis.explain(file, self._principal, signer, outcome.stderr))


def _signer(signature: bytes, namespace: str) -> Digest:
    """The digest of the key blob in the signature, once what ssh-keygen does not look at is in order."""
    try:
        found = sshsig.parse(signature)
    except Malformed as error:
        raise Untrusted(str(error)) from error
    if found.namespace != namespace:
        raise Untrusted(f'the signature is for the namespace "{found.namespace}", expected "{namespace}"')
    if found.signature_type.startswith("webauthn-"):
        raise Untrusted("passkey signatures are not supported yet")
    if found.flags is not None and not found.flags & sshsig.USER_PRESENT:
        raise Untrusted("the security key signed without being touched (user presence flag not set)")
    return Digest(hashlib.sha256(found.public_key).digest())
