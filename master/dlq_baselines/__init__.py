"""Policies that papers compare their own with. A master and the simulator load one by its name.

`presets` lists them, each with an entry point of the group `dlq.policies`. `yarn_cs` has a line for
each queue, `themis` an auction, `three_sigma` expected rewards, `deadlines` the keys of deadlines,
`pollux` sizes by goodput.
The core never imports this package.
"""
