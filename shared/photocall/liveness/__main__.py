"""The health check's process."""

import os
import sys

from photocall.liveness import main

sys.exit(main(sys.argv[1:], os.environ))
