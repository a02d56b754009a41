"""A fork converts images that the command then takes, and neither disturbs the other."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.pipelines.options import build_settings
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import storage
from shardwright.transforms.conversion import head_start as module
from shardwright.transforms.conversion.convert import ShardRecipe, convert_read, read_ref
from shardwright.transforms.conversion.early_image import state_of
from shardwright.transforms.conversion.head_start import HeadStart, Order, current_head_start, head_start
from shardwright.transforms.images.convert import convert_image


@pytest.fixture
def settings(tmp_path: Path) -> ConvertSettings:
    values = {"input": str(tmp_path), "output": str(tmp_path / "out"), "resize": "16"}
    return build_settings(values, None)


@pytest.fixture
def refs(tmp_path: Path) -> list[ImageRef]:
    return [put(tmp_path / f"{number}.jpg", noise(number)) for number in range(6)]


@pytest.fixture
def fork(settings: ConvertSettings) -> Iterator[HeadStart]:
    made = HeadStart(settings)
    yield made
    made.end()


def noise(seed: int, side: int = 40) -> bytes:
    out = io.BytesIO()
    Image.effect_noise((side, side), 20 + seed).convert("RGB").save(out, "JPEG")
    return out.getvalue()


def put(path: Path, data: bytes, seconds_ago: float = 60) -> ImageRef:
    path.write_bytes(data)
    changed = time.time() - seconds_ago
    os.utime(path, (changed, changed))
    status = path.stat()
    return ImageRef(path.name, str(path), "a", size=status.st_size, version=storage.local_version(status))


def let_it_end(fork: HeadStart) -> None:
    """Waits until the fork has converted all images."""
    os.waitid(os.P_PID, fork.pid, os.WEXITED | os.WNOWAIT)


def test_an_image_is_the_same_as_one_that_the_command_converts(
    fork: HeadStart, refs: list[ImageRef], settings: ConvertSettings
) -> None:
    fork.start(lambda: refs)
    let_it_end(fork)
    recipe = ShardRecipe(settings, settings.record_layout, {"a": 0})
    for ref in refs:
        data = Path(ref.uri).read_bytes()
        planned = ref._replace(split="train", fold=1)  # what a plan adds
        early = fork.take(planned)
        assert early is not None and early.processor_seconds > 0
        own = convert_image(data, ref.key, settings)
        assert early.image.encoded == own.encoded and early.image.frame == own.frame
        assert (early.sha256, early.source_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
        made, alone = (
            convert_read(read_ref(planned, recipe, converted=found), recipe) for found in (fork, None)
        )
        assert (made.entry, made.example, made.source_bytes) == (
            alone.entry,
            alone.example,
            alone.source_bytes,
        )
        assert made.early_seconds == early.processor_seconds and not alone.early_seconds


def test_an_image_of_another_state_is_not_taken(fork: HeadStart, refs: list[ImageRef]) -> None:
    fork.start(lambda: refs)
    let_it_end(fork)
    assert fork.take(refs[0]._replace(version="1")) is None
    assert fork.take(refs[1]._replace(size=1)) is None
    assert fork.take(refs[2]._replace(key="other")) is None
    assert fork.take(refs[0]) is not None


def test_what_the_fork_cannot_convert_is_left_to_the_command(
    tmp_path: Path, fork: HeadStart, refs: list[ImageRef]
) -> None:
    text = put(tmp_path / "text.jpg", b"no image")
    cut = put(tmp_path / "cut.jpg", noise(1)[:300])
    out = io.BytesIO()
    Image.new("RGB", (2200, 2200)).save(out, "PNG")
    huge = put(tmp_path / "huge.png", out.getvalue())
    changed = put(tmp_path / "changed.jpg", noise(1))._replace(version="1")
    missing = refs[0]._replace(uri=str(tmp_path / "none.jpg"))
    fork.start(lambda: [text, cut, huge, changed, missing, *refs])
    let_it_end(fork)
    assert [fork.take(ref) for ref in (text, cut, huge, changed, missing)] == [None] * 5
    assert all(fork.take(ref) for ref in refs)


def test_the_fork_ends_when_its_memory_is_full(settings: ConvertSettings, refs: list[ImageRef]) -> None:
    fork = HeadStart(settings, max_bytes=4000)
    fork.start(lambda: refs)
    let_it_end(fork)
    found = [fork.take(ref) is not None for ref in refs]
    fork.end()
    assert found[0] and not found[-1] and found == sorted(found, reverse=True)


def test_bytes_that_did_not_arrive_are_not_taken(fork: HeadStart, refs: list[ImageRef]) -> None:
    fork.start(lambda: refs)
    let_it_end(fork)
    fork._results[:10] = bytes(10)
    assert fork.take(refs[0]) is None and fork.take(refs[1]) is not None


@pytest.mark.parametrize("size", [0, 20])
def test_numbers_that_arrived_in_part_are_not_taken(fork: HeadStart, refs: list[ImageRef], size: int) -> None:
    number = module._number_of(state_of(refs[0]))
    assert fork._made.append(number, 0, size, 0)  # the image's number is there, but not its checksum
    assert fork.take(refs[0]) is None


def test_a_file_that_was_just_written_is_left_to_the_command(
    tmp_path: Path, fork: HeadStart, refs: list[ImageRef]
) -> None:
    new = put(tmp_path / "new.jpg", noise(1), 0)  # may change again without a new time
    future = put(tmp_path / "future.jpg", noise(1), -9999)  # by the clock of another machine
    fork.start(lambda: [new, future, *refs])
    let_it_end(fork)
    assert [fork.take(ref) for ref in (new, future)] == [None] * 2
    assert all(fork.take(ref) for ref in refs)


def test_a_large_file_is_not_read(tmp_path: Path, fork: HeadStart, refs: list[ImageRef]) -> None:
    large = tmp_path / "large.jpg"
    with open(large, "wb") as file:
        file.write(noise(1))
        file.truncate(40_000_000)
    os.utime(large, (0, 0))
    fork.start(lambda: [ImageRef(large.name, str(large), "a", size=40_000_000, version="0"), *refs])
    let_it_end(fork)
    assert fork.take(ImageRef(large.name, str(large), "a", size=40_000_000, version="0")) is None
    assert all(fork.take(ref) for ref in refs)


def test_the_fork_ends_if_it_reads_images_without_result(
    tmp_path: Path, settings: ConvertSettings, refs: list[ImageRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_WITHOUT_RESULT", 2)
    text = put(tmp_path / "text.jpg", b"no image")
    for order, early in (
        ([text, refs[0], text, text, refs[1]], [True, True]),
        ([text, refs[0], text, text, text, refs[1]], [True, False]),
    ):
        fork = HeadStart(settings)
        fork.start(lambda order=order: order)
        let_it_end(fork)
        assert [fork.take(ref) is not None for ref in refs[:2]] == early
        fork.end()


def test_a_number_that_another_process_may_have_by_now_is_not_killed(
    fork: HeadStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as some supervisors start a command
    try:
        fork.start(list)
        with pytest.raises(ChildProcessError):
            os.waitpid(fork.pid, 0)
        killed: list[int] = []
        monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
        fork.end()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not killed and not fork.pid


def test_the_fork_ends_before_the_command_if_memory_runs_out(fork: HeadStart) -> None:
    waits, go = os.pipe()
    ready, tell = os.pipe()

    def list_refs() -> list[ImageRef]:
        os.write(tell, b".")
        os.read(waits, 1)
        return []

    fork.start(list_refs)
    os.read(ready, 1)
    assert Path(f"/proc/{fork.pid}/oom_score_adj").read_text().strip() == "1000"
    fork.end()
    for pipe in (waits, go, ready, tell):
        os.close(pipe)


def test_the_fork_leaves_images_that_the_command_has_started(
    settings: ConvertSettings, refs: list[ImageRef]
) -> None:
    fork = HeadStart(settings)
    assert fork.take(refs[1]) is None
    fork.start(lambda: refs)
    let_it_end(fork)
    assert [fork.take(ref) is not None for ref in refs] == [True, False, True, True, True, True]
    fork.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_fork_that_was_killed_disturbs_nobody(
    fork: HeadStart, refs: list[ImageRef], number: signal.Signals
) -> None:
    began, begins = os.pipe()

    def list_refs() -> list[ImageRef]:
        os.write(begins, b".")
        signal.pause()
        return refs

    fork.start(list_refs)
    os.read(began, 1)
    os.close(began)
    os.close(begins)
    os.kill(fork.pid, number)
    let_it_end(fork)
    assert fork.take(refs[0]) is None


def test_a_block_has_a_fork_for_its_settings_only(settings: ConvertSettings, refs: list[ImageRef]) -> None:
    other = build_settings({"input": "x", "output": "y"}, None)
    with head_start(settings, lambda: refs):
        fork = current_head_start(settings)
        assert fork is not None and current_head_start(other) is None
        pid = fork.pid
    assert current_head_start(settings) is None and not fork.pid
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_a_machine_without_room_for_another_process_converts_without_it(
    settings: ConvertSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    with head_start(settings, list):
        assert current_head_start(settings) is None
    with pytest.raises(ValueError, match="a bug") as raised, head_start(settings, list):
        raise ValueError("a bug")
    assert raised.value.__context__ is None, "not for want of a process"


def test_an_interrupt_while_the_fork_starts_ends_it(
    settings: ConvertSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, found = HeadStart.start, list[int]()

    def interrupted(self: HeadStart, list_refs: object) -> None:
        start(self, signal.pause)  # type: ignore[arg-type]
        found.append(self.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(HeadStart, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), head_start(settings, list):
        raise AssertionError
    with pytest.raises(ChildProcessError):
        os.waitpid(found[0], 0)


#: Starts a fork that never ends by itself, says so, and waits to be killed.
_PARENT = """
import os, signal, sys
from shardwright.pipelines.options import build_settings
from shardwright.transforms.conversion.head_start import HeadStart
def list_refs():
    os.write(int(sys.argv[1]), b".")
    signal.pause()
