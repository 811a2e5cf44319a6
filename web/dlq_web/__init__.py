"""The web page and the HTTP API of a cluster: a process of its own, with the rights of its user.

`command` is `dlq web`, and `serving` runs the server. `app` puts the parts together: `door` knows
the browser, `api` answers programs, `pages` answers people, and `line` asks the master. Nothing
here decides anything about jobs. Nothing is stored: a restarted server has forgotten its sessions.
"""
