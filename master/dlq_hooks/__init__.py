"""The values that hooks of an operator's file are given, and those that they return.

`values` holds them, `program` is the process that calls the hooks, `walls` keeps it in. Nothing
here needs more than the standard library. docs/running/hooks.md says how such a file is written.
"""

from dlq_hooks.values import API_VERSION as API_VERSION
from dlq_hooks.values import Hold as Hold
from dlq_hooks.values import HookAttempt as HookAttempt
from dlq_hooks.values import HookContext as HookContext
from dlq_hooks.values import HookUser as HookUser
from dlq_hooks.values import Refuse as Refuse
from dlq_hooks.values import SubmittedSpec as SubmittedSpec
