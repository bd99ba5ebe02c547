//! What becomes of a pod on a hollow node, as a table: the first stage that fits where the pod is now says what it is
//! next, and when. Where a pod is, is read off its status, so a table can be followed from any point on.

use std::collections::BTreeMap;

use jiff::SignedDuration;

/// A table of stages. The default one is a pod that is Ready 10 ms after it came, and gone 10 ms after it is told to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stages(pub Vec<Stage>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Where the pod has come to.
    pub at: Moment,
    /// Labels that the pod has; none: any pod.
    pub selector: BTreeMap<String, String>,
    /// How long it stays there.
    pub delay: Delay,
    /// And up to this much longer, by the pod's uid.
    pub jitter: SignedDuration,
    pub next: Step,
}

/// Where a pod is in its life, by its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// It has a node that has said nothing about it.
    Bound,
    /// Its containers run, and it is Ready.
    Ready,
    /// Its containers run, and it is not.
    Unready,
    /// A container has failed and is not started again yet.
    BackOff,
    /// It is told to go.
    Deleting,
}

/// How long a pod stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    Of(SignedDuration),
    /// As long as it was given when it was deleted.
    Grace,
    /// As long as a kubelet waits before it starts a container once more: 10 s, twice that each time, at most 300 s.
    BackOff,
}

/// What a pod is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All its containers run, and it is Ready.
    Ready,
    /// All its containers run, and it is not.
    Unready,
    /// All its containers end with this code, and are started again as `restartPolicy` and back-off say.
    Crash { exit_code: i32 },
    /// All its containers end with 0, for good.
    Succeed,
    /// The object goes.
    Gone,
}

const SHORT: SignedDuration = SignedDuration::from_millis(10);

impl Default for Stages {
    fn default() -> Self {
        Self(vec![
            Stage::new(Moment::Bound, Delay::Of(SHORT), Step::Ready),
            Stage::new(Moment::Deleting, Delay::Of(SHORT), Step::Gone),
        ])
    }
}

impl Stages {
    /// The tables that a file may name.
    pub const SCRIPTS: [&'static str; 4] = ["ready", "never-ready", "crash-loop", "slow-stop"];

    /// One of [`Stages::SCRIPTS`].
    #[must_use]
    pub fn named(script: &str) -> Option<Self> {
        match script {
            "ready" => Some(Self::default()),
            "never-ready" => Some(Self::never_ready()),
            "crash-loop" => Some(Self::crash_loop()),
            "slow-stop" => Some(Self::slow_stop()),
            _ => None,
        }
    }

    /// Containers run and pods never become Ready.
    #[must_use]
    pub fn never_ready() -> Self {
        Self::default().first(Stage::new(Moment::Bound, Delay::Of(SHORT), Step::Unready))
    }

    /// Containers fail a second after each start.
    #[must_use]
    pub fn crash_loop() -> Self {
        let second = SignedDuration::from_secs(1);
        Self::default()
            .first(Stage::new(Moment::BackOff, Delay::BackOff, Step::Ready))
            .first(Stage::new(
                Moment::Ready,
                Delay::Of(second),
                Step::Crash { exit_code: 1 },
            ))
    }

    /// Pods take all of the grace that they are given.
    #[must_use]
    pub fn slow_stop() -> Self {
        Self::default().first(Stage::new(Moment::Deleting, Delay::Grace, Step::Gone))
    }

    /// The same table with a stage before all others.
    #[must_use]
    pub fn first(mut self, stage: Stage) -> Self {
        self.0.insert(0, stage);
        self
    }

    /// The stage of a pod with these labels.
    pub(super) fn of(&self, at: Moment, labels: Option<&BTreeMap<String, String>>) -> Option<&Stage> {
        self.0.iter().find(|stage| {
            stage.at == at
                && stage
                    .selector
                    .iter()
                    .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        })
    }
}

impl Stage {
    /// For every pod, without jitter.
    #[must_use]
    pub fn new(at: Moment, delay: Delay, next: Step) -> Self {
        Self {
            at,
            selector: BTreeMap::new(),
            delay,
            jitter: SignedDuration::ZERO,
            next,
        }
    }

    /// For pods with this label.
    #[must_use]
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.selector.insert(key.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn with_jitter(mut self, most: SignedDuration) -> Self {
        self.jitter = most;
        self
    }
}
