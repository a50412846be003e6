"""What holds for every test."""

import logging
import signal

from hypothesis import HealthCheck, settings

# No test fails because the machine was slow.
settings.register_profile("skynet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("skynet")
# asyncio's debug mode warns of each step over 100 ms: "Executing <...> took 0.107 seconds".
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing %s took"))

# nohup, and shells that run the tests in the background, have them ignore some signals, and so would every process that
# they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _ignored in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, signal.SIG_DFL)
