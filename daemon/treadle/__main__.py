"""``python -m treadle``: the command line."""

from treadle.cli import main

main()
