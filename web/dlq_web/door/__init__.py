"""Knows the browser. `sessions` has the one-time links, and the browsers and programs that have
entered. `peers` tells whose connection it is, `guard` refuses requests of others, and `signing`
answers at the door. `wall` has the token of a screen on the wall.

The server for all users has more: `shared_guard` bounds the tries of strangers by `budgets`,
`persons` asks the master about each user, and `tokens` are of programs, which `bearers` lets in.
"""
