//! Admission as clients see it (section 8): built-in steps and webhooks.

mod hooks;
mod pods;
mod reviews;
mod server;
mod services;
mod storage;
mod texts;
mod transport;
mod world;
