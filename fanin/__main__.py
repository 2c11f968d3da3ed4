"""``python -m fanin``: the command, by the interpreter's choice."""

import sys

from fanin.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
