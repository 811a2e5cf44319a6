"""Hooks: functions of an operator's file that judge submissions, in a process of their own.

`process` starts that process, asks it, and ends it when it fails. `account` says in whose account
it may run. `desk` has the policy for failures, and the number of calls that may wait. A master
without `[hooks] file` imports nothing of this package.
"""
