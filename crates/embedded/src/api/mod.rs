//! The HTTP surface: what is answered to whom, in which representation.

pub mod table;
