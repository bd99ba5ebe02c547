//! Kinds as rows of data, and what can be done with an object, written once for all of them.

pub mod row;
