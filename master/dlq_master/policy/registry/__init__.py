"""Policies by name: presets, settings, and the policy that they make.

`presets` is the only list, `settings` reads `key=value` words, `registry` builds the policy.
"""
