//! How long a supervisor that does not answer is waited for (N12). One that was stopped is woken at the first silence; one
//! that is only slow, on a machine that has much to do, is waited for; one that is silent for a minute is broken.

use std::time::{Duration, Instant};

use crate::node::supervisor::client::SupervisorError;

/// How long a supervisor may be silent before it counts as broken. Each look at it waits for some seconds itself.
const SILENCE: Duration = Duration::from_secs(60);

/// What became of the wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    Heard,
    /// It is there no more, and says so by that: why.
    Gone(String),
    /// It is there and will not speak again.
    Silent(String),
}

/// Looks until there is an answer, or no use in waiting for one. `wake` is called after each silence but the last; `now`
/// is a clock.
pub(super) async fn wait_for_word<T, F: Future<Output = Result<T, SupervisorError>>>(
    mut look: impl FnMut() -> F,
    mut wake: impl FnMut(),
    now: impl Fn() -> Instant,
) -> Word {
    let begun = now();
    loop {
        match look().await {
            Ok(_) => return Word::Heard,
            Err(why @ SupervisorError::Silent { .. }) if now().duration_since(begun) >= SILENCE => {
                return Word::Silent(why.to_string());
            }
            Err(SupervisorError::Silent { .. }) => wake(),
            Err(why) => return Word::Gone(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    use futures::executor::block_on;

    /// As long as the client waits for one answer.
    const LOOK: Duration = Duration::from_secs(5);

    /// A supervisor that says nothing for so long, and a clock that goes on only while it is waited for.
    struct Slow {
        begun: Instant,
        past: Cell<Duration>,
        silent_for: Duration,
        woken: RefCell<Vec<u64>>,
    }

    impl Slow {
        fn new(silent_for: Duration) -> Self {
            Self {
                begun: Instant::now(),
                past: Cell::default(),
                silent_for,
                woken: RefCell::default(),
            }
        }

        fn look(&self) -> Result<(), SupervisorError> {
            let past = (self.past.get() + LOOK).min(self.silent_for.max(self.past.get()));
            self.past.set(past);
            if past >= self.silent_for {
                return Ok(());
            }
            Err(SupervisorError::Silent {
                folder: "/pod".into(),
                limit: LOOK,
            })
        }

        fn wait(&self) -> Word {
            let wake = || self.woken.borrow_mut().push(self.past.get().as_secs());
            block_on(wait_for_word(
                || std::future::ready(self.look()),
                wake,
                || self.begun + self.past.get(),
            ))
        }
    }

    #[test]
    fn n12_a_slow_supervisor_is_waited_for_and_a_stopped_one_woken_at_the_first_silence() {
        let slow = Slow::new(Duration::from_secs(58));
        assert_eq!(slow.wait(), Word::Heard);
        assert_eq!(slow.past.get().as_secs(), 58);
        let woken = slow.woken.borrow();
        assert_eq!((woken.first(), woken.len()), (Some(&5), 11), "{woken:?}");
    }

    #[test]
    fn n12_a_supervisor_is_given_up_after_a_minute_of_silence_and_no_sooner() {
        let broken = Slow::new(Duration::MAX);
        let said = "the supervisor of /pod has not answered within 5 s";
        assert_eq!(broken.wait(), Word::Silent(said.to_owned()));
        assert_eq!(broken.past.get().as_secs(), 60);
    }

    #[test]
    fn n12_a_supervisor_that_is_gone_is_not_waited_for() {
        let gone = || {
            std::future::ready(Err::<(), _>(SupervisorError::Gone {
                folder: "/pod".into(),
                source: std::io::ErrorKind::ConnectionRefused.into(),
            }))
        };
        let word = block_on(wait_for_word(
            gone,
            || panic!("nobody is there to be woken"),
            Instant::now,
        ));
        assert!(matches!(word, Word::Gone(_)), "{word:?}");
    }
}
