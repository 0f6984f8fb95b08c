"""``python -m quintain.cli`` is the command ``quintain``."""

import sys

from quintain.cli.main import main

sys.exit(main())
