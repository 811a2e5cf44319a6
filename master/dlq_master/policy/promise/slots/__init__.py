"""Plans of slots: which job holds an SLO lease in which slot, and putting one more job into a plan.

`plan` is the value that keeps promises; `holes`, `eject` and `augment` insert a job with ever more
effort, `realise` and `layout` turn a choice of deadlines into slots, `mend` repairs a plan after a
loss, `late` postpones it. Pure.
"""
