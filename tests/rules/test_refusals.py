"""Refusals of one caller fold, none is lost, and what is written at once does not depend on the reason."""

from __future__ import annotations

import pytest

from broker.errors import Reason
from broker.rules.refusals import FOLD_S, SUBJECTS, RefusalFold
from broker.wire.names import Instant
from broker.wire.records import RequestRefused
from broker.wire.times import SECOND


def refusal(subject: str = "d-1", reason: Reason = Reason.UNKNOWN_ID) -> RequestRefused:
    return RequestRefused("agent", "worker-a", "consume", subject, reason, 1)


def test_the_first_of_a_minute_is_written_and_the_rest_are_counted() -> None:
    fold = RefusalFold()
    assert [len(fold.fold(refusal(), Instant(i))) for i in range(5)] == [1, 0, 0, 0, 0]
    assert fold.flush(Instant(FOLD_S * SECOND - 1)) == ()
    (draft,) = fold.flush(Instant(FOLD_S * SECOND))
    assert draft.fact == RequestRefused("agent", "worker-a", "consume", "d-1", Reason.UNKNOWN_ID, 4)
    assert len(fold.fold(refusal(), Instant(FOLD_S * SECOND))) == 1, "a new minute begins"


def test_neither_subject_nor_reason_can_be_told_from_what_is_written_at_once() -> None:
    fold = RefusalFold()
    assert fold.fold(refusal("d-1"), Instant(0))
    assert not fold.fold(refusal("d-2"), Instant(0))
    assert not fold.fold(refusal("d-1", Reason.OTHER_TARGET), Instant(1)), "the time it takes must not tell the reason"
    counted = {(f.subject, f.reason) for f in flushed(fold)}
    assert counted == {("d-2", Reason.UNKNOWN_ID), ("d-1", Reason.OTHER_TARGET)}


@pytest.mark.promise("P29")
def test_ever_new_subjects_cost_few_records_and_each_refusal_is_counted() -> None:
    fold = RefusalFold()
    written = sum(len(fold.fold(refusal(f"guess-{n}"), Instant(n))) for n in range(1000))
    facts = flushed(fold)
    assert written + len(facts) <= 1 + SUBJECTS + 1
    assert written + sum(f.count for f in facts) == 1000
    assert facts[-1].subject == "", "what could not be named is counted all the same"


def flushed(fold: RefusalFold) -> list[RequestRefused]:
    return [draft.fact for draft in fold.flush(Instant(0), everything=True)]  # type: ignore[misc]


def test_a_shutdown_writes_what_is_counted_so_far() -> None:
    fold = RefusalFold()
    for at in range(3):
        fold.fold(refusal(), Instant(at))
    (draft,) = fold.flush(Instant(3), everything=True)
    assert draft.fact.count == 2  # type: ignore[union-attr]
    assert fold.flush(Instant(3), everything=True) == ()
