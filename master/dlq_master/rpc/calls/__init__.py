"""What surrounds every call: who calls, what the caller may do, how much, and how a failure is
told.

`call` is the step around each method, `auth` reads the certificate, `roles` is the table of
permissions, `limits` and `reads` bound what one caller may use, `errors` turns a DlqError into a
status. Services know none of this.
"""
