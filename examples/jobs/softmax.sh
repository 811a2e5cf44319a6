#!/bin/sh
# dlq submit softmax.sh; it runs in the directory it was submitted from.
#DLQ -J softmax
#DLQ --gpus=1 -t 10m
#DLQ --export=PATH
exec python3 softmax.py --out "softmax-$DLQ_JOB_ID" "$@"
