"""The list of clusters of this user: `listed` reads it, `going` hands jobs over, `shown` is the
words.
"""
