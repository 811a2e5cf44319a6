"""`dlq mcp`: the Model Context Protocol over stdio, for programs that act for people."""
