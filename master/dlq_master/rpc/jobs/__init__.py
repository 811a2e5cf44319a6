"""Services for jobs: submit, list, change, watch, read logs, run commands, forecast.

`job_service` has the methods; `lists`, `watch`, `journal`, `logs` and `execs` answer them.
`visible` decides which jobs a caller may see. Changes go to the loop and are answered after the
commit; reads use the read model.
"""
