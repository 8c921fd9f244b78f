"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# The same examples in every run: a red build must be red again when one looks. No deadline: two noisy cores.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
