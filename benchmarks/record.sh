#!/usr/bin/env bash
# Record the corpus on every GPU of this machine, one process each.
#
#   benchmarks/record.sh OUT [options of costmodel.datasets.collect]
#
# OUT gets recorded-<gpu>.tar.xz, whole at any moment, and collect-<gpu>.log.
# Needs torch, triton and helion; the project itself need not be installed.
set -u
out=$(mkdir -p "${1:?usage: record.sh OUT [options]}" && cd "$1" && pwd)
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
count=${GPUS:-$("$python" -c 'import torch; print(torch.cuda.device_count())')}
[ "$count" -gt 0 ] || { echo "expected a GPU, found none" >&2; exit 1; }
processes=()
for ((gpu = 0; gpu < count; gpu++)); do
  CUDA_VISIBLE_DEVICES=$gpu "$python" -m costmodel.datasets.collect "$out" \
    --shard "$gpu/$count" "$@" 2> >(tee -a "$out/collect-$gpu.log" >&2) &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do wait "$process" || status=1; done
exit $status
