"""All that speaks MySQL. Others use `poller`, and `connection.prepare_for`.

Every failure is a value, which `faults` makes of an exception. `logins` and `sync` are pure.
"""

import sys

# PyMySQL would import it, needed or not: 8 MiB. See `connection.prepare_for`.
if "cryptography" not in sys.modules:
    sys.modules["cryptography"] = None  # type: ignore[assignment]
    import pymysql  # noqa: F401 (as above)

    del sys.modules["cryptography"]
