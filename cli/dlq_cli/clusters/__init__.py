"""The user's list of clusters: `listed` reads it, `going` hands jobs over, `shown`
prints offers.
"""
