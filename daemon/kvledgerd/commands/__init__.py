"""Commands of the command line, one module each: ``add(subparsers)`` declares one, ``run(arguments)`` does it."""
