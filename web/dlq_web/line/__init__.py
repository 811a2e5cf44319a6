"""The way to the master: `methods` are its public calls, `calls` makes them, and `feed` tells its
events to all streams of one person.
"""
