"""``python -m kvledgerd``: the daemon proper, as the keeper or a service manager starts it."""

import sys

from kvledgerd.commands import serve

if __name__ == "__main__":
    sys.exit(serve.main_daemon(sys.argv[1:]))
