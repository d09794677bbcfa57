"""From events to the rows of the audit database.

The log says only what the state does not already tell, so rows are made by a replay: each event is applied by the same
`apply` that the daemon uses, and what it changed is read off the state. Nothing here is remembered that the state does
not hold, so a projection may begin anew behind any event and goes on with the very same rows.
"""
