"""Is a plan legal? Checked before anything is changed, whatever policy made it.

`check` checks each verb against the cluster, `servers` those of lent servers and of trials.
`recheck` finds the changes of an older plan that may still be made. An illegal plan changes
nothing.
"""
