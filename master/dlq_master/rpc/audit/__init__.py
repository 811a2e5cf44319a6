"""The audit: one line for every call that changes something or is refused, in a chain of hashes.

`audit` decides on the content. `writer` is the thread that writes whole lines until the disk takes
them. `chain` links line to line and file to file. `verify` checks a chain. `file` is the port that
tests replace. A master that cannot write its audit accepts no changes.
"""
