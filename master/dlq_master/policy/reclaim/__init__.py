"""The lent servers that go back when the inference side asks for some of them."""
