//! The one leadership value of a process, as its tasks share it: the lease task writes it, everything that acts asks it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use usher_engine::Moment;

use super::{Leadership, Renewal};

/// A handle on the process's [`Leadership`], with a bell. Clones share both.
#[derive(Debug, Clone)]
pub struct SharedLeadership {
    inner: Arc<Mutex<Inner>>,
    leads: watch::Sender<bool>,
}

#[derive(Debug)]
struct Inner {
    leadership: Leadership,
    /// Somebody was told no since the bell last rang with yes. They must hear of the next yes, even when the lease task
    /// itself never noticed the gap (the whole process was stopped past its hold, and renewed when it went on).
    refused: bool,
}

impl SharedLeadership {
    /// May not act before the lease task says so.
    pub fn never_held() -> Self {
        Self::new(Leadership::never_held())
    }

    /// May always act.
    pub fn without_lease() -> Self {
        Self::new(Leadership::without_lease())
    }

    fn new(leadership: Leadership) -> Self {
        let leads = leadership.may_act(Moment::START);
        Self {
            inner: Arc::new(Mutex::new(Inner {
                leadership,
                refused: false,
            })),
            leads: watch::Sender::new(leads),
        }
    }

    /// The question to ask before each effect.
    pub fn may_act(&self, now: Moment) -> bool {
        let mut inner = self.lock();
        let may = inner.leadership.may_act(now);
        inner.refused |= !may;
        may
    }

    /// When the hold ends, or ended, if nothing renews it.
    pub fn held_until(&self) -> Option<Moment> {
        self.lock().leadership.held_until()
    }

    /// Hears when this process begins to lead (`true`: everything that was refused may be tried again) and when it
    /// ends (`false`). A second `true` without a `false` between them means there was a gap. The value is for waking
    /// up; whether to act is always asked of [`SharedLeadership::may_act`].
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// A write to the lease was stored.
    pub fn renewed(&self, renewal: Renewal) {
        let mut inner = self.lock();
        inner.leadership.renewed(renewal.sent_at, renewal.valid_for);
        if inner.refused || !*self.leads.borrow() {
            inner.refused = false;
            self.leads.send_replace(true);
        }
    }

    /// The lease is another's, or given up. Whether it was ours until now.
    pub fn lost(&self) -> bool {
        let mut inner = self.lock();
        inner.leadership.lost();
        self.ring_end(inner.leadership.may_act(Moment::START))
    }

    /// Rings if the hold has passed without a renewal. Whether it rang.
    pub(crate) fn note_end(&self, now: Moment) -> bool {
        let inner = self.lock();
        self.ring_end(inner.leadership.may_act(now))
    }

    fn ring_end(&self, may: bool) -> bool {
        self.leads.send_if_modified(|leads| {
            let ends = *leads && !may;
            *leads = *leads && may;
            ends
        })
    }

    /// A poisoned lock is taken all the same: the value is two words, and each call leaves them whole.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
