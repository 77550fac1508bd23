"""``python -m gpusim`` and the ``gpusim`` script."""

from __future__ import annotations

import gc
import sys

from gpusim.files.interrupts import stopping_signals

NEW_OBJECTS = 200_000
"""Objects made between two garbage collections: imports make 60,000, and none of them is garbage."""


def main() -> None:
    """Run the command line and leave with its exit status."""
    gc.set_threshold(NEW_OBJECTS)
    with stopping_signals():
        from gpusim.cli import run_cli  # noqa: PLC0415 -- takes a while, in which Ctrl-C is handled

        status = run_cli(sys.argv[1:])
    gc.freeze()  # or the interpreter searches all that there is once more before it ends
    sys.exit(status)


if __name__ == "__main__":
    main()
