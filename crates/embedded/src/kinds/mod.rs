//! The built-in rows: their schemas, defaults, rules and columns.

pub mod print;
