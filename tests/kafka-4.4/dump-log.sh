#!/usr/bin/env bash
# Has Kafka's own tool read every file of partition directories, ours or Kafka's, and fails when it complains.
#   KAFKA_DUMP_LOG=/opt/kafka/bin/kafka-dump-log.sh tests/kafka-4.4/dump-log.sh kontiki-data/node-1/logs/*-[0-9]*
# The node should be stopped: the indexes of active segments are complete then. Needs Java.
set -uo pipefail
dump_log=${KAFKA_DUMP_LOG:?the command that runs org.apache.kafka.tools.DumpLogSegments}
failed=0

# Arguments: what may not be in the output, a directory, a suffix, options of the tool.
run() {
  local complaint=$1 dir=$2 suffix=$3 list output
  shift 3
  list=$(find "$dir" -maxdepth 1 -name "*.$suffix" | sort | paste -sd,)
  [ -n "$list" ] || return 0
  if ! output=$($dump_log --files "$list" "$@" 2>&1) || grep -Eiq "$complaint" <<<"$output"; then
    echo "FAIL $dir *.$suffix $*"
    grep -Ei "$complaint" <<<"$output" | head -5
    failed=1
  fi
}

for dir in "$@"; do
  # Gaps of compaction and first offsets are told on standard error as "Non-consecutive offsets": no complaint.
  run 'isvalid: false|invalid bytes|exception' "$dir" log --print-data-log --deep-iteration
  for suffix in index timeindex; do
    run 'mismatch|out of order|exception|corrupt' "$dir" "$suffix"
    run 'exception|corrupt|fail' "$dir" "$suffix" --index-sanity-check
    run 'mismatch|out of order|exception' "$dir" "$suffix" --verify-index-only
  done
  run 'exception|corrupt' "$dir" txnindex
  run 'exception|corrupt' "$dir" snapshot
done
files=$(find "$@" -maxdepth 1 -name '0*' | wc -l)
echo "$files files read, $([ $failed = 0 ] && echo no complaint || echo COMPLAINTS)"
exit $failed
