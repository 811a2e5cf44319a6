"""One door to many clusters: offers, a choice with reasons, and one hand-over (ADR 41).

It decides which cluster of a user's list (`clusters_file`) gets a job, and makes sure that one and
no other does. `offers` are values, `choosing` puts them in order, `handover` has the steps of a
hand-over; these three are pure. `records` keeps hand-overs in files. `carrying` goes on with one
through the port of `doors`, and `asking` asks all clusters within a bound of time. `over_wire` is
the port over the SDK.

The command line calls it. It prints nothing and reads no settings. A process that is killed leaves
a record, and the next one goes on with it. A master that restarts knows the key of a hand-over, and
a silent one is asked again. Agents have no part in it.
"""
