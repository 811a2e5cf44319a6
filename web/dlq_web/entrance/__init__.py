"""The entrance of a server for all users: `ways` in by a one-time link and by certificate, and the
`account` page with the tokens of its user.

`openid` is the way by OpenID Connect. `issuer` asks the issuer, `id_tokens` checks its tokens, and
`rules` makes users of its claims.
"""
