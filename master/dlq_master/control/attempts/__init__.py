"""Attempts: from an assignment to commands, and from reports to an end.

`dispatch` turns stored intentions into commands, and answers an agent's hello. `barrier`
starts a gang when all of its ranks are ready. `reports` is the only place where attempts end, and
`quarantine` closes nodes on which they fail. Every command has a fence, and a command that an agent
has not confirmed is sent again after a restart of either side.
"""
