"""Shows the progress of the suite in readable lines, instead of a dot for each test.

Each failure gets its line at once. `-v` shows the name of every test, as usual.
"""

from __future__ import annotations

import time

import pytest

_EVERY_SECONDS_ON_A_SCREEN = 0.2
_LINES_IN_A_LOG = 20


class Progress:
    """Counts finished tests, and prints a line from time to time."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        """Prints with pytest's own reporter."""
        self._reporter = reporter
        self._started = time.monotonic()
        self._ended = 0
        self._steps = 0
        self._shown = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Counts a report as pytest does, but prints no letter."""
        if not isinstance(report, pytest.TestReport):
            return None
        if hasattr(report, "wasxfail"):
            return ("xfailed", "", "XFAIL") if report.skipped else ("xpassed", "", "XPASS")
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        if report.skipped:
            return "skipped", "", "SKIPPED"
        return ("passed", "", "") if report.when == "call" else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Prints the name of a test that fails."""
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_line(
                f"{'FAILED' if report.when == 'call' else 'ERROR'} {report.nodeid}", red=True
            )

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Prints the progress, if enough tests have ended since the last line."""
        self._ended += 1
        planned = self._reporter._session.testscollected if self._reporter._session else 0
        last = self._ended == planned
        if self._reporter.isatty:
            now = time.monotonic()
            if last or now - self._shown >= _EVERY_SECONDS_ON_A_SCREEN:
                self._shown = now
                self._reporter.rewrite(self._line(nodeid, planned), erase=True)
            return
        step = self._ended * _LINES_IN_A_LOG // max(planned, 1)
        if step > self._steps:
            self._steps = step
            self._reporter.write_line(self._line(nodeid, planned))

    def _line(self, nodeid: str, planned: int) -> str:
        count = {name: len(items) for name, items in self._reporter.stats.items()}
        bad = count.get("failed", 0) + count.get("error", 0)
        skipped = count.get("skipped", 0)
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        percent = 100 * self._ended // max(planned, 1)
        return (
            f"{percent:3d}%  {self._ended} of {planned} tests, {bad} failed, {skipped} skipped"
            f"  {minutes}:{seconds:02d}  {nodeid.partition('::')[0]}"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Replaces the dots in the process that prints, unless the user asked for all names."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not hasattr(config, "workerinput") and config.get_verbosity() <= 0:
        config.pluginmanager.register(Progress(reporter), "progress-lines")
