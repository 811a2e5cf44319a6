"""The steps around every call: the identity of the caller, its permissions and limits, and the form
of failures.

`call` is the step around each method. `auth` reads the certificate. `roles` is the table of
permissions. `limits` and `reads` bound the use of one caller. `errors` turns a DlqError into a
status. Services know none of this.
"""
