//! Who wrote what.
