"""Verdicts: may a deadline be promised, what could be offered instead, and is a kept promise in
danger?

`admission` decides, `offer` looks for the nearest promise that could be made, `danger`
judges promises that exist, `proof` counts a plan anew. `reading` shows jobs as the planner
of promises sees them, and says which may grow. Pure.
"""
