"""Know whether an answer is what was asked for: rules over texts and tool calls, and the process that applies them."""
