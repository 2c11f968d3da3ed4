"""``python -m fanin``: the command under a chosen interpreter."""

import sys

from fanin.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
