"""How many examples a property is tried with: all with `--hypothesis-profile=full`, a quarter otherwise."""

from __future__ import annotations

import hypothesis

_FULL = 100
_FEWEST = 10


def register_profiles() -> None:
    """Makes the profiles `ci`, which is loaded, and `full`, which `make test-all` asks for."""
    for name, count in (("ci", _FULL // 4), ("full", _FULL)):
        # Two processes share the machine: how long an example takes says nothing.
        too_slow = [hypothesis.HealthCheck.too_slow]
        hypothesis.settings.register_profile(
            name, max_examples=count, deadline=None, suppress_health_check=too_slow
        )
    hypothesis.settings.load_profile("ci")


def examples(full: int) -> int:
    """Returns for `max_examples` how many a test that wants `full` of them tries in this run."""
    return max(min(full, _FEWEST), full * hypothesis.settings.default.max_examples // _FULL)
