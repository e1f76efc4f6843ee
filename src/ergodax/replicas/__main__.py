"""`python -m ergodax.replicas FILE` is a worker of `processes`, with `--forks N` their parent."""

import sys

from ergodax.replicas.engines import unpickled
from ergodax.replicas.forks import serve

if __name__ == "__main__":
    if sys.argv[1] == "--forks":
        serve(int(sys.argv[2]), unpickled)
    else:
        unpickled(sys.argv[1])
