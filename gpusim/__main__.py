"""``python -m gpusim`` and the ``gpusim`` script."""

from __future__ import annotations

import sys

from gpusim.cli import run_cli


def main() -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
