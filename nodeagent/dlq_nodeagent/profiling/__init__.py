"""The traffic profiler in the agent.

`injecting` puts it into a rank, `reading` reads its records, `finding` makes evidence of them, and
`profiles` decides when that is sent.
"""
