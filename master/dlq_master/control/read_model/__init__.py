"""The read model: the state of the last commit, for every reader.

`published` is the one place that readers ask; they never touch the working state. `journal` chooses
the words of events. `ports` says what other rooms may ask. It is rebuilt from the database when the
master starts.
"""
