"""`python -m ergodax.replicas FILE`: a worker that `replicas.processes` has started."""

import sys

from ergodax.replicas.engines import unpickled

if __name__ == "__main__":
    unpickled(sys.argv[1])
