"""What holds for every test."""

from hypothesis import HealthCheck, settings

# No test fails because the machine was slow.
settings.register_profile("skynet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("skynet")
