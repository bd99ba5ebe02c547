//! Watch: the state first if asked, then every change in order, through selectors (O3, O4).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use jiff::{SignedDuration, Timestamp};

use crate::clock::{Alarm, Clock};
use crate::fault::{Fault, FieldError, Path};
use crate::registry::ask::Target;
use crate::registry::read::{ListOptions, Selection, check_fields, list_options_fault, parse_version};
use crate::registry::{Registry, read_fault};
use crate::store::{self, Entry, Kind, LogEntry, ReadError, Revision, Watcher};

/// A watch that names no end closes after this and a seeded part of as much again (O3).
const DEFAULT_SECONDS: u64 = 1_800;
/// Bookmarks come this often, and once this long before the end (O4).
const BOOKMARK_SECONDS: i64 = 60;
const LAST_BOOKMARK_SECONDS: i64 = 2;

#[derive(Debug, Clone, Default)]
pub(crate) struct WatchOptions {
    pub(crate) selection: Selection,
    pub(crate) version: String,
    pub(crate) version_match: String,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

/// How a watcher sees a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

#[derive(Debug)]
pub(crate) enum Seen {
    Object {
        kind: EventKind,
        value: store::Value,
        /// What the event shows as the object's version.
        revision: Revision,
        /// When the value was written: before, where it is that of an object that is gone.
        written: Revision,
        /// The line it comes from, whose renderings are shared; `None` for the state before it.
        line: Option<Arc<LogEntry>>,
    },
    Bookmark {
        revision: Revision,
        ends_initial: bool,
    },
    /// The last thing that is seen.
    Failed(Fault),
}

/// An open watch. Ends by itself at its time, and when its kind becomes another one: after all that was written of the
/// kind as the watch knows it.
#[derive(Debug)]
pub(crate) struct Watch {
    registry: Arc<Registry>,
    target: Target,
    selection: Selection,
    initial: VecDeque<Entry>,
    /// The bookmark that ends the initial events, still to be sent.
    initial_end: Option<Revision>,
    watcher: Option<Watcher>,
    /// Said once, instead of anything else.
    failed: Option<Fault>,
    end: Alarm,
    bookmark: Option<(Alarm, Timestamp)>,
    clock: Clock,
    last_bookmark: Timestamp,
    /// Nothing up to this revision is shown.
    after: Revision,
}

impl Registry {
    pub(crate) fn watch(self: &Arc<Self>, target: &Target, options: &WatchOptions) -> Result<Watch, Fault> {
        check_fields(target, &options.selection.fields)?;
        check_options(options)?;
        let now = self.clock.now();
        let seconds = options
            .timeout_seconds
            .filter(|seconds| *seconds > 0)
            .unwrap_or_else(|| DEFAULT_SECONDS + self.dice.watch_seconds(DEFAULT_SECONDS));
        let after = |seconds: i64| {
            now.saturating_add(SignedDuration::from_secs(seconds))
                .unwrap_or(Timestamp::MAX)
        };
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let last_bookmark = after((seconds - LAST_BOOKMARK_SECONDS).max(0));
        let first_bookmark = after(BOOKMARK_SECONDS).min(last_bookmark);
        let mut watch = Watch {
            registry: self.clone(),
            target: target.clone(),
            selection: options.selection.clone(),
            initial: VecDeque::new(),
            initial_end: None,
            watcher: None,
            failed: None,
            end: self.clock.until(after(seconds)),
            bookmark: options
                .bookmarks
                .then(|| (self.clock.until(first_bookmark), first_bookmark)),
            clock: self.clock.clone(),
            last_bookmark,
            after: 0,
        };
        match watch.open(options) {
            Ok(()) => {}
            // The stream is already promised: a revision that is too old, or still to come, is told in it.
            Err(fault) if matches!(fault.code, 410 | 504) => watch.failed = Some(fault),
            Err(fault) => return Err(fault),
        }
        Ok(watch)
    }
}

impl Watch {
    fn open(&mut self, options: &WatchOptions) -> Result<(), Fault> {
        let registry = self.registry.clone();
        let version = parse_version(&options.version).map_err(|why| Fault::new(500, "", why))?;
        let wants_state = match options.initial_events {
            Some(wants) => wants,
            None => version.is_none(),
        };
        let from = if wants_state {
            let all = ListOptions {
                selection: self.selection.clone(),
                version: options.version.clone(),
                ..ListOptions::default()
            };
            let listed = registry.list(&self.target, &all)?;
            self.initial = listed.entries.into();
            if options.initial_events == Some(true) && options.bookmarks {
                self.initial_end = Some(listed.revision);
            }
            listed.revision
        } else {
            // A revision that is still to come is waited for.
            let current = registry.store.revision();
            self.after = version.filter(|revision| *revision > current).unwrap_or_default();
            version.map_or(current, |revision| revision.min(current))
        };
        let prefix = self.target.resource.prefix(self.target.namespace.as_deref());
        let watcher = registry.store.watch(prefix, from).map_err(|error| match error {
            ReadError::Compacted { floor } => {
                Fault::expired(format!("too old resource version: {from} ({})", floor + 1))
            }
            ReadError::Future { .. } => read_fault(&error, from),
        })?;
        self.watcher = Some(watcher);
        // What was listed may already be of the next edition.
        if self.target.resource.edition.last().is_some() {
            self.watcher = None;
            self.initial.clear();
            self.initial_end = None;
        }
        Ok(())
    }

