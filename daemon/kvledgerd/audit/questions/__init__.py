"""Questions to the audit database, each an answer for people and programs.

They are asked of a database that a follower fills, or of one that is made for the answer from the log and gone with it;
so both give the same.
"""
