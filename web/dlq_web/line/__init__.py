"""The way to the master: `methods` are its public calls, `calls` makes them, and `feed` tells its
events to all streams of one person. `service` is the line of a server for all users, and `scope`
bounds the calls of a program's token.
"""
