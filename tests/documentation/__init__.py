"""The documents of the checkout as pages, and what is stored of their examples."""
