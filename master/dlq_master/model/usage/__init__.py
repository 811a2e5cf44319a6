"""Usage: the use of GPU time, its cost, and the teams' use against their shares.

`accounting` counts GPU-seconds by outcome, `cost` money, `shares` what each account has used
lately. Pure.
"""
