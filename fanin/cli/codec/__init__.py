"""``fanin codec``: gradients through a codec, and what becomes of them."""
