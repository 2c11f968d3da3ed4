"""The ring all-reduce of NICs (AI Smart NIC): facts, golden model, driver, training, pages."""
