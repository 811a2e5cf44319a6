"""Jobs with a cost of lateness, and machines with prices: the least total cost (path relinking).

`situation` is the input of every method and its decision, `catalogue` the machine types and prices.
`schedules` checks a decision. `greedy` has the paper's methods, `compared` the ones that it
compares with, and `marginal` is our own. Pure.
"""
