"""The doors of the master: decode, ask the loop, await the commit, encode."""
