"""`python -m quench`: the program that this package would start a gateway with, with the arguments given."""

import os
import sys

from quench._server import program
from quench.errors import UnavailableError

if __name__ == "__main__":
    try:
        path = program()
    except UnavailableError as missing:
        sys.exit(f"quench: error: {missing}")
    os.execv(path, [path, *sys.argv[1:]])
