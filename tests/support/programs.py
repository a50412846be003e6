"""Programs of the system that tests need."""

import os
import shutil

import pytest

LIBRARY_SIGNALS = 3 << 31
"""32 and 33, which belong to glibc: what was started by posix_spawn, as make does, ignores them."""

_UNPROMISED = frozenset({"podman", "docker"})
"""CI has no engine for containers."""


def needs(program: str) -> pytest.MarkDecorator:
    """Mark a test, class or module (``pytestmark = needs("bwrap")``) that works with ``program``, found on ``PATH``.

    Where it is absent the test is skipped, and fails if ``CI`` is set: there it has to be installed.
    """
    absent = shutil.which(program) is None
    if absent and os.environ.get("CI") and program not in _UNPROMISED:
        # A test that runs and fails as it has no program is a failure which names it.
        return pytest.mark.usefixtures(f"{program}_has_to_be_installed")
    return pytest.mark.skipif(absent, reason=f"{program} is not installed")
