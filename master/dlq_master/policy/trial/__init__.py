"""Trials: jobs of unknown run time run for a while, to measure it (Chronus, section 3.2).

`rules` are the settings, `judge` ends a trial and reads its result, `steps` measures the pace of a
job from its steps. Pure.
"""
