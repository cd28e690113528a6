"""Know the commands: one thin function each."""
