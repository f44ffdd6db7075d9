"""`python -m photocall_prep.decoder FD`: a decoder on the socket with this descriptor."""

import os
import sys

from photocall_prep.decoder import run

sys.exit(run(os.environ, int(sys.argv[1])))