    /// Whether a line is of another edition of the kind than the one that is watched.
    fn is_later(&self, line: &LogEntry) -> bool {
        let last = self.target.resource.edition.last();
        last.is_some_and(|last| line.revision > last)
    }

    /// What this watcher sees of a line; `None` if it is not for it.
    fn seen(&self, line: Arc<LogEntry>) -> Result<Option<Seen>, Fault> {
        let selects = |value: &store::Value, revision: Revision| {
            if self.selection.is_empty() {
                return Ok(true);
            }
            self.selection
                .matches(&self.registry, &self.target, value, revision, &line.key)
        };
        let was = match &line.previous {
            Some((revision, value)) => selects(value, *revision)?,
            None => false,
        };
        let is = line.kind != Kind::Delete && selects(&line.value, line.revision)?;
        let (kind, written, value) = match (was, is) {
            (false, false) => return Ok(None),
            (false, true) => (EventKind::Added, line.revision, line.value.clone()),
            (true, true) => (EventKind::Modified, line.revision, line.value.clone()),
            // Who loses sight of it is shown it as it was.
            (true, false) => match &line.previous {
                Some((written, value)) => (EventKind::Deleted, *written, value.clone()),
                None => return Ok(None),
            },
        };
        Ok(Some(Seen::Object {
            kind,
            value,
            written,
            revision: line.revision,
            line: Some(line),
        }))
    }

    fn poll_bookmark(&mut self, context: &mut Context<'_>) -> Option<Seen> {
        let (alarm, due) = self.bookmark.as_mut()?;
        if Pin::new(alarm).poll(context).is_pending() {
            return None;
        }
        let next = due
            .saturating_add(SignedDuration::from_secs(BOOKMARK_SECONDS))
            .unwrap_or(Timestamp::MAX);
        self.bookmark = if *due >= self.last_bookmark {
            None
        } else {
            let next = next.min(self.last_bookmark);
            Some((self.clock.until(next), next))
        };
        let revision = self.watcher.as_ref()?.revision();
        Some(Seen::Bookmark {
            revision,
            ends_initial: false,
        })
    }
}

impl Stream for Watch {
    type Item = Seen;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Seen>> {
        let watch = self.get_mut();
        if let Some(fault) = watch.failed.take() {
            return Poll::Ready(Some(Seen::Failed(fault)));
        }
        if let Some(entry) = watch.initial.pop_front() {
            return Poll::Ready(Some(Seen::Object {
                kind: EventKind::Added,
                value: entry.value,
                revision: entry.revision,
                written: entry.revision,
                line: None,
            }));
        }
        if let Some(revision) = watch.initial_end.take() {
            return Poll::Ready(Some(Seen::Bookmark {
                revision,
                ends_initial: true,
            }));
        }
        loop {
            let Some(watcher) = watch.watcher.as_mut() else {
                return Poll::Ready(None);
            };
            let has_ended = watch.target.resource.edition.last().is_some();
            match Pin::new(watcher).poll_next(context) {
                Poll::Ready(Some(Ok(line))) if watch.is_later(&line) => {
                    watch.watcher = None;
                }
                Poll::Ready(Some(Ok(line))) if line.revision <= watch.after => {}
                Poll::Ready(Some(Ok(line))) => match watch.seen(line) {
                    Ok(None) => {}
                    Ok(Some(seen)) => return Poll::Ready(Some(seen)),
                    Err(fault) => {
                        watch.watcher = None;
                        return Poll::Ready(Some(Seen::Failed(fault)));
                    }
                },
                Poll::Ready(Some(Err(lagged))) => {
                    watch.watcher = None;
                    let fault = Fault::expired(format!(
                        "too old resource version: {} ({})",
                        lagged.at,
                        lagged.floor + 1
                    ));
                    return Poll::Ready(Some(Seen::Failed(fault)));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if has_ended => watch.watcher = None,
                // It ended meanwhile: what was written before that comes first.
                Poll::Pending if watch.target.resource.edition.last().is_some() => {}
                Poll::Pending => break,
            }
        }
        if let Some(seen) = watch.poll_bookmark(context) {
            return Poll::Ready(Some(seen));
        }
        Pin::new(&mut watch.end).poll(context).map(|()| None)
    }
}

fn check_options(options: &WatchOptions) -> Result<(), Fault> {
    const WANTED: &str = "NotOlderThan";
    let path = Path::new("resourceVersionMatch");
    let mut errors = Vec::new();
    if options.initial_events.is_some() && options.version_match != WANTED {
        errors.push(FieldError::forbidden(
            &path,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if !options.version_match.is_empty() {
        if options.initial_events.is_none() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if options.version_match != WANTED {
            errors.push(FieldError::not_supported(
                &path,
                options.version_match.as_str(),
                &[WANTED],
            ));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(list_options_fault(&errors))
    }
}
