"""Work on tensors, off the loop and outside of the daemon: a process of its own that maps the arenas.

Arithmetic on tensors needs what the authority should not have in its own process (decision 0026): torch, a GPU whose
faults end the process that they happen in, and numpy, which takes the interpreter lock back after each of its passes.
What dies here costs a miss.
"""
