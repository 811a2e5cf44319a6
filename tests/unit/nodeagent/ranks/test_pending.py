"""A confirmation is of all reports up to its number: none is said out of order, and none is taken
for said.
"""

from itertools import count

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.ranks.pending import PendingReports

A, B = RankKey("1", 1, 0), RankKey("2", 1, 0)


def pending() -> PendingReports:
    numbers = count(1)
    return PendingReports(lambda: next(numbers))


def test_what_was_said_first_has_the_lower_number() -> None:
    """Else one confirmation would be taken for that of a report which comes behind it, and may
    never arrive.
    """
    reports = pending()
    reports.add(A)
    reports.add(B)
    reports.add(A)  # its word of before is superseded
    sent = list(reports.due(1.0, repeat_s=5.0))
    assert sent == [(B, 2), (A, 3)]
    assert reports.confirmed(2) == [B]
    assert reports.confirmed(3) == [A]


def test_what_this_session_has_not_said_is_not_confirmed() -> None:
    reports = pending()
    reports.add(A)
    list(reports.due(1.0, repeat_s=5.0))
    reports.begin([], 2.0)  # a new session, whose hello does not name it
    assert reports.confirmed(1) == []
    assert list(reports.due(2.0, repeat_s=5.0)) == [(A, 1)]
    assert reports.confirmed(1) == [A]


def test_what_a_hello_says_is_not_said_again_at_once() -> None:
    reports = pending()
    reports.add(A)
    reports.begin([A], 1.0)
    reports.add(B)
    assert list(reports.due(1.0, repeat_s=5.0)) == [(B, 2)]
    assert list(reports.due(6.5, repeat_s=5.0)) == [(A, 1), (B, 2)]
