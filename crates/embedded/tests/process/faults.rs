//! N2, N3, N12: what dies, and what is there again.
