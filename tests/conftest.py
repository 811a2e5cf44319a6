"""How property tests run: the same examples every time, and never judged by the clock.

LONG=1 (`make test-long`) tries more of them; `HYPOTHESIS_PROFILE=long` looks for new ones, and for longer.
"""

import os

from hypothesis import HealthCheck, settings

from support.extent import times

# On a busy machine every time limit is a coin toss.
UNTIMED = (HealthCheck.too_slow,)
settings.register_profile(
    "quick",
    deadline=None,
    suppress_health_check=UNTIMED,
    max_examples=times(40, 100),
    derandomize=True,
)
settings.register_profile(
    "long", deadline=None, suppress_health_check=UNTIMED, max_examples=2000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
