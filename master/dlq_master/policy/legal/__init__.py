"""Is a plan legal? Checked before anything is changed, whatever policy made it.

`check` checks each verb against the cluster, `servers` and `trials` those of lent servers and
trials, `recheck` what of an older plan may still be done. An illegal plan changes nothing.
"""
