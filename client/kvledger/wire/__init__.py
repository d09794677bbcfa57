"""The wire protocol: messages, framing and the table of commands. docs/protocol.md suffices for other languages."""
