#!/usr/bin/env bash
# Measure a bench plan on every GPU of this machine, one process each.
#
#   benchmarks/bench_h200.sh PLAN OUT [options of costmodel bench run]
#
# OUT gets bench-<gpu>.jsonl, whole lines at any moment, failures-<gpu>.jsonl and
# run-<gpu>.log. Needs torch, triton and helion; neither the project nor xgboost need
# be installed. Results of an earlier machine: --skip FOLDER.
set -u
[ $# -ge 2 ] || { echo "usage: bench_h200.sh PLAN OUT [options]" >&2; exit 2; }
plan=$(realpath "$1")
out=$(mkdir -p "$2" && cd "$2" && pwd)
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
count=${GPUS:-$("$python" -c 'import torch; print(torch.cuda.device_count())')}
[ "$count" -gt 0 ] || { echo "expected a GPU, found none" >&2; exit 1; }
[ "$plan" -ef "$out/plan.jsonl" ] || cp "$plan" "$out/plan.jsonl"
processes=()
for ((gpu = 0; gpu < count; gpu++)); do
  CUDA_VISIBLE_DEVICES=$gpu "$python" -m costmodel.cli bench run "$plan" \
    --output "$out" --shard "$gpu/$count" "$@" \
    2> >(tee -a "$out/run-$gpu.log" >&2) &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do wait "$process" || status=1; done
exit $status
