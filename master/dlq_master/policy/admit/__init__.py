"""The admit stage: may a job enter, and as what?"""
