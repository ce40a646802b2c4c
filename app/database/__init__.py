"""All that speaks MySQL: a connection, its sessions, and the polls over them.

Others use `poller.Poller`, or `poller.poll_once` for a single poll. Every failure is a value, which
`faults` makes of an exception. `logins` and `sync` are pure: what logins and reads in sync mean.
"""

import sys

# PyMySQL imports it whether it needs it or not: 8 MiB, and a tenth of a start. See
# `connection.prepare_for`.
if "cryptography" not in sys.modules:
    sys.modules["cryptography"] = None  # type: ignore[assignment]
    import pymysql  # noqa: F401 (as above)

    del sys.modules["cryptography"]
