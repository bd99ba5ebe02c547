//! The cluster under test: a manual one in memory, asked in process, every answer there at the first poll (E2).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::HeaderMap;
use http_body::Body as _;
use jiff::SignedDuration;
use usher_embedded::clock::{Clock, ManualClock};
use usher_embedded::{Cluster, Controller, Controllers, Manual, Options};

use crate::request::Sent;

pub struct World {
    pub manual: Manual,
}

#[derive(Debug)]
pub struct Got {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The body goes on: a watch.
    pub is_open: bool,
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// The server is at work here: a panic is a finding.
    static IS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// The server's panics are kept for the report instead of being printed among a million inputs.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        if IS_ASKED.get() {
            LAST_PANIC.with(|last| last.replace(info.to_string()));
        } else {
            eprintln!("{info}");
        }
    }));
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    IS_ASKED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_ASKED.set(false);
    outcome.map_err(|_: Box<dyn Any + Send>| format!("panic: {}", LAST_PANIC.with(|last| last.borrow().clone())))
}

impl World {
    pub fn new() -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let options = Options {
            clock: Clock::Manual(clock),
            seed: Some(7),
            controllers: of_the_api(),
            ..Options::default()
        };
        Self {
            manual: Cluster::manual(options).unwrap(),
        }
    }

    /// How many lines the store has been given.
    pub fn writes(&self) -> u64 {
        self.manual.cluster().store_stats().writes
    }

    /// `Ok(None)`: not a request. `Err`: what may never happen.
    pub fn send(&self, sent: &Sent) -> Result<Option<Got>, String> {
        let Some(request) = sent.request() else { return Ok(None) };
        let service = self.manual.service();
        let mut context = Context::from_waker(Waker::noop());
        let got = caught(|| {
            let mut answer = pin!(service.answer(request));
            let Poll::Ready(response) = answer.as_mut().poll(&mut context) else {
                return Err("E2: not answered at the first poll".to_owned());
            };
            let (head, mut body) = response.into_parts();
            let mut bytes = Vec::new();
            // A watch of all there is ends here, too.
            for _ in 0..10_000 {
                match std::pin::Pin::new(&mut body).poll_frame(&mut context) {
                    Poll::Ready(Some(Ok(frame))) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
                    Poll::Ready(Some(Err(error))) => match error {},
                    Poll::Ready(None) => {
                        return Ok((head, bytes, false));
                    }
                    Poll::Pending => break,
                }
            }
            Ok((head, bytes, true))
        })??;
        let (head, body, is_open) = got;
        Ok(Some(Got {
            code: head.status.as_u16(),
            headers: head.headers,
            body,
            is_open,
        }))
    }

    /// Controllers do some of what they have to do, and time goes on.
    pub fn let_live(&mut self, syncs: usize, milliseconds: i64) -> Result<(), String> {
        let mut context = Context::from_waker(Waker::noop());
        caught(|| {
            for _ in 0..syncs {
                let Some(work) = self.manual.ready().into_iter().next() else {
                    break;
                };
                let mut run = pin!(self.manual.run(&work.id));
                if run.as_mut().poll(&mut context).is_pending() {
                    return Err(format!("E2: {:?} was not done at its first poll", work.id));
                }
            }
            let now = self.manual.clock().now();
            self.manual.advance(now + SignedDuration::from_millis(milliseconds));
            Ok(())
        })?
    }
}

/// Those that deletion needs. A fuzzed ReplicaSet wants two thousand million pods, and a controller would make them.
fn of_the_api() -> Controllers {
    [
        Controller::GarbageCollector,
        Controller::Namespaces,
        Controller::Definitions,
        Controller::Events,
        Controller::Compaction,
    ]
    .into_iter()
    .fold(Controllers::none(), Controllers::with)
}
