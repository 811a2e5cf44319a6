"""Words: codes and numbers of the model as sentences for people.

`sentence` writes reasons, `promise_words` verdicts on deadlines, `estimate_words` what is known of
a run time. The CLI, logs and errors print these sentences; nothing is decided here.
"""
