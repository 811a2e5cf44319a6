"""Rented machines: the stored value with its table of states, and the index of those that need
attention.

`rented` is the value and its machine; `fleet` lists machines by what has to be asked of them every
second. Pure.
"""
