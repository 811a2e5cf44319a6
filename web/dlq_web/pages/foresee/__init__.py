"""The next hours of the cluster. `future` is the page and its one read. `hours` makes lanes and
bars of the master's answers, and `thinned` leaves no more of them than a screen can show.
`start_now` finds the widest job that would start at once.
"""
