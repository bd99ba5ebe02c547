//! The pure heart of Usher.
//!
//! What lives here is arithmetic on values: plans and why they are what they are ([`plan`]), conditions ([`condition`]),
//! keys, names and times as they are kept ([`key`], [`name`], [`text`], [`uid`], [`second`]), canonical hashes ([`hash`]), back-off and rate limits ([`backoff`]), error
//! classes ([`error`]), state machines as tables ([`fsm`]), rolling changes ([`rollout`]).
//!
//! **Deliberately absent:** tokio, kube, a clock, randomness, any I/O. Time arrives as an argument. The tidy test of `usher`
//! holds this crate to it. That is what lets the same decisions run in tests, in the simulator and in production.

pub mod backoff;
pub mod condition;
pub mod error;
pub mod fsm;
pub mod hash;
pub mod key;
pub mod name;
pub mod plan;
pub mod rollout;
pub mod second;
pub mod text;
pub mod uid;

pub use backoff::{Backoff, Moment, TokenBucket};
pub use condition::{Condition, ConditionStatus, Conditions};
pub use error::ErrorClass;
pub use key::{KeyError, ObjectKey};
pub use plan::{Finding, Next, Plan, Stance, Step, Tell};
pub use second::Second;
pub use text::Text;
pub use uid::Uid;
