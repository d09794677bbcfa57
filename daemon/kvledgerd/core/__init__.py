"""The pure core: ``decide(state, command) -> events`` and ``apply(state, event)``; no clock, socket, file or tensor."""
