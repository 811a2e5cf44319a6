"""Small programs that measure a node: each prints one result and ends (docs/running/checks.md).

The master runs them as short jobs. An operator may also run one by hand: `python3 -m
dlq_nodeagent.checks matrix`. On real GPUs they use CUDA's driver, cuBLAS and NCCL by ctypes; else
numpy on the cores.
"""
