"""The read model: the state of the last commit, for every reader.

`published` is the one place that readers ask; they never touch the working state. `journal` chooses
the words of events. `watch` sends events to readers. `recent` keeps the newest ended jobs in
memory. `waits` adds up the waiting times of each job by reason. It is rebuilt from the database
when the master starts.
"""
