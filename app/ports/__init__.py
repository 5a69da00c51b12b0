"""What services need from the outside, as Protocols small enough to fake in ten lines."""
