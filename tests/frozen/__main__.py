"""Write the texts anew: ``python -m tests.frozen [NAME…]``."""

import sys

from tests.frozen import COMMANDS, write

write(sys.argv[1:] or list(COMMANDS))
