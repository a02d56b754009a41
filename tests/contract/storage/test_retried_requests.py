"""How long requests are repeated: the policy itself, with a clock that the tests set."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shardwright.core.storage import faults
from shardwright.core.storage.faults import LAST_TRY_SECONDS, LATER_TRY_SECONDS, Contact, Fault, Operation
from shardwright.pipelines.progress import progress_text


class Clock:
    """A clock that tests can set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Returns the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all deadlines."""
    made = Clock()
    monkeypatch.setattr(faults, "time", made)
    return made


@pytest.fixture
def contact() -> Contact:
    """A storage that has answered."""
    made = Contact()
    made.answered()
    return made


def test_a_storage_that_has_not_answered_gets_less_time(clock: Clock) -> None:
    contact = Contact()
    assert Operation(contact, "gs://b/a").seconds_left() == 20
    contact.answered()
    assert Operation(contact, "gs://b/a").seconds_left() == 180


def test_progress_extends_the_deadline_once(clock: Clock, contact: Contact) -> None:
    operation = Operation(contact, "gs://b/large")
    clock.now += 170
    operation.reached(100)
    assert operation.seconds_left() == 180
    clock.now += 170
    operation.reached(100)  # the same bytes again
    assert operation.seconds_left() == 10


def test_all_operations_share_the_deadline_of_a_dead_storage(clock: Clock, contact: Contact) -> None:
    early = Operation(contact, "gs://b/early")
    clock.now += 100
    contact.failed(early.start)
    late = Operation(contact, "gs://b/late")
    clock.now += 59
    contact.failed(late.start)
    clock.now += 20
    assert (
        early.seconds_left() == late.seconds_left() == Operation(contact, "gs://b/last").seconds_left() == 1
    )
    contact.answered()
    assert late.seconds_left() == 101 and Operation(contact, "gs://b/later").seconds_left() == 180


def test_the_end_of_a_command_shares_a_few_seconds(clock: Clock, contact: Contact) -> None:
    """Operations that begin after a storage died take `LAST_TRY_SECONDS` together, and then a second each."""
    died = clock.now
    for _ in range(4):
        clock.now += 45
        contact.failed(died)
    for name in ("queued", "outcome.json", "dataset.json", "lease.json"):
        operation = Operation(contact, f"gs://b/{name}")
        clock.now += operation.seconds_left()
        contact.failed(operation.start)
    assert clock.now - died <= 180 + LAST_TRY_SECONDS + 3 * LATER_TRY_SECONDS
    clock.now += 61  # another command of the same process
    assert Operation(contact, "gs://b/again").seconds_left() == 180


def test_pauses_grow_and_end_before_the_deadline(
    clock: Clock, contact: Contact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    started, times = clock.now, list[float]()

    def send() -> None:
        times.append(clock.now)
        raise TimeoutError

    with pytest.raises(OSError, match="busy"):
        faults.retried(contact, "gs://b/a", send, lambda error: Fault(OSError("busy"), float("inf")))
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6]) and max(pauses) == faults.MAX_PAUSE
    assert 170 <= clock.now - started <= 180


def test_the_first_fault_is_raised_unless_a_later_one_is_final(clock: Clock, contact: Contact) -> None:
    causes = [Fault(OSError("first"), 2), Fault(OSError("second"), 2), Fault(OSError("third"), 2)]
    left = list(causes)

    def send() -> None:
        raise ValueError

    with pytest.raises(OSError, match="first"):
        faults.retried(contact, "gs://b/a", send, lambda error: left.pop(0))
    final = [causes[0], Fault(PermissionError("no"))]
    with pytest.raises(PermissionError):
        faults.retried(contact, "gs://b/a", send, lambda error: final.pop(0))
    with pytest.raises(ValueError):
        faults.retried(contact, "gs://b/a", send, lambda error: None)


def test_the_line_names_the_operation_that_waits(contact: Contact) -> None:
    def send() -> None:
        assert "waiting" not in progress_text(0.0)
        faults.current_operation().quiet_since -= 45
        assert progress_text(0.0).endswith("waiting for gs://b/photos/a.jpg since 45 s")

    faults.retried(contact, "gs://b/photos/a.jpg", send, lambda error: None)
    assert "waiting" not in progress_text(0.0)


def test_a_brief_operation_gets_as_long_as_a_last_try(contact: Contact) -> None:
    with faults.brief():
        assert Operation(contact, "gs://b/a").seconds_left() <= LAST_TRY_SECONDS
    assert 100 < Operation(contact, "gs://b/a").seconds_left() <= 180
