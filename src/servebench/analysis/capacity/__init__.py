"""Know how the highest load that meets the objectives is searched for, and how sure the answer is."""
