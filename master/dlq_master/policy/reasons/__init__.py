"""Why a job does not run: derived from the same decision that placed the others.

`explain` answers for one job, `summary` for any number of jobs, `decisions` keeps one
decision for many questions, and names guards and preemptions. Reasons are codes with numbers;
words are in `model.words`.
"""
