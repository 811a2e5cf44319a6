"""People: users, join tokens, teams, and the queues that they submit to.

`people` says who may have an identity, `leaving` what happens to the jobs of a user who is removed,
`teams` who belongs to which team and what it may have. Everything is a row of the database;
`team_use` and `queues` only count what is published. Policies see teams through `team_words`.
"""
