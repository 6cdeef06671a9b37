"""What can go wrong, in five kinds. Each failure has two texts: one for the caller, one for the operator's log."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a trusted and well-formed request is not allowed. The operator is told; an agent never is."""

    # directives
    ID_SEEN = "id_seen"
    UNKNOWN_ID = "unknown_id"
    OTHER_TARGET = "other_target"
    GENERATION_STALE = "generation_stale"
    ALREADY_CONSUMED = "already_consumed"
    NOT_CONSUMED = "not_consumed"
    ALREADY_REPORTED = "already_reported"
    REVOKED = "revoked"
    INVALIDATED = "invalidated"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    ISSUED_IN_FUTURE = "issued_in_future"
    WINDOW_EMPTY = "window_empty"
    EXPIRY_BEYOND_CAP = "expiry_beyond_cap"
    WRONG_INSTANCE = "wrong_instance"
    RESERVED_NAME = "reserved_name"
    TOOL_UNDECLARED = "tool_undeclared"
    MALFORMED_ID = "malformed_id"
    KEY_NOT_STANDING = "key_not_standing"
    SIGNERS_UNAVAILABLE = "signers_unavailable"
    TOO_MANY_ACTIVE = "too_many_active"
    DISABLED = "disabled"
    NOT_SUPPORTED_YET = "not_supported_yet"
    # envelopes
    ENVELOPE_STALE = "envelope_stale"
    ENVELOPE_REPLAYED = "envelope_replayed"
    WRONG_OPERATION = "wrong_operation"
    BAD_PARAMS = "bad_params"
    # agents and identity
    UNKNOWN_AGENT = "unknown_agent"
    NOT_YET_ENROLLED = "not_yet_enrolled"
    AGENT_REVOKED = "agent_revoked"
    AGENT_FROZEN = "agent_frozen"
    AGENT_PAUSED = "agent_paused"
    CERTIFICATE_EXPIRED = "certificate_expired"
    NO_CERTIFICATE = "no_certificate"
    TICKET_UNKNOWN = "ticket_unknown"
    TICKET_SPENT = "ticket_spent"
    TICKET_EXPIRED = "ticket_expired"
    TICKET_OTHER_NAME = "ticket_other_name"
    CERTIFICATE_FORKED = "certificate_forked"
    # tool calls
    UNKNOWN_TOOL = "unknown_tool"
    TOOL_CHANGED = "tool_changed"
    SERVER_UNAVAILABLE = "server_unavailable"
    DENIED_BY_RULE = "denied_by_rule"
    DENIED_BY_DEFAULT = "denied_by_default"
    DENIED_BY_ARGUMENT = "denied_by_argument"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_ACCOUNT = "unknown_account"
    AMBIGUOUS_OPERAND = "ambiguous_operand"
    MISSING_RESOURCE = "missing_resource"
    CALL_ID_CONFLICT = "call_id_conflict"
    BUDGET_EXCEEDED = "budget_exceeded"
    USAGE_UNREPORTED = "usage_unreported"
    RUN_STOPPED = "run_stopped"
    EMERGENCY_STOP = "emergency_stop"
    REQUEST_DENIED = "request_denied"
    TOO_MANY_PENDING = "too_many_pending"
    # the operator's answers
    NO_POLICY = "no_policy"
    NO_RUN = "no_run"
    UNKNOWN_REQUEST = "unknown_request"
    ALREADY_RESOLVED = "already_resolved"
    APPROVAL_DIFFERS = "approval_differs"
    # both doors
    BAD_SIGNATURE = "bad_signature"
    NOT_TRUSTED = "not_trusted"
    MALFORMED = "malformed"
    RATE_LIMITED = "rate_limited"
    CLOCK_BEHIND = "clock_behind"
    CLOCK_ACCEPTED = "clock_accepted"
    JOURNAL_RESTORED = "journal_restored"


class BrokerError(Exception):
    """The root: nothing else leaves a room of the broker as an expected failure."""


class Malformed(BrokerError):
    """Bytes that are not the format. The only thing a parser raises, whatever the bytes."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class Untrusted(BrokerError):
    """A signature, certificate or peer that does not check out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Refused(BrokerError):
    """Trusted and well-formed, and not allowed. `hint` is for the operator only."""

    def __init__(self, reason: Reason, detail: str = "", hint: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail
        self.hint = hint


class Unavailable(BrokerError):
    """Something that is needed is absent for now (a verifier, a file, a tool server): try later.

    said: what it wrote last itself, escaped; for the operator only, and no part of the text.
    """

    def __init__(self, what: str, said: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.said = said


class Fatal(BrokerError):
    """The state of the disk is unknown or the journal is damaged: log it, stop, let the next start read the truth."""

    def __init__(self, why: str, *, hint: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


class Damaged(Fatal):
    """What is on the disk is not what was written there: nothing is believed, nothing is mended."""
