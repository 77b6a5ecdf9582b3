"""`python -m libdsec` is the `dsec` command."""

import sys

from .cli import main

sys.exit(main())
