"""The read model: what the last commit made true, for everybody who only looks.

`published` is the one place that readers ask; they never touch the working state. `journal` chooses
the words of events, `watch` sends events to readers, `recent` keeps the newest ended jobs in
memory, `waits` adds up what each job has waited for. It is rebuilt from the database when the
master starts.
"""
