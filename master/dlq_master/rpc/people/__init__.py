"""Identities: join tokens, the login broker, renewal, and groups of the host's accounts.

`login_broker` gives a certificate to the user that the kernel names. `certificates` gives one to a
node with a token, and renews those of everybody. `host_accounts` reads the accounts of the master's
host anew each time.
"""
