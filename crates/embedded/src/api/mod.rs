//! The HTTP surface: what is answered to whom, in which representation.

pub mod discovery;
pub mod openapi;
pub mod table;
