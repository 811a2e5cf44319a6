"""The steps around every call: the identity of the caller, its permissions and limits, and the
form of failures.

`call` is what a handler sees of a call, with the `parts` of the master. `passage` is the steps, one
behind the other, and `surround` puts it around each method. `auth` reads the certificate, `roles`
names the groups of callers. `limits` and `reads` bound the use of one caller. `errors` turns a
DlqError into a status. Services know none of this.
"""
