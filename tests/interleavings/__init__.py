"""Every interleaving of the product's own statements over two and three connections."""
