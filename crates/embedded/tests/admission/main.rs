//! Admission as clients see it (section 8): built-in steps and webhooks.

mod pods;
mod server;
mod services;
mod storage;
mod texts;
mod world;
