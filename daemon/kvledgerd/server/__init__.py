"""The request socket: hello, frames, sessions, engines and their lives, descriptors, limits."""
