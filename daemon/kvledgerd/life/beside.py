"""A command as the daemon's child, such as `kvledger audit follow`, which ends with the daemon however that ends.

A daemon that is killed can end nobody, and the one after it starts children of its own.
"""

import sys

from kvledgerd.cli import main
from kvledgerd.keeper.child import die_with

__all__: list[str] = []

if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
