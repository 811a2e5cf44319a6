"""Answers people. `pages` has one function for each page, `views` makes what they show of the
master's answers, and `page` fills the templates. `kept` keeps answers of the master for some
seconds. All words are those of the command line.
"""
