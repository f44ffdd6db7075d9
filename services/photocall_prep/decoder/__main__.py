"""`python -m photocall_prep.decoder SOCKET MEMORY`: a decoder on the channel with these descriptors."""

import os
import sys

from photocall_prep.decoder import run

sys.exit(run(os.environ, int(sys.argv[1]), int(sys.argv[2])))
