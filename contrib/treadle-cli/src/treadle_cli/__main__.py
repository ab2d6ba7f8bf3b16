"""`python -m treadle_cli` is `treadle`."""

from . import main

main()
