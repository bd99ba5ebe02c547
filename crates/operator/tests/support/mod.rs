//! What tests against a real API server share: a namespace of their own, a proxy to misbehave, an operator behind it.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod lab;
pub mod logs;
pub mod proxy;
pub mod rigged;
