"""The one instruction, programs made of it, and the stream of lanes that they work on."""
