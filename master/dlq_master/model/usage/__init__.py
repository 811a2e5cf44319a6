"""Usage: what became of GPU time, what it cost, and how teams stand to their shares.

`accounting` counts GPU-seconds by outcome, `cost` money, `shares` what each account has used
lately. Pure.
"""
