"""The gRPC services of the master: decode, ask the loop, await the commit, encode."""
