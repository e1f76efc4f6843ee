#!/bin/bash
#SBATCH --job-name=replicas
#SBATCH --array=0-99
#SBATCH --cpus-per-task=1
#SBATCH --requeue
# Each task is one worker; the folder is on a disk that all nodes share:
#   sbatch slurm_array.sh /shared/replicas 3000
# More may be submitted at any time. A task that is lost is gone on with by the next that starts.
set -euo pipefail
export NPROC=1 # threads that XLA computes with
exec "${PYTHON:-python}" "${WORKER:-worker.py}" "$1" "$2"
