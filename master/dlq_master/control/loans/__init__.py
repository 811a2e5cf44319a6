"""Loans: servers of the inference side that train while they are not needed.

`loans` lends, asks back and returns servers; `reclaims` chooses which ones and what that means for
jobs (`reclaim_hits`); `loan_auto` follows the load that `load_sources` read. A server counts as
empty only when its devices say so. Loans are stored with nodes and in `state`, and survive a
restart.
"""
