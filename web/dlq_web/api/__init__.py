"""Answers programs. `bridge` offers every public call of the master by the rules of Connect.
`resources` names the reads below `/v1`, and `reading` answers them; `streams` sends events and
output as they come. `refusals` gives each error its one form, `openapi` describes all of it, and
`health` says whether the server and the master can be asked.
"""
