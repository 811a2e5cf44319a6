"""Small programs that measure a node: each prints one result and ends (docs/running/checks.md).

The master runs them as short jobs. An operator may also run one by hand: `python3 -m
dlq_nodeagent.checks matrix`. They use torch where a GPU is given and torch is there, else numpy.
"""
