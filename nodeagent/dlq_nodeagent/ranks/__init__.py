"""Ranks on this node: watched, stopped, kept on disk, reported until the master confirms,
forgotten.

`watched` is one rank with all that is in hand for it; `orders` gives stops to the runtime,
`holding` tells ranks how long they may run without the master, `keeping` writes them down. Each
runtime finds its ranks that have no record.
"""
