"""`python -m photocall.cli`."""

import sys

from photocall.cli import main

if __name__ == "__main__":
    sys.exit(main())
