"""Style as a test: rules that a linter has no word for, each a function from one file to its findings.

A rule reads the syntax tree, or the plain text, and says for every offence where it stands and what to write instead.
`tests/test_tidy.py` runs all of them over the repository, and over bad snippets, so that a rule which can not fail is
noticed.
"""
