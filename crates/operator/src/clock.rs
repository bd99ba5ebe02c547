//! Time, as an argument. The operator asks a [`Clock`]; tests and the simulator bring their own.

use std::time::Instant;

use jiff::Timestamp;
use usher_engine::Moment;

/// What time it is: on the wall, for what people and certificates read; and since some start, for waiting.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time. May jump.
    fn wall(&self) -> Timestamp;
    /// Never goes back.
    fn monotonic(&self) -> Moment;
}

/// The machine's clocks; the monotonic one counts from when this value was made.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts counting now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Moment {
        Moment::after_start(self.start.elapsed())
    }
}
