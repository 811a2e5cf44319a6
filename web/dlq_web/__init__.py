"""The web page and the HTTP API of a cluster: a process of its own, with the rights of its user.

`command` is `dlq web`, and `serving` runs that server of one person. `app` puts the parts
together: `door` knows the browser, `api` answers programs, `pages` answers people, and `line` asks
the master. Nothing here decides anything about jobs. A restarted server has forgotten its sessions.

`daemon` is `dlq-web`, the server for all users. `config` is its file, `running` runs it on the
sockets and with the TLS of `listening`, and `shared` puts it together with its `entrance`.
"""
