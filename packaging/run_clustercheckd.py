"""The packaged `clustercheckd`."""

import os
import sys

SETTINGS = "/etc/clustercheckd/clustercheckd.env"

# Read by the service and by every command, so that `clustercheckd check` asks as the service does.
if os.path.exists(SETTINGS):
    os.environ.setdefault("CLUSTERCHECK_ENV_FILE", SETTINGS)

from app.__main__ import main

sys.exit(main())
