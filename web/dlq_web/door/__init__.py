"""Knows the browser. `sessions` has the one-time links, and the browsers and programs that have
entered. `peers` tells whose connection it is, `guard` refuses requests of others, and `signing`
answers at the door.
"""
