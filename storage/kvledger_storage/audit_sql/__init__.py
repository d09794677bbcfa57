"""The audit database: tables that a follower fills from the log, for questions that a replay would answer too slowly.

It is derived and never an authority: nothing the daemon does waits for it, and it can be dropped and made anew from the
log. Tables only ever grow, one row for each thing that happened, each with the seq of its event. So the past is a
condition (``seq <= N``), and a tail of the log that a power cut took back is taken back here by one ``DELETE`` a table.
"""
