"""Verdicts on deadlines: promises, offers to refused jobs, and promises in danger.

`reading` turns jobs into the planner's values, and `seen` keeps them. `admission` decides,
`printed_admission` does so by the paper's program, and `offer` finds the nearest possible promise.
`danger` judges existing promises, and `proof` counts a plan anew. Pure.
"""
