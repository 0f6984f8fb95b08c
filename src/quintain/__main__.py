"""``python -m quintain`` is the command ``quintain``."""

import sys

from quintain.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
