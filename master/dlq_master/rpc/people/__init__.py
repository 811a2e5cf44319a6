"""Identities: join tokens, the login broker, renewal, guests, and groups of host accounts.

`login_broker` gives a certificate to the user that the kernel names. `certificates` gives one to a
node with a token, and renews all others. `authorities` changes the CA. `host_accounts` reads
accounts of the master's host anew each time.
"""
