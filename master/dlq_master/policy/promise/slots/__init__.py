"""Plans of slots: the jobs with an SLO lease in each slot, and ways to insert one more job.

`plan` is the value that keeps promises, `ledger` its sums as arrays. `holes`, `eject` and `augment`
insert a job with ever more effort. `realise` and `layout` turn a choice of deadlines into slots.
`mend` repairs a plan after a loss, and `late` postpones it. Pure.
"""