HeadStart(build_settings({"input": "x", "output": "y"}, None)).start(list_refs)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_the_fork_ends_with_a_command_that_was_killed() -> None:
    begun, begins = os.pipe()
    with subprocess.Popen([sys.executable, "-c", _PARENT, str(begins)], pass_fds=(begins,)) as parent:
        os.close(begins)
        assert os.read(begun, 1) == b"."
        parent.kill()
    assert os.read(begun, 1) == b"", "nobody has the other end of the pipe"
    os.close(begun)


def test_the_fork_goes_on_in_order_until_the_command_has_caught_up() -> None:
    order = Order(range(100, 110), lead=3)
    assert [order.next([]) for _ in range(3)] == [0, 1, 2]
    assert order.next([100, 101]) == 3
    assert order.next([102, 103]) == 7, "the command has caught up, so three images are left to it"
    assert order.next([108]) == 9, "the command has begun 8"
    assert order.next([]) is None


@given(st.integers(0, 40), st.integers(1, 9), st.lists(st.integers(0, 3), max_size=60))
def test_no_image_is_converted_twice_by_the_fork_or_after_the_command_began_it(
    count: int, lead: int, steps: list[int]
) -> None:
    order, begun, made = Order(range(count), lead), set[int](), list[int]()
    front = 0
    for step in steps:
        new = list(range(front, min(front + step, count)))
        front += len(new)
        begun.update(new)
        place = order.next(new)
        if place is None:
            break
        assert place not in begun
        assert place > max(made, default=-1), "it goes forward"
        made.append(place)


def test_numbers_arrive_in_order_and_never_in_part() -> None:
    log = module._Log(5)
    assert log.unread() == []
    assert log.append(1, 2**64 - 1) and log.append(3)
    assert log.unread() == [1, 2**64 - 1, 3]
    assert not log.append(1, 2, 3) and log.append(4, 5) and not log.append(6)
    assert log.unread() == [4, 5] and log.unread() == []
