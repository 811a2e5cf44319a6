"""The steps around every call: identity, permission, limits, and the form of failures.

`call` is a call as its handler sees it, with the `parts` of the master. `passage` runs the steps in
order, and `surround` puts it around each method. `auth` reads the certificate, `roles` names the
groups of roles. `limits` and `reads` bound the use of one caller. `errors` turns a DlqError into a
status. Services know none of this.
"""
