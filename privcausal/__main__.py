"""`python -m privcausal`: the command line."""

import sys

from privcausal.cli import main

sys.exit(main())
