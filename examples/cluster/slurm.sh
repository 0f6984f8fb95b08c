#!/usr/bin/env bash
#SBATCH --job-name=quintain
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=96G
#SBATCH --time=12:00:00
#SBATCH --signal=B:INT@300
#SBATCH --requeue
# Five machines with a GPU each: the driver learns on the first, engines sample on the others, and environments run on
# the processors of all. Submitted again, or put back into the queue, it goes on after its newest checkpoint.
#   sbatch examples/cluster/slurm.sh grpo --config recipe.toml
# Wants: an environment with quintain[ray] in VENV, and RUNS in a folder that all machines see.
set -euo pipefail

VENV=${VENV:-$HOME/quintain}
RUNS=${RUNS:-$HOME/runs}
RUN=${RUN:-$SLURM_JOB_NAME-$SLURM_JOB_ID}
PLACEMENT=${PLACEMENT:-examples/cluster/placement.toml}
PORT=${PORT:-$((20000 + SLURM_JOB_ID % 20000))} # a port of the job's own: two jobs may share a machine
# shellcheck disable=SC1091
source "$VENV/bin/activate"

mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
HEAD=${NODES[0]}
ADDRESS=$(srun --nodes=1 --ntasks=1 --nodelist="$HEAD" hostname --ip-address | awk '{print $1}')
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN

# The learner's GPU is the first machine's; Ray is told of none there, so that no engine takes it.
srun --nodes=1 --ntasks=1 --nodelist="$HEAD" --overlap \
  ray start --head --node-ip-address="$ADDRESS" --port="$PORT" --num-cpus="$((SLURM_CPUS_PER_TASK - 4))" --num-gpus=0 \
  --include-dashboard=false --disable-usage-stats --block &
until ray status --address="$ADDRESS:$PORT" >/dev/null 2>&1; do sleep 2; done

if ((${#NODES[@]} > 1)); then
  REST=$(IFS=,; echo "${NODES[*]:1}")
  srun --nodes="$((${#NODES[@]} - 1))" --ntasks="$((${#NODES[@]} - 1))" --nodelist="$REST" --overlap \
    ray start --address="$ADDRESS:$PORT" --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus=1 --disable-usage-stats --block &
fi

CLUSTER=(--cluster "$ADDRESS:$PORT" --placement "$PLACEMENT")
if [[ -f $RUNS/$RUN/config.json ]]; then
  DRIVE=(quintain resume "$RUNS/$RUN" "${CLUSTER[@]}")
else
  DRIVE=(quintain train "$@" --run "$RUN" --runs "$RUNS" "${CLUSTER[@]}")
fi
# Five minutes before the end the driver is asked to stop, and saves what it has.
"${DRIVE[@]}" &
DRIVER=$!
trap 'kill -INT "$DRIVER"' INT
wait "$DRIVER" || wait "$DRIVER"
