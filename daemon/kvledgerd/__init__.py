"""The daemon: a pure core that decides, and the shell of sockets, files and workers around it."""
