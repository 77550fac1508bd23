"""``python -m gpusim`` and the ``gpusim`` script."""

from __future__ import annotations

import sys

from gpusim.files.interrupts import stopping_signals


def main() -> None:
    """Run the command line and leave with its exit status."""
    with stopping_signals():
        from gpusim.cli import run_cli  # noqa: PLC0415 -- takes a while, in which Ctrl-C is handled

        status = run_cli(sys.argv[1:])
    sys.exit(status)


if __name__ == "__main__":
    main()
