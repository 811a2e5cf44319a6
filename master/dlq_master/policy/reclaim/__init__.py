"""Which lent servers go back when the inference side asks for some of them."""
