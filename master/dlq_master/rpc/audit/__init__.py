"""The audit: one line, in a chain of hashes, for every call that changes something or is refused.

`audit` decides what is written. `writer` is the thread that writes lines until the disk takes them.
`chain` links line to line and file to file, `verify` checks a chain, and `search` finds lines.
`file` is the port that tests replace. A master that cannot write its audit accepts no changes.
"""
