"""The entrance of a server for all users: `ways` in by a one-time link and by certificate, and the
`account` page with the tokens of its user.
"""
