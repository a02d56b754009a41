"""The number of examples of a property test: all with `--hypothesis-profile=full`, otherwise a quarter."""

from __future__ import annotations

import hypothesis

_FULL = 100
_FEWEST = 10


def register_profiles() -> None:
    """Registers the profiles `ci`, which is the default, and `full`, which `make test-all` uses."""
    for name, count in (("ci", _FULL // 4), ("full", _FULL)):
        # Two processes share the machine, so the duration of an example means nothing.
        too_slow = [hypothesis.HealthCheck.too_slow]
        hypothesis.settings.register_profile(
            name, max_examples=count, deadline=None, suppress_health_check=too_slow
        )
    hypothesis.settings.load_profile("ci")


def examples(full: int) -> int:
    """Returns the number for `max_examples` in this run, for a test that has `full` examples at most."""
    return max(min(full, _FEWEST), full * hypothesis.settings.default.max_examples // _FULL)
