"""Bulk labelling: the same questions about every row of a file, in bounded memory, to be stopped and resumed.

    rows in -> a body for each -> asked, as many at once as it goes -> flat columns -> rows out, in order

Nothing here knows the command line. `asker.py` alone speaks HTTP.
"""
