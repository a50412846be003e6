"""What holds for every test."""

import signal

from hypothesis import HealthCheck, settings

# No test fails because the machine was slow.
settings.register_profile("skynet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("skynet")

# A shell that runs the tests in the background has them ignore SIGINT, and so would every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
