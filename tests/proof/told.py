"""What clients and operator were told while a daemon was killed again and again: the checker's input."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

LOST = 0
NOT_SENT = "not_dispatched"


@dataclass(frozen=True, slots=True)
class Told:
    """One request and what came of it.

    began, ended: on the machine's monotonic clock, which all processes share. status: LOST where no whole answer came:
    then it was carried out or it was not, and nobody knows. about: what was asked, and what the asker knew of itself.
    """

    who: str
    op: str
    began: float
    ended: float
    status: int
    about: dict[str, str] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Told that it was carried out."""
        return self.status == 200

    @property
    def unsure(self) -> bool:
        """Was it carried out? Nobody knows."""
        return self.status == LOST or self.status >= 500

    @property
    def changed(self) -> bool:
        """Told that something was changed by it: a revoke may be answered without having found anything to end."""
        return self.done and not any(self.answer.get(word) is False for word in ("revoked", "closed", "added"))

    @property
    def id(self) -> str:
        return self.about.get("id", "")

    @property
    def generation(self) -> int:
        """Of the identity that asked, or that was given."""
        return int(self.about.get("generation", "0"))


@dataclass(frozen=True, slots=True)
class Seen:
    """A daemon's lists, asked for at `began`; empty where nobody asked.

    directives: state by id. agents: generation and state by name. acts: state by id. leases: the ids of open ones.
    runs: whose, and what was used, by id. records: how many there were just before the runs were listed, and after.
    """

    began: float = 0.0
    directives: dict[str, str] = field(default_factory=dict)
    agents: dict[str, tuple[int, str]] = field(default_factory=dict)
    acts: dict[str, str] = field(default_factory=dict)
    leases: tuple[str, ...] = ()
    runs: dict[str, Used] = field(default_factory=dict)
    records: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Used:
    """What a run is said to have used. who: name and generation of its agent."""

    who: tuple[str, int]
    calls: int
    input_tokens: int


@dataclass(frozen=True, slots=True)
class Execution:
    """One call that reached the server. mark: the server's own, which its answer names."""

    tool: str
    word: str
    mark: str

    @property
    def text(self) -> str:
        return f"{self.tool} {self.word} {self.mark}"


@dataclass(frozen=True, slots=True)
class Restart:
    """What was found after one end of the daemon.

    records, head, problems: by `lever journal verify` on what the dead daemon left; no records where it was not asked.
    seen: what it had listed before, soon after its start. began, ended: when it was started and made to end.
    """

    life: int
    records: int = 0
    head: str = ""
    problems: tuple[str, ...] = ()
    seen: Seen = field(default_factory=Seen)
    began: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the journal. prev: the digest of the record before it, in hex; rest: how many more of its turn."""

    seq: int
    kind: str
    prev: str
    fields: dict[str, Any]
    rest: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """Everything that the checker looks at. disk_fails: what could not be written may have been refused in words."""

    told: list[Told]
    restarts: list[Restart]
    journal: list[Entry]
    disk_fails: bool = False
    executions: list[Execution] = field(default_factory=list)

    def of(self, *ops: str) -> Iterable[Told]:
        return (told for told in self.told if told.op in ops)

    def entries(self, kind: str) -> Iterable[Entry]:
        return (entry for entry in self.journal if entry.kind == kind)


def line(told: Told) -> str:
    """As a client hands it over."""
    return json.dumps(asdict(told))


def parse(raw: str) -> Told:
    return Told(**json.loads(raw))


def of_starts(journal: Iterable[Entry]) -> set[int]:
    """The records that starts wrote in their one turn, of which the start's own is the last."""
    found, turn = set[int](), list[Entry]()
    for entry in journal:
        turn.append(entry)
        if not entry.rest:
            found |= {one.seq for one in turn} if entry.kind == "broker_started" else set()
            turn.clear()
    return found


def taken_back(journal: Iterable[Entry]) -> dict[str, str]:
    """What each act is that was revoked: that; but what its call came to, where that ran by then and was sent."""
    found, running = dict[str, str](), dict[str, str]()
    for entry in journal:
        if entry.kind == "call_claimed":
            running[entry.fields["claim"]] = entry.fields["consent"].removeprefix("act/")
        elif entry.kind == "act_ended":
            found[entry.fields["act"]] = "revoked"
        elif entry.kind == "call_ended":
            act = running.pop(entry.fields["claim"], "")
            if act in found and entry.fields["outcome"] != NOT_SENT:
                found[act] = entry.fields["outcome"]
    return found
