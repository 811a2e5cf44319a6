"""Values of the model as messages for users.

`convert` is the entry; the others write one part each. Nothing is decided or checked here, and the
way back is `specs`.
"""
