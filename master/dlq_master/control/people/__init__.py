"""People: users, join tokens, teams, and the queues that they submit to.

`people` decides on identities and on the jobs of a removed user, `teams` on the members of teams
and on their limits. Everything is a row of the database; `team_use` and `queues` only count
what is published, and `counts` how many jobs each of them has. `attendance` ends jobs that
their clients have left alone.
"""
